"""Reading a partition on real stores (numbers: invariants of `log_reader`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
from crc32c import crc32c
from turns import at_once

from gnomon.bookie.ledgers.catalog import LocalViews, read_from_memory
from gnomon.log import log_reader
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import NO_ABORT, VERSION, EntryKind, LeaderEpoch, Offset, UnknownEntry, pack_header
from gnomon.log.log_positions import LogPositions
from gnomon.wire.kafka.batch import HEADER, parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

Play = Callable[..., None]


def test_search_by_time_goes_across_segments(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for number, at in enumerate([1000, 3000, 2000, 5000, 4000]):
            await act.append(partition, f"{number}" * 40, at=at)
        assert len(partition.segments) == 5
        for wanted, found in [(0, 0), (1000, 0), (1001, 1), (2500, 1), (3001, 3), (5000, 3), (5001, None)]:
            place = await partition.offset_for_timestamp(wanted, at_once)
            assert (place[0] if place is not None else None) == found, wanted
        assert await partition.max_timestamp_offset(at_once) == (3, 5000, 0)

    play(body)


def test_search_by_time_finds_no_record_before_a_cut(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        for number, at in enumerate([9000, 1000, 2000]):
            await act.append(partition, f"{number}", at=at)
        assert await partition.max_timestamp_offset(at_once) == (0, 9000, 0)
        await partition.delete_before(Offset(1))
        assert await partition.max_timestamp_offset(at_once) == (2, 2000, 0)
        assert await partition.offset_for_timestamp(1500, at_once) == (2, 2000, 0)
        await partition.delete_before(Offset(3))
        assert await partition.max_timestamp_offset(at_once) is None
        assert await partition.offset_for_timestamp(0, at_once) is None

    play(body)


def test_a_search_for_the_largest_timestamp_ignores_the_deleted_records_of_a_batch(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        records = [Record(number, timestamp_delta=-number, value=b"v") for number in range(3)]
        await act.append_batch(partition, build_batch(records, base_timestamp=5000))
        assert await partition.max_timestamp_offset(at_once) == (0, 5000, 0)
        await partition.delete_before(Offset(1))
        assert await partition.max_timestamp_offset(at_once) == (1, 4999, 0)
        await act.append(partition, "later", at=4998)
        assert await partition.max_timestamp_offset(at_once) == (1, 4999, 0)
        await partition.delete_before(Offset(2))
        assert await partition.max_timestamp_offset(at_once) == (2, 4998, 0)

    play(body)


def test_a_search_by_time_ends_although_the_log_is_taken_over_meanwhile(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        old = await act.partition(segment_bytes=300)
        for number, at in enumerate([9000, 1000, 6000]):
            await act.append(old, f"{number}" * 40, at=at)
        assert len(old.segments) == 2
        await old.delete_before(Offset(1))  # the largest time of the first segment is that of a deleted record
        new = await act.partition()
        await new.opened()
        refused = act.send(old, "fenced")

        async def slow(operation: Callable[[], Any]) -> Any:
            found = await read_from_memory(operation)
            await refused.wait()
            return found

        monkeypatch.setattr(log_reader, "read_from_memory", slow)
        assert await old.offset_for_timestamp(5000, at_once) == (2, 6000, 0)
        assert old.open_log() is None

    play(body)


def test_search_by_time_begins_in_the_middle_of_a_batch_that_was_cut(play: Play) -> None:  # invariant 3
    async def body(act: Any) -> None:
        partition = await act.partition()
        records = [Record(number, delta, value=b"v") for number, delta in enumerate([0, 500, 100, 300])]
        await act.append_batch(partition, build_batch(records, base_timestamp=1000))
        await partition.delete_before(Offset(2))
        assert await partition.offset_for_timestamp(1000, at_once) == (2, 1100, 0)
        assert await partition.offset_for_timestamp(1200, at_once) == (3, 1300, 0)
        assert await partition.offset_for_timestamp(1400, at_once) is None

    play(body)


def test_a_search_yields_after_each_batch_that_it_decompressed(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        for _ in range(20):
            header = parse_batch(batch := memoryview(act.batch("v", at=1000)))
            changed = HEADER.pack(*header._replace(max_timestamp=9000)) + bytes(batch[HEADER.size :])
            await act.append_batch(partition, changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:])
        assert await _turns(partition.offset_for_timestamp, 5000, at_once) >= 20

    play(body)


def test_a_search_yields_after_many_headers(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "ENTRIES_PER_TURN", 10)

    async def body(act: Any) -> None:
        partition = await act.partition()
        for _ in range(100):
            await act.append(partition, "v", "w", at=1000)
        await partition.delete_before(Offset(1))
        assert await _turns(partition.max_timestamp_offset, at_once) >= 10
        assert await partition.max_timestamp_offset(at_once) == (1, 1000, 0)

    play(body)


async def _turns(search: Callable[..., Any], *wanted: Any) -> int:
    """The number of turns of other tasks during a search."""
    turns, over = 0, False

    async def count() -> None:
        nonlocal turns
        while not over:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        await search(*wanted)
        over = True
    return turns


class Thread:
    """Notes the batches that it reads."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    async def __call__(self, batch: memoryview, bytes_max: int, call: Callable[[memoryview, int], Any], /) -> Any:
        await trio.lowlevel.checkpoint()
        self.batches.append(bytes(batch))
        return call(batch, bytes_max)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("bound", ["RECORDS_AT_ONCE", "BYTES_AT_ONCE"])
