"""The terms of appends: judged in turn, refused with a record that readers see (numbers: invariants of `terms`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from stored_log import NOW, Ledger, batch_of, new_log
from writes import ENDS, HeldUp, refusal, send, sn_now, trimmed, write

from gnomon.bookie.errors import LedgerFailed
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms, TermsRefused
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.producers import Duplicate
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import Offset
from gnomon.log.sn import EMPTY, SN
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.wire.kafka.batch import BatchRejected
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]
CLUSTER = LeaderPolicy(tells_epochs=False, confirms_leadership=True)


# --- the log, without a driver --------------------------------------------------------------------------------


def test_terms_are_judged_by_what_was_given_out_durable_or_not() -> None:  # 1
    log = new_log()
    log.append(batch_of(2), NOW, 0)
    assert log.high_watermark == 0
    with pytest.raises(TermsRefused) as refused:
        log.append(batch_of(), NOW, 1, Terms(EMPTY))
    assert refused.value.current == SN(Dlsn(0, 0, 1), -1, 1)
    assert log.next_offset == 2
    log.append(batch_of(), NOW, 1, Terms(SN(Dlsn(0, 0, 1), -1, 1)))
    assert log.sn == SN(Dlsn(0, 1, 0), -1, 2)


def test_a_refused_batch_takes_no_sequence_of_its_producer() -> None:  # 2
    log = new_log()
    with pytest.raises(TermsRefused):
        log.append(batch_of(producer=9), NOW, 0, Terms(SN(sequence_id=5)))
    assert (log.next_offset, len(log.producers), log.segment_bytes) == (0, 0, 0)
    log.append(batch_of(producer=9), NOW, 0, Terms(EMPTY))
    with pytest.raises(TermsRefused):
        log.append(batch_of(producer=9, sequence=1), NOW, 1, Terms(EMPTY))
    log.append(batch_of(producer=9, sequence=1), NOW, 1)
    assert log.next_offset == 2


def test_a_repeat_is_answered_as_its_first_copy_whatever_it_expects() -> None:
    log = new_log()
    log.append(batch_of(3, producer=9), NOW, 0, Terms(EMPTY))
    log.append(batch_of(), NOW, 1)
    assert log.append(batch_of(3, producer=9), NOW, 2, Terms(EMPTY)) == Duplicate(Offset(0), Offset(3), NOW)


def test_a_batch_out_of_order_or_above_a_quota_is_refused_for_that_and_not_for_its_terms() -> None:
    log = new_log()
    log.append(batch_of(producer=9), NOW, 0)
    with pytest.raises(BatchRejected) as early:
        log.append(batch_of(producer=9, sequence=7), NOW, 1, Terms(EMPTY))
    assert early.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.refusal = "the backlog is too large"
    with pytest.raises(BatchRejected) as full:
        log.append(batch_of(), NOW, 1, Terms(EMPTY))
    assert full.value.error_code == ErrorCode.POLICY_VIOLATION


def test_a_producer_snapshot_is_no_record() -> None:
    ledger = Ledger(new_log())
    ledger.append(batch_of(2, producer=9))
    before = ledger.log.sn
    ledger.log.snapshot(1)
    assert ledger.log.sn == before
    ledger.log.append(batch_of(), NOW, 2, Terms(before))
    assert ledger.log.sn == SN(Dlsn(0, 2, 0), -1, 2)


# --- a partition ----------------------------------------------------------------------------------------------


def test_of_writers_with_one_expectation_one_wins_at_each_step(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        end = EMPTY
        for step in range(5):
            sent = [send(act, partition, f"{step}/{writer}", end) for writer in range(7)]
            outcomes = [await answer.wait() for answer, _ in sent]
            won = [terms.sn for _, terms in sent if terms.sn is not None]
            lost = [terms.refused.current for _, terms in sent if terms.refused is not None]
            assert (len(won), len(lost)) == (1, 6)
            assert [outcome.error for outcome in outcomes].count(ErrorCode.INVALID_RECORD) == 6
            end = won[0]
            assert end.sequence_id == step
            assert set(lost) == {end}
        assert [value for _, value in await act.read(partition)] == [f"{step}/0" for step in range(5)]

    play(body)


def test_a_batch_that_waited_for_an_opening_or_a_roll_is_judged_in_its_turn(play: Play) -> None:  # 1
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=100)
        sent = [send(act, partition, f"{number}", SN(sequence_id=number - 1)) for number in range(6)]
        late, terms = send(act, partition, "late", SN(sequence_id=2))
        for answer, _ in sent:
            assert (await answer.wait()).error == ErrorCode.NONE
        assert (await late.wait()).error == ErrorCode.INVALID_RECORD
        assert terms.refused is not None
        assert terms.refused.current.sequence_id == 5
        assert len(partition.segments) > 2

    play(body)


def test_batches_that_waited_are_resumed_in_several_turns_and_in_order(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # 1
    async def body(act: Any) -> None:
        partition = await act.partition()
        monotonic, late = act.clock.monotonic, 0.0
        append = PartitionLog.append

        def slow(log: PartitionLog, *rest: Any) -> Any:
            nonlocal late
            late += SHARE_SECONDS / 2
            return append(log, *rest)

        monkeypatch.setattr(PartitionLog, "append", slow)
        monkeypatch.setattr(act.clock, "monotonic", lambda: monotonic() + late)
        sent = [send(act, partition, f"{number}", SN(sequence_id=number - 1)) for number in range(10)]
        counts = set()
        while any(answer.outcome is None for answer, _ in sent):
            counts.add(sum(answer.outcome is not None for answer, _ in sent))
            await act.clock.sleep(PAUSE_SECONDS / 10)
        assert len(counts) > 2, "they were not written in one turn"
        assert [value for _, value in await act.read(partition)] == [f"{number}" for number in range(10)]

    play(body)


def test_a_refusal_is_given_only_after_the_record_that_it_names_is_durable(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # 3
    async def body(act: Any) -> None:
        partition = await act.partition()
        first = await write(act, partition, "first", EMPTY)
        held = HeldUp(partition, monkeypatch)
        winner, _ = send(act, partition, "winner", first)
        loser, terms = send(act, partition, "loser", first)
        await act.clock.sleep(1)
        assert winner.outcome is loser.outcome is terms.refused is None
        held.go_on()
        assert (await winner.wait()).error == ErrorCode.NONE
        assert (await loser.wait()).error == ErrorCode.INVALID_RECORD
        assert terms.refused is not None
        assert terms.refused.current == await sn_now(partition)

    play(body)


def test_a_refusal_fails_with_the_record_that_it_leans_on_and_is_judged_anew(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # 3
    async def body(act: Any) -> None:
        partition = await act.partition()
        first = await write(act, partition, "first", EMPTY)
        held = HeldUp(partition, monkeypatch)
        winner, _ = send(act, partition, "winner", first)
        loser, terms = send(act, partition, "loser", first)
        await act.clock.sleep(1)
        held.go_on(LedgerFailed("the disk is gone", outcome_unknown=True))
        for answer in (winner, loser):
            assert (await answer.wait()).error == ErrorCode.KAFKA_STORAGE_ERROR
        assert terms.refused is None
        await act.clock.sleep(1)
        now = await refusal(act, partition, first)
        assert now == SN(Dlsn(0, 1, 0), -1, 1), "the record of the winner was stored after all"

    play(body)


@pytest.mark.parametrize("certain", [True, False])
def test_a_refusal_that_another_leader_may_not_give_is_confirmed_first(
    play: Play, monkeypatch: pytest.MonkeyPatch, certain: bool
) -> None:  # 3
    async def body(act: Any) -> None:
        partition = await act.partition()
        first = await write(act, partition, "first", EMPTY)
        asked: list[Callable[[bool], None]] = []
        monkeypatch.setattr(partition, "confirm", asked.append)
        ahead, terms = send(act, partition, "ahead", SN(sequence_id=1))
        assert await refusal(act, partition, EMPTY) == first, "what the log is beyond needs no confirmation"
        await act.clock.sleep(1)
        assert ahead.outcome is None
        (done,) = asked
        done(certain)
        outcome = await ahead.wait()
        if certain:
            assert terms.refused is not None
            assert (outcome.error, terms.refused.current) == (ErrorCode.INVALID_RECORD, first)
        else:
            assert (outcome.error, terms.refused) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    play(body)


def test_a_replaced_leader_does_not_refuse_what_the_next_one_would_take(play: Play) -> None:  # 3
    async def body(act: Any) -> None:
        before, after = await act.partition(policy=CLUSTER), await act.partition(policy=CLUSTER)
        first = await write(act, before, "first", EMPTY)
        assert await after.opened() is not None
        second = await write(act, after, "second", first)
        outcome = await refusal(act, before, second)
        assert isinstance(outcome, Produced)
        assert outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await write(act, after, "third", second)).sequence_id == 2

    play(body)


def test_batches_of_a_producer_do_not_overtake_one_that_was_refused(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        refused, terms = send(act, partition, "0", SN(sequence_id=5), producer_id=9, base_sequence=0)
        behind, _ = send(act, partition, "1", None, producer_id=9, base_sequence=1)
        assert (await refused.wait()).error == ErrorCode.INVALID_RECORD
        assert terms.refused is not None
        assert (await behind.wait()).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        anew, _ = send(act, partition, "1", None, producer_id=9, producer_epoch=1, base_sequence=0)
        assert (await anew.wait()).error == ErrorCode.NONE
        assert await act.read(partition) == [(0, "1")]

    play(body)


def test_a_late_copy_of_a_refused_batch_is_not_written_when_its_condition_holds(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        refused, _ = send(act, partition, "mine", SN(sequence_id=0), producer_id=9, base_sequence=0)
        assert (await refused.wait()).error == ErrorCode.INVALID_RECORD
        await write(act, partition, "theirs", EMPTY)
        late, _ = send(act, partition, "mine", SN(sequence_id=0), producer_id=9, base_sequence=0)
        assert (await late.wait()).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        anew, _ = send(act, partition, "mine", SN(sequence_id=0), producer_id=9, producer_epoch=1, base_sequence=0)
        assert (await anew.wait()).error == ErrorCode.NONE

    play(body)


# --- the last record, whatever happened to it -----------------------------------------------------------------


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("producer", [{}, {"producer_id": 9}], ids=["without producers", "with a producer"])
@pytest.mark.parametrize(("end", "settings"), ENDS)
def test_the_last_record_stays_known_when_it_is_gone(
    play: Play, end: Callable[..., Any], settings: dict[str, int], producer: dict[str, int], power_lost: bool
) -> None:
    known: list[SN] = []

    async def written(act: Any) -> None:
        partition = await act.partition(**settings)
        for number in range(3):
            sequence = {"base_sequence": 2 * number} if producer else {}
            batch = act.batch(f"{number}", "more", at=act.clock.wall_ms(), **producer, **sequence)
            await act.append_batch(partition, batch)
        known.append(await sn_now(partition))
        assert known[0].sequence_id == 5
        await end(act, partition)
        assert await sn_now(partition) == known[0]

    async def claimed(act: Any) -> None:
        partition = await act.partition(**settings)
        assert await sn_now(partition) == known[0]
        assert await refusal(act, partition, EMPTY) == known[0]
        other = await act.partition(**settings)
        assert await sn_now(other) == known[0]
        second = await write(act, other, "next", known[0])
        assert second.sequence_id == 6
        await act.clock.sleep(1)

    play(written, claimed, claimed_again(known), power_lost=power_lost)


def claimed_again(known: list[SN]) -> Callable[[Any], Any]:
    async def body(act: Any) -> None:
        partition = await act.partition()
        assert (await sn_now(partition)).sequence_id == 6
        assert isinstance(await refusal(act, partition, known[0]), SN)

    return body


def test_the_last_record_is_found_before_producer_snapshots(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 2)
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_PER_PRODUCER", 0)
    last = SN(Dlsn(0, 1, 1), -1, 3)

    async def written(act: Any) -> None:
        partition = await act.partition()
        for number in range(2):
            batch = act.batch("0", "1", producer_id=9, base_sequence=2 * number)
            await act.append_batch(partition, batch)
        assert await sn_now(partition) == last

    async def claimed(act: Any) -> None:
        partition = await act.partition()
        assert await sn_now(partition) == last
        await act.clock.sleep(1)
        assert partition.segments[-1].ledger.last_add_confirmed == 2, "the opening has written a snapshot"

    async def claimed_again(act: Any) -> None:
        assert await sn_now(await act.partition()) == last

    play(written, claimed, claimed_again)


def test_an_expected_place_is_refused_in_a_log_whose_last_record_an_older_gnomon_has_deleted(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def older(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "0")
        await trimmed(act, partition)
        await act.append(partition, "1")
        shrink = partition._chain.shrink
        monkeypatch.setattr(partition._chain, "shrink", lambda *args, **more: shrink(*args[:3], **more))
        await trimmed(act, partition)

    async def newer(act: Any) -> None:
        partition = await act.partition()
        log = await partition.opened()
        assert log is not None
        unknown = SN(None, -1, 1)
        assert log.sn == unknown
        assert await refusal(act, partition, SN(Dlsn(0, 1, 0))) == unknown
        assert (await write(act, partition, "2", SN(sequence_id=1))).dlsn == Dlsn(0, 2, 0)

    play(older, newer)


def test_waiting_appends_keep_their_terms(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(codec=1)
        long, first = send(act, partition, "x" * 300_000, EMPTY)  # recompressed in a thread
        behind, terms = send(act, partition, "behind", EMPTY)
        with trio.fail_after(60):
            assert (await long.wait()).error == ErrorCode.NONE
            assert (await behind.wait()).error == ErrorCode.INVALID_RECORD
        assert first.sn == SN(Dlsn(0, 0, 0), -1, 0)
        assert terms.refused is not None

    play(body)
