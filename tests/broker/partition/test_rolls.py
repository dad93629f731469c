"""Rolls and deletions of segments while the metadata service does not answer, or with an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from gnomon.bookie.errors import LedgerFailed
from gnomon.bookie.record import ledger_key
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.state import PartitionState
from gnomon.broker.partition.writable import ANSWER_SECONDS, ROLL_RETRY_SECONDS
from gnomon.metadata.client import KeyValue, Metadata, MetadataUnavailable, TxnOutcome
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]
LOST = ("before it was applied", "after it was applied", "and it is applied later")


class Link:
    """The link to the metadata: calls may stay unanswered, and their writes may be applied nevertheless, also later."""

    def __init__(self, act: Any, monkeypatch: pytest.MonkeyPatch, silent: bool = False) -> None:
        self.away = False
        self.lose_next_txn: str | None = None
        self.late = trio.Event()
        """Set by a test to apply the write that was delayed."""
        self.late_results: list[TxnOutcome] = []
        self.asked_while_away = 0
        self._nursery = act.nursery
        self._silent = silent
        self._inner: Metadata = act.stores.metadata
        monkeypatch.setattr(act.metadata, "get", self.get)
        monkeypatch.setattr(act.metadata, "txn", self.txn)

    async def _pass(self) -> None:
        if self.away:
            self.asked_while_away += 1
            if self._silent:
                await trio.sleep_forever()
            raise MetadataUnavailable("the metadata is away")

    async def get(self, key: str) -> KeyValue | None:
        await self._pass()
        return await self._inner.get(key)

    async def txn(self, compare: Sequence[Any], then: Sequence[Any], otherwise: Sequence[Any] = ()) -> TxnOutcome:
        await self._pass()
        lost, self.lose_next_txn = self.lose_next_txn, None
        if lost == LOST[2]:
            self._nursery.start_soon(self._apply_later, compare, then)
        elif lost != LOST[0]:
            result = await self._inner.txn(compare, then, otherwise)
        if lost is not None:
            raise MetadataUnavailable("what became of it is unknown")
        return result

    async def _apply_later(self, compare: Sequence[Any], then: Sequence[Any]) -> None:
        await self.late.wait()
        self.late_results.append(await self._inner.txn(compare, then))


def bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


async def chain_of(act: Any) -> list[int]:
    """The base offsets of the ledgers that the metadata knows."""
    found = await act.stores.metadata.range(ledger_key("topics/"))
    return [int(item.key.rpartition("/")[2]) for item in found.items]


@pytest.mark.parametrize("silent", [False, True])
def test_a_segment_overruns_while_the_metadata_service_is_away_and_rolls_when_it_is_back(
    play: Play, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:  # `writable` invariant 4
    values = [(offset, f"{offset}" * 60) for offset in range(9)]

    async def body(act: Any) -> None:
        link = Link(act, monkeypatch, silent)
        partition = await act.partition(segment_bytes=300)
        for number in range(2):
            assert (await act.append(partition, values[number][1])).error == ErrorCode.NONE
        link.away = True
        began = act.clock.monotonic()
        for number in range(2, 7):
            produced = await act.append(partition, values[number][1])
            assert (produced.error, produced.base_offset) == (ErrorCode.NONE, number)
        assert act.clock.monotonic() - began < ANSWER_SECONDS + 0.5, "only the first one waits, and not for long"
        assert bases(partition) == [0]
        assert await act.read(partition) == values[:7]
        if silent:
            return  # the call never ends by itself; the crash ends it
        await act.clock.sleep(3 * ROLL_RETRY_SECONDS)
        assert 1 < link.asked_while_away < 10
        link.away = False
        await act.clock.sleep(ROLL_RETRY_SECONDS + 1)
        assert bases(partition) == [0, 7], "an idle partition rolls too"
        for number in range(7, 9):
            assert (await act.append(partition, values[number][1])).base_offset == number
        assert await act.read(partition) == values
        assert act.logger.events == []

    async def reopened(act: Any) -> None:
        partition = await act.partition(segment_bytes=300)
        assert await act.read(partition) == values[: 7 if silent else 9]
        assert bases(partition) == [0] if silent else [0, 7]

    play(body, reopened)


def test_a_segment_that_cannot_roll_overruns_up_to_a_bound_and_then_waits_for_the_metadata_service(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # `writable` invariant 4
    monkeypatch.setattr(partition_log, "OVERRUN_BYTES_MAX", 400)

    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_bytes=300)
        taken = 0
        outcome = await act.append(partition, "x" * 60, producer_id=5, base_sequence=0)
        link.away = True
        while outcome.error == ErrorCode.NONE:
            taken += 1
            behind = act.send(partition, "x" * 60, producer_id=5, base_sequence=taken)
            outcome = await behind.wait()
        assert outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is tried again by its client"
        assert partition.log is not None
        assert 600 < partition.log.segment_bytes <= 700
        assert (await act.append(partition, "x", producer_id=5, base_sequence=taken + 1)).error != ErrorCode.NONE
        assert len(await act.read(partition)) == taken
        link.away = False
        await act.clock.sleep(ROLL_RETRY_SECONDS + 1)
        again = await act.append(partition, "x" * 60, producer_id=5, base_sequence=taken)
        assert (again.error, again.base_offset) == (ErrorCode.NONE, taken)
        assert bases(partition) == await chain_of(act) == [0, taken]
        assert len(await act.read(partition)) == taken + 1

    play(body)


def test_a_segment_at_its_bound_rolls_at_once_if_the_metadata_service_is_back(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # `writable` invariant 4
    monkeypatch.setattr(partition_log, "OVERRUN_BYTES_MAX", 200)

    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_bytes=300)
        for number in range(3):
            assert (await act.append(partition, "x" * 60)).base_offset == number
            link.away = True
        link.away = False
        assert (await act.append(partition, "x" * 60)).base_offset == 3
        assert bases(partition) == [0, 3]
        await act.clock.sleep(2 * ROLL_RETRY_SECONDS)
        assert bases(partition) == [0, 3]
        for number in range(4, 8):
            assert (await act.append(partition, "x" * 60)).base_offset == number
        assert bases(partition) == [0, 3, 5, 7], "the next ones end as usual"

    play(body)


@pytest.mark.parametrize("lost", LOST)
def test_nothing_is_appended_to_a_segment_once_the_outcome_of_its_roll_is_unknown(
    play: Play, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:  # `writable` invariant 4
    values = [(offset, f"{offset}" * 60) for offset in range(5)]

    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_bytes=300)
        for number in range(2):
            await act.append(partition, values[number][1])
        first = partition.segments[0].ledger
        appended = first.next_entry
        link.lose_next_txn = lost
        third = await act.append(partition, values[2][1])
        assert (third.error, third.base_offset) == (ErrorCode.NONE, 2), "it waited until the chain was opened anew"
        link.late.set()
        for number in range(3, 5):
            assert (await act.append(partition, values[number][1])).base_offset == number
        assert first.next_entry == appended, "the handle whose roll is unknown was written to"
        # The chain was claimed again without the next segment, so the late roll finds another version.
        assert [result.succeeded for result in link.late_results] == ([False] if lost == LOST[2] else [])
        assert bases(partition) == await chain_of(act)
        assert await act.read(partition) == values

    async def reopened(act: Any) -> None:
        assert await act.read(await act.partition(segment_bytes=300)) == values

    play(body, reopened)


def test_retention_postpones_the_roll_of_an_old_segment_and_appends_continue(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_ms=10_000)
        await act.append(partition, "old")
        await act.clock.sleep(11)
        link.away = True
        for _ in range(2):
            await partition.enforce_retention()
        assert bases(partition) == [0]
        assert (await act.append(partition, "new")).base_offset == 1
        link.away = False
        await act.clock.sleep(ROLL_RETRY_SECONDS + 1)
        assert bases(partition) == [0, 2]

    play(body)


@pytest.mark.parametrize("ended", [Partition.release, Partition.end])
def test_a_postponed_roll_is_dropped_when_the_partition_is_released_or_ends(
    play: Play, monkeypatch: pytest.MonkeyPatch, ended: Callable[[Partition], None]
) -> None:
    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_bytes=150)
        await act.append(partition, "x" * 60)
        link.away = True
        assert (await act.append(partition, "x" * 60)).error == ErrorCode.NONE
        ended(partition)
        await act.clock.sleep(ROLL_RETRY_SECONDS)
        asked = link.asked_while_away
        link.away = False
        await act.clock.sleep(3 * ROLL_RETRY_SECONDS)
        assert link.asked_while_away == asked
        assert await chain_of(act) == [0]

    play(body)


@pytest.mark.parametrize("lost", LOST[:2])
def test_segments_are_dropped_although_the_outcome_of_their_deletion_was_unknown_at_first(
    play: Play, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async def body(act: Any) -> None:
        link = Link(act, monkeypatch)
        partition = await act.partition(segment_bytes=150, retention_bytes=250)
        for number in range(5):
            await act.append(partition, f"{number}" * 60)
        before = await chain_of(act)
        link.lose_next_txn = lost
        with pytest.raises(MetadataUnavailable):
            await partition.enforce_retention()
        left = before if lost == LOST[0] else before[3:]
        assert await chain_of(act) == left
        assert bases(partition) == before, "it is not known whether they are gone"
        await act.append(partition, "5" * 60)
        await partition.enforce_retention()
        assert bases(partition) == await chain_of(act) == [4, 5]
        assert [offset for offset, _ in await act.read(partition)] == [4, 5]

    play(body)


@pytest.mark.parametrize("seed", range(2, 6))
def test_a_partition_is_opened_once_after_its_writer_failed_while_a_roll_waits(play: Play, seed: int) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=300)
        await partition.opened()
        first, second = act.send(partition, "a" * 100), act.send(partition, "b" * 250)  # the second has to roll
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        assert partition._state is PartitionState.ROLLING
        partition.segments[-1].ledger._appender._fail(LedgerFailed("too few bookies", outcome_unknown=True))
        woken = []

        async def wait(number: int) -> None:
            await partition.opened_to_write()
            woken.append(number)

        for number in range(5):
            act.nursery.start_soon(wait, number)
        assert (await first.wait()).error is not ErrorCode.NONE
        await second.wait()
        for number in range(10):
            assert (await act.append(partition, f"{number}")).error is ErrorCode.NONE
        await act.clock.sleep(100)
        assert sorted(woken) == list(range(5))
        assert partition.log.epoch == 1

    play(body, seed=seed)


def test_an_append_between_two_failures_of_one_turn_waits_for_one_opening(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        later = []

        class Eager:
            """A connection that has its next request at hand."""

            def appended(self, slot: int, outcome: Any) -> None:
                assert outcome.error
                later.append(act.send(partition, f"again {slot}"))

        for slot in range(2):
            partition.append(memoryview(act.batch("a")), Eager(), slot)
        await trio.lowlevel.checkpoint()
        partition.segments[-1].ledger._appender._fail(LedgerFailed("too few bookies", outcome_unknown=True))
        assert [(await one.wait()).error for one in later] == [ErrorCode.NONE, ErrorCode.NONE]
        await act.clock.sleep(2)
        assert partition.log.epoch == 1

    play(body)