def test_a_long_batch_is_searched_in_a_thread_and_a_short_one_within_the_turn(
    play: Play, monkeypatch: pytest.MonkeyPatch, bound: str, codec: Codec
) -> None:
    """2."""
    monkeypatch.setattr(log_reader, bound, {"RECORDS_AT_ONCE": 5, "BYTES_AT_ONCE": 1000}[bound])

    async def body(act: Any) -> None:
        partition = await act.partition()
        for base, count in ((1000, 5), (2000, 50)):
            records = [Record(number, number, value=bytes(100)) for number in range(count)]
            await act.append_batch(partition, build_batch(records, base_timestamp=base, compression=codec))
        thread = Thread()
        assert await partition.offset_for_timestamp(1003, thread) == (3, 1003, 0)
        assert not thread.batches
        assert await partition.offset_for_timestamp(2040, thread) == (45, 2040, 0)
        assert await partition.max_timestamp_offset(thread) == (54, 2049, 0)
        await partition.delete_before(Offset(10))
        assert await partition.max_timestamp_offset(thread) == (54, 2049, 0)
        assert {parse_batch(memoryview(batch)).base_offset for batch in thread.batches} == {5}
        assert len(thread.batches) == 4

    play(body)


def test_a_batch_of_too_many_records_is_found_at_its_first_offset(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "RECORDS_AT_ONCE", 2)
    monkeypatch.setattr(log_reader, "RECORDS_MAX", 3)

    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "v", at=1000)
        records = [Record(number, number, value=b"v") for number in range(5)]
        await act.append_batch(partition, build_batch(records, base_timestamp=2000))
        assert await partition.offset_for_timestamp(2002, at_once) == (3, 2002, 0)
        assert await partition.offset_for_timestamp(2003, at_once) == (1, 2004, 0)

    play(body)


