"""Fencing tokens, transaction ids and expected offsets of a partition, over everything that may happen to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stored_log import NOW, Ledger, batch_of, new_log
from writes import ENDS, HeldUp, refusal, send, sn_now, write

from gnomon.bookie.errors import LedgerFailed
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.conditions.terms import (
    PositionRefused,
    Terms,
    TermsRefused,
    TokenRefused,
    TransactionRefused,
)
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import EntryKind, unpack_entry
from gnomon.log.sn import EMPTY, SN
from gnomon.log.term_headers import EXPECTED_OFFSET, FENCING_TOKEN, TRANSACTION_ID
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Header, Record, build_batch

Play = Callable[..., None]
CLUSTER = LeaderPolicy(tells_epochs=False, confirms_leadership=True)
CODECS = [Codec.NONE, Codec.ZSTD]


def with_headers(*records: tuple[Header, ...], codec: int = Codec.NONE, at: int = NOW, **producer: int) -> bytes:
    made = [Record(number, 0, None, b"value", headers) for number, headers in enumerate(records)]
    return build_batch(made, base_timestamp=at, compression=codec, **producer)


def with_id(number: int, **more: Any) -> bytes:
    return with_headers(((TRANSACTION_ID, b"%d" % number),), **more)


def expecting(offset: int, **more: Any) -> bytes:
    return with_headers(((EXPECTED_OFFSET, b"%d" % offset),), **more)


def appended(log: PartitionLog, batch: bytes, terms: Terms | None = None) -> None:
    log.append(memoryview(batch), NOW, log.next_offset, terms)


# --- expected offsets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_third_record_of_a_batch_may_expect_its_offset(codec: int) -> None:
    log = new_log(conditional=True)
    appended(log, with_headers((), (), ((EXPECTED_OFFSET, b"2"),), codec=codec))
    assert log.next_offset == 3
    with pytest.raises(PositionRefused) as refused:
        appended(log, with_headers((), (), ((EXPECTED_OFFSET, b"2"),), codec=codec))
    text = "CAS_WRITE_EXCEPTION 525 expected=2 current=3: record 2 of the batch would get offset 5"
    assert str(refused.value) == text
    assert refused.value.current == SN(Dlsn(0, 0, 2), -1, 2)
    assert not refused.value.may_hold
    assert log.next_offset == 3


def test_all_expected_offsets_of_a_batch_must_match() -> None:
    log = new_log(conditional=True)
    one, two, far = (((EXPECTED_OFFSET, b"%d" % offset),) for offset in (0, 1, 9))
    for records in ((one, far), (far, two), (two, one)):
        with pytest.raises(PositionRefused) as refused:
            appended(log, with_headers(*records))
        assert not refused.value.may_hold, "they contradict each other, or the log is beyond them"
    with pytest.raises(PositionRefused) as refused:
        appended(log, with_headers(far))
    assert refused.value.may_hold
    appended(log, with_headers(one, two))


def test_a_topic_without_the_config_takes_the_headers_for_those_of_the_application() -> None:
    log = new_log()
    appended(log, expecting(17))
    appended(log, with_headers(((EXPECTED_OFFSET, b"no number"), (TRANSACTION_ID, b"-1"), (FENCING_TOKEN, b""))))
    assert log.sn == SN(Dlsn(0, 1, 0), -1, 1)


def test_the_call_and_the_records_may_both_have_terms() -> None:
    log = new_log(conditional=True)
    with pytest.raises(PositionRefused, match="does not end as expected"):
        appended(log, expecting(0), Terms(SN(sequence_id=3)))
    with pytest.raises(PositionRefused, match="CAS_WRITE_EXCEPTION"):
        appended(log, expecting(3), Terms(EMPTY))
    appended(log, expecting(0), Terms(EMPTY))


def test_the_header_is_a_condition_behind_a_roll_and_a_recompression(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(conditional=True, segment_bytes=200, codec=Codec.LZ4)
        sent = [act.send_batch(partition, expecting(0))]
        sent += [act.send_batch(partition, expecting(number)) for number in range(1, 9)]
        late = act.send_batch(partition, expecting(4))
        assert [(await answer.wait()).error for answer in sent] == [ErrorCode.NONE] * 9
        outcome = await late.wait()
        assert outcome.error == ErrorCode.INVALID_RECORD
        assert outcome.text.startswith("CAS_WRITE_EXCEPTION 525 expected=4 current=9")
        assert len(partition.segments) > 2

    play(body)


def test_a_long_batch_is_searched_in_a_thread_and_judged_in_its_turn(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(conditional=True)
        mark = ((EXPECTED_OFFSET, b"0"),)
        long = with_headers(mark, *[()] * 5_000)
        first, second = act.send_batch(partition, long), act.send_batch(partition, long)
        behind = act.send_batch(partition, expecting(5_001))
        assert (await first.wait()).error == ErrorCode.NONE
        assert (await second.wait()).error == ErrorCode.INVALID_RECORD
        assert (await behind.wait()).base_offset == 5_001

    play(body)


# --- transaction ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_transaction_ids_never_fall_and_an_equal_one_is_taken(codec: int) -> None:
    log = new_log(conditional=True)
    appended(log, with_id(0, codec=codec))
    appended(log, with_id(7, codec=codec))
    appended(log, with_id(7, codec=codec))
    with pytest.raises(TransactionRefused, match="TRANSACTION_OUT_OF_ORDER 513 given=6 current=7") as refused:
        appended(log, with_id(6, codec=codec))
    assert refused.value.current == log.sn == SN(Dlsn(0, 2, 0), 7, 2)
    assert not refused.value.may_hold
    low_and_high = with_headers(((TRANSACTION_ID, b"6"),), ((TRANSACTION_ID, b"9"),), codec=codec)
    with pytest.raises(TransactionRefused, match="given=6 current=7"):
        appended(log, low_and_high)
    appended(log, with_headers(()), Terms(SN(transaction_id=7)))
    assert log.sn == SN(Dlsn(0, 3, 0), 7, 3)
    with pytest.raises(PositionRefused):
        appended(log, with_headers(()), Terms(SN(transaction_id=8)))


def test_headers_get_longer_with_the_first_transaction_id_and_not_before() -> None:
    ledger = Ledger(new_log(conditional=True))
    sizes = []
    for batch in (with_headers(()), with_id(3), with_headers(())):
        ledger.append(memoryview(batch))
        header, body = unpack_entry(memoryview(ledger.entries[-1]))
        assert body[16:] == batch[16:]
        sizes.append((ledger.entries[-1][0], header.transaction_id))
    assert sizes == [(1, -1), (2, 3), (2, 3)]
    for sequence in range(2):
        ledger.append(memoryview(with_headers((), producer_id=9, producer_epoch=0, base_sequence=sequence)))
        ledger.entries.append(b"".join(ledger.log.snapshot(len(ledger.entries))))
        assert ledger.reopened().segment_bytes == ledger.log.segment_bytes


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("producer", [{}, {"producer_id": 9, "producer_epoch": 0}], ids=["plain", "numbered"])
@pytest.mark.parametrize(("end", "settings"), ENDS)
def test_the_last_transaction_id_stays_known_when_its_record_is_gone(
    play: Play, end: Callable[..., Any], settings: dict[str, int], producer: dict[str, int], power_lost: bool
) -> None:
    async def written(act: Any) -> None:
        partition = await act.partition(conditional=True, **settings)
        for number in range(3):
            sequence = {"base_sequence": number} if producer else {}
            await act.append_batch(partition, with_id(10 + number, at=act.clock.wall_ms(), **producer, **sequence))
        await end(act, partition)
        assert (await sn_now(partition)).transaction_id == 12

    async def claimed(act: Any) -> None:
        partition = await act.partition(conditional=True, **settings)
        assert (await sn_now(partition)).transaction_id == 12
        assert (await act.send_batch(partition, with_id(11)).wait()).error == ErrorCode.INVALID_RECORD
        other = await act.partition(conditional=True, **settings)
        assert (await sn_now(other)).transaction_id == 12
        await act.append_batch(other, with_id(12, at=act.clock.wall_ms()))
        await act.clock.sleep(1)

    async def claimed_again(act: Any) -> None:
        partition = await act.partition(conditional=True, **settings)
        assert (await sn_now(partition))[1:] == (12, 3)

    play(written, claimed, claimed_again, power_lost=power_lost)


def test_the_transaction_id_of_a_damaged_record_is_known_from_a_later_entry(play: Play) -> None:
    async def written(act: Any) -> None:
        partition = await act.partition(conditional=True)
        await act.append_batch(partition, with_id(7))
        await act.append_batch(partition, with_id(8))
        assert await fence(act, partition, b"w") is None
        await act.clock.sleep(1)
        act.damage(partition, 1)

    async def claimed(act: Any) -> None:
        partition = await act.partition(conditional=True)
        assert await sn_now(partition) == SN(None, 8, 1)
        assert (await act.send_batch(partition, with_id(7)).wait()).error == ErrorCode.INVALID_RECORD

    play(written, claimed)


# --- fencing tokens -------------------------------------------------------------------------------------------------


async def fence(act: Any, partition: Partition, new_token: bytes, **terms: Any) -> type[TermsRefused] | None:
    """Fences a partition; returns the kind of the refusal, None if it was fenced."""
    asked = Terms(terms.get("expected"), terms.get("token"), new_token)
    outcome = await act.send_batch(partition, b"", asked).wait()
    if asked.refused is not None:
        return type(asked.refused)
    assert outcome.error == ErrorCode.NONE, outcome
    return None


async def is_taken(act: Any, partition: Partition, token: bytes | None) -> bool:
    """Whether a write with the token is written."""
    terms = Terms(None, token)
    outcome = await act.send_batch(partition, act.batch("value"), terms).wait()
    assert outcome.error == ErrorCode.NONE or isinstance(terms.refused, TokenRefused)
    return bool(outcome.error == ErrorCode.NONE)


def test_only_a_write_with_the_token_of_the_partition_or_without_one_is_taken(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        assert not await is_taken(act, partition, b"first")
        assert await fence(act, partition, b"first") is None
        assert await is_taken(act, partition, b"first")
        assert await fence(act, partition, b"second") is None
        assert not await is_taken(act, partition, b"first")
        assert await is_taken(act, partition, b"second")
        assert await is_taken(act, partition, None)
        assert await fence(act, partition, b"") is None
        assert not await is_taken(act, partition, b"second")
        assert await is_taken(act, partition, None)
        assert (await sn_now(partition)).sequence_id == 3

    play(body)


def test_a_fence_may_expect_an_sn_and_the_present_token_and_can_be_repeated(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        assert await fence(act, partition, b"a", expected=EMPTY) is None
        first = await write(act, partition, "0")
        assert first == SN(Dlsn(0, 1, 0), -1, 0), "a fence is an entry and no record"
        assert await fence(act, partition, b"b", expected=EMPTY) is PositionRefused
        assert await fence(act, partition, b"b", token=b"x") is TokenRefused
        assert await fence(act, partition, b"b", expected=first, token=b"a") is None
        entries = partition.segments[-1].ledger.next_entry
        assert await fence(act, partition, b"b", expected=EMPTY, token=b"a") is None, "it is a repeat"
        assert partition.segments[-1].ledger.next_entry == entries

    play(body)


def test_the_header_of_a_record_is_a_token_too(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(conditional=True)
        await fence(act, partition, b"w")
        mine, theirs = (with_headers((), ((FENCING_TOKEN, token),)) for token in (b"w", b"x"))
        await act.append_batch(partition, mine)
        outcome = await act.send_batch(partition, theirs).wait()
        assert outcome.error == ErrorCode.INVALID_RECORD
        assert outcome.text.startswith("TOKEN_MISMATCH given='x' current='w'")

    play(body)


def test_a_fence_is_answered_once_it_is_durable_and_refuses_nothing_before(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await fence(act, partition, b"old")
        held = HeldUp(partition, monkeypatch)
        fenced = act.send_batch(partition, b"", Terms(None, None, b"new"))
        repeated = act.send_batch(partition, b"", Terms(None, None, b"new"))
        terms = Terms(None, b"old")
        refused = act.send_batch(partition, act.batch("old"), terms)
        await act.clock.sleep(1)
        assert fenced.outcome is repeated.outcome is refused.outcome is None
        held.go_on()
        assert (await fenced.wait()).error == (await repeated.wait()).error == ErrorCode.NONE
        assert (await refused.wait()).error == ErrorCode.INVALID_RECORD
        assert isinstance(terms.refused, TokenRefused)
        assert terms.refused.token == b"new"

    play(body)


def test_a_fence_that_fails_takes_its_refusals_with_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await fence(act, partition, b"old")
        held = HeldUp(partition, monkeypatch)
        fenced = act.send_batch(partition, b"", Terms(None, None, b"new"))
        refused = act.send_batch(partition, act.batch("old"), Terms(None, b"old"))
        await act.clock.sleep(1)
        held.go_on(LedgerFailed("the disk is gone", outcome_unknown=True))
        assert (await fenced.wait()).error == (await refused.wait()).error == ErrorCode.KAFKA_STORAGE_ERROR

    play(body)


def test_a_replaced_leader_does_not_refuse_the_token_of_the_next_one(play: Play) -> None:
    async def body(act: Any) -> None:
        before, after = await act.partition(policy=CLUSTER), await act.partition(policy=CLUSTER)
        assert await fence(act, before, b"old") is None
        assert await after.opened() is not None
        assert await fence(act, after, b"new", token=b"old") is None
        outcome = await act.send_batch(before, act.batch("new"), Terms(None, b"new")).wait()
        assert outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await is_taken(act, after, b"new")

    play(body)


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("producer", [{}, {"producer_id": 9}], ids=["plain", "numbered"])
@pytest.mark.parametrize(("end", "settings"), ENDS)
def test_a_token_survives_rolls_claims_restarts_and_trimming(
    play: Play, end: Callable[..., Any], settings: dict[str, int], producer: dict[str, int], power_lost: bool
) -> None:
    async def written(act: Any) -> None:
        partition = await act.partition(**settings)
        assert await fence(act, partition, b"w") is None
        for number in range(3):
            sequence = {"base_sequence": 2 * number} if producer else {}
            batch = act.batch(f"{number}", "more", at=act.clock.wall_ms(), **producer, **sequence)
            await act.append_batch(partition, batch)
        await end(act, partition)
        await act.clock.sleep(1)

    async def claimed(act: Any) -> None:
        for _ in range(2):
            partition = await act.partition(**settings)
            last = await sn_now(partition)
            assert not await is_taken(act, partition, b"x")
            assert await refusal(act, partition, EMPTY) == last
        assert await is_taken(act, partition, b"w")
        await act.clock.sleep(1)

    async def claimed_again(act: Any) -> None:
        partition = await act.partition(**settings)
        assert not await is_taken(act, partition, b"x")
        assert await is_taken(act, partition, b"w")

    play(written, claimed, claimed_again, power_lost=power_lost)


def test_a_token_is_in_every_snapshot_and_keeps_its_entry_from_trimming(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)

    async def written(act: Any) -> None:
        partition = await act.partition()
        await fence(act, partition, b"w")
        for number in range(20):
            await act.append(partition, f"{number}")
        await partition.delete_before(partition.log.high_watermark)
        ledger = partition.segments[-1].ledger
        assert ledger.start_entry > 10
        with partition.segments[-1].view() as view:
            kinds = {
                partition.segments[-1].header(view, entry).kind
                for entry in range(ledger.start_entry, ledger.last_add_confirmed + 1)
            }
        assert EntryKind.PRODUCERS in kinds

    async def claimed(act: Any) -> None:
        partition = await act.partition()
        assert not await is_taken(act, partition, b"x")

    play(written, claimed)


def test_batches_behind_a_fenced_one_of_the_same_producer_are_not_written(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await fence(act, partition, b"w")
        numbered = [act.batch(f"{number}", producer_id=9, base_sequence=number) for number in range(2)]
        sent = [act.send_batch(partition, batch, Terms(None, b"x")) for batch in numbered]
        assert (await sent[0].wait()).error == ErrorCode.INVALID_RECORD
        assert (await sent[1].wait()).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        answer, _ = send(act, partition, "0", None, producer_id=9, producer_epoch=1, base_sequence=0)
        assert (await answer.wait()).error == ErrorCode.NONE

    play(body)


def test_a_fence_waits_for_its_turn_among_writes() -> None:
    log = new_log()
    log.append(batch_of(), NOW, 0, Terms(None, None))
    assert log.fence(Terms(SN(sequence_id=0), None, b"w"), 1) is not None
    with pytest.raises(TokenRefused):
        log.append(batch_of(), NOW, 2, Terms(None, b"x"))


# --- the end of the log ---------------------------------------------------------------------------------------------


def look(act: Any, partition: Partition) -> tuple[Any, Terms]:
    terms = Terms(looks=True)
    return act.send_batch(partition, b"", terms), terms


def test_a_question_for_the_end_is_answered_in_its_turn_once_all_before_it_is_durable(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        answer, terms = look(act, partition)
        assert (await answer.wait()).error == ErrorCode.NONE
        assert terms.end is not None
        assert (terms.end.sn, terms.end.token) == (EMPTY, b"")
        held = HeldUp(partition, monkeypatch)
        written = act.send_batch(partition, act.batch("0"))
        fenced = act.send_batch(partition, b"", Terms(None, None, b"w"))
        answer, terms = look(act, partition)
        await act.clock.sleep(1)
        assert written.outcome is fenced.outcome is answer.outcome is None
        held.go_on()
        assert (await answer.wait()).error == ErrorCode.NONE
        assert terms.end is not None
        assert (terms.end.sn, terms.end.token) == (SN(Dlsn(0, 0, 0), -1, 0), b"w")

    play(body)


def test_the_end_after_a_failed_write_is_that_of_the_log_that_was_opened_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await write(act, partition, "0")
        held = HeldUp(partition, monkeypatch)
        lost = act.send_batch(partition, act.batch("1"))
        fenced = act.send_batch(partition, b"", Terms(None, None, b"w"))
        before, _ = look(act, partition)
        await act.clock.sleep(1)
        held.go_on(LedgerFailed("the disk is gone", outcome_unknown=True))
        for answer in (lost, fenced, before):
            assert (await answer.wait()).error == ErrorCode.KAFKA_STORAGE_ERROR
        answer, terms = look(act, partition)
        assert (await answer.wait()).error == ErrorCode.NONE
        assert terms.end is not None
        assert (terms.end.sn, terms.end.token) == (SN(Dlsn(0, 1, 0), -1, 1), b"w"), "both were stored after all"

    play(body)


@pytest.mark.parametrize("certain", [True, False])
def test_the_end_is_answered_only_by_a_broker_that_certainly_leads(
    play: Play, monkeypatch: pytest.MonkeyPatch, certain: bool
) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(policy=CLUSTER)
        await write(act, partition, "0")
        asked: list[Callable[[bool], None]] = []
        monkeypatch.setattr(partition, "confirm", asked.append)
        answer, _ = look(act, partition)
        await act.clock.sleep(1)
        assert answer.outcome is None
        asked[0](certain)
        expected = ErrorCode.NONE if certain else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await answer.wait()).error == expected

    play(body)