def test_the_earliest_record_is_found_with_its_own_leader_epoch(play: Play) -> None:
    async def old(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        assert await partition.earliest() == (0, 0)
        await act.append(partition, "a", "b")
        assert await partition.earliest() == (0, 0)

    async def new(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        await act.append(partition, "c")
        assert await partition.earliest() == (0, 0)
        await partition.delete_before(Offset(1))
        assert await partition.earliest() == (1, 0)
        await partition.delete_before(Offset(2))
        assert await partition.earliest() == (2, 1)
        await partition.delete_before(Offset(3))
        assert await partition.earliest() == (3, 1)

    play(old, new)


def test_epochs_end_where_the_next_one_begins(play: Play) -> None:  # KIP-279
    async def act_of(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for _ in range(3):
            await act.append(partition, "x" * 40)

    async def last(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        ends = [await partition.end_of_epoch(LeaderEpoch(epoch)) for epoch in range(4)]
        assert ends == [(0, 3), (1, 6), (2, 6), (-1, -1)]
        await partition.delete_before(Offset(4))
        assert await partition.end_of_epoch(LeaderEpoch(0)) == (0, 4)
        assert partition.check_epoch(-1) == partition.check_epoch(2) == ErrorCode.NONE
        assert partition.check_epoch(1) == ErrorCode.FENCED_LEADER_EPOCH
        assert partition.check_epoch(3) == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(act_of, act_of, last)


def test_a_damaged_batch_hides_no_other_and_is_logged_once(play: Play) -> None:  # segment, invariant 3
    def fetch(partition: Any, offset: int, bytes_max: int = 1 << 20) -> tuple[list[int], ErrorCode]:
        with LocalViews() as views:
            chunks, _, code = partition.read(Offset(offset), bytes_max, True, views)
            return [parse_batch(chunk).base_offset for chunk in chunks], code

    async def body(act: Any) -> None:
        partition = await act.partition()
        for number in range(9):
            await act.append(partition, f"{number}")
        for entry in (4, 6, 7):
            act.damage(partition, entry)
        await partition.opened()

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        found = {offset: fetch(partition, offset) for offset in range(9)}
        for offset in range(4):
            assert found[offset] == (list(range(offset, 4)), ErrorCode.NONE)
        assert found[5] == ([5], ErrorCode.NONE)
        assert found[8] == ([8], ErrorCode.NONE)
        for offset in (4, 6, 7):
            assert found[offset] == ([], ErrorCode.KAFKA_STORAGE_ERROR)
        for _ in range(3):
            assert fetch(partition, 7) == ([], ErrorCode.KAFKA_STORAGE_ERROR)
        assert [(event, fields["offset"]) for event, fields in act.logger.events] == [
            ("records_not_readable", 4),
            ("records_not_readable", 6),
        ]

    play(body, reopened)


UNKNOWN = {"MARKER": (VERSION, EntryKind.MARKER), "kind 77": (VERSION, 77), "version 3": (3, EntryKind.BATCH)}


async def append_unknown(partition: Any, name: str) -> None:
    """Appends an entry that this gnomon does not read, after the last entry that the log knows."""
    version, kind = UNKNOWN[name]
    end = partition.log.next_offset
    header = pack_header(kind, LeaderEpoch(0), end, Offset(end + 1), end, 10_000, 0, NO_ABORT)
    stored = trio.Event()
    partition.segments[-1].ledger.append((bytes([version]) + header[1:], b"body"), lambda *_: stored.set())
    await stored.wait()


@pytest.mark.parametrize("name", UNKNOWN)
def test_every_reader_stops_at_an_entry_that_this_gnomon_does_not_read(play: Play, name: str) -> None:  # entry, 5
    def fetch(partition: Any, offset: int) -> tuple[int, ErrorCode]:
        with LocalViews() as views:
            chunks, _, code = partition.read(Offset(offset), 1 << 20, True, views)
            return len(chunks), code

    async def body(act: Any) -> None:
        partition = await act.partition()
        for number, at in enumerate([1000, 2000, 3000, 4000]):
            await act.append(partition, f"{number}", at=at)
        await append_unknown(partition, name)
        partition.log.next_offset = Offset(5)
        for number, at in enumerate([5000, 6000, 7000]):
            await act.append(partition, f"{number}", at=at)
        assert fetch(partition, 0) == (4, ErrorCode.NONE)
        assert fetch(partition, 4) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
        assert fetch(partition, 6) == (2, ErrorCode.NONE)
        ((event, fields),) = act.logger.events
        assert (event, fields["next"]) == (
            "records_not_readable",
            "upgrade gnomon to the version that wrote the entry",
        )
        assert re.match(r"entry 4 of ledger 'topics/\w+/0/0+' (is of kind|has a header of version) ", fields["reason"])
        positions = LogPositions(partition.log, partition)
        with pytest.raises(UnknownEntry, match="entry 4 of"), LocalViews() as views:
            positions.batch(Offset(4), views)
        with pytest.raises(UnknownEntry, match="entry 4 of"):
            await positions.dlsn_of(Offset(4))
        with pytest.raises(UnknownEntry, match="entry 4 of"):
            await positions.offset_of(Dlsn(0, 5, 0))
        with pytest.raises(UnknownEntry, match="entry 4 of"):
            await partition.offset_for_timestamp(4500, at_once)

    play(body)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_partition_that_ends_in_an_entry_that_this_gnomon_does_not_read_is_not_opened(play: Play, name: str) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "a")
        await append_unknown(partition, name)

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        assert (await act.append(partition, "next")).error == ErrorCode.KAFKA_STORAGE_ERROR
        ((event, fields),) = act.logger.events
        assert event == "partition_not_opened"
        assert "entry 1 of ledger" in fields["reason"]
        assert "upgrade gnomon" in fields["reason"]

    play(body, reopened)


def test_records_before_a_damaged_batch_and_the_batch_can_be_deleted(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        for number in range(6):
            await act.append(partition, f"{number}")
        act.damage(partition, 2)
        assert await partition.delete_before(Offset(3)) == 3
        assert await act.read(partition) == [(3, "3"), (4, "4"), (5, "5")]

    play(body)


def test_the_end_of_an_epoch_is_right_although_segments_are_dropped_during_the_search(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        for _ in range(5):  # a segment an append, six to an epoch
            partition = await act.partition(segment_bytes=150)
            for number in range(6):
                await act.append(partition, f"{number}" * 100)
        ended = await partition.end_of_epoch(LeaderEpoch(2))
        asked = 0

        async def read_while_segments_go(find: Callable[[], Any]) -> Any:
            nonlocal asked
            asked += 1
            if asked == 12:
                monkeypatch.setattr(log_reader, "read_from_memory", read_from_memory)
                await partition.delete_before(Offset(ended[1] - 1))
                monkeypatch.setattr(log_reader, "read_from_memory", read_while_segments_go)
            return await read_from_memory(find)

        monkeypatch.setattr(log_reader, "read_from_memory", read_while_segments_go)
        assert await partition.end_of_epoch(LeaderEpoch(2)) == ended
        assert asked > 12

    play(body)
