"""The segments of a partition: their ends, sizes, expiry and deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
import trio
from turns import turns_during

from gnomon.bookie.ledgers.catalog import EntryId, create_ledger, list_ledgers
from gnomon.bookie.record import ledger_key
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition import log as partition_log
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.trim import RetentionBound
from gnomon.broker.stores import BOOKIE_NAME
from gnomon.log.chains import PARTITIONS_PER_TURN, all_segments, ledgers_prefix
from gnomon.log.entry import EntryKind, Offset
from gnomon.log.segment_record import segment_name
from gnomon.log.topic import topic_key
from gnomon.metadata.client import Compare, Delete, DeletePrefix, InvalidRequest, Metadata, Operation, Put, TxnOutcome
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata
from gnomon.wire.kafka.errors import ErrorCode

Play = Callable[..., None]
TOPIC_ID = UUID(int=7)


async def _sealed(metadata: Metadata) -> list[tuple[UUID, int, list[tuple[int, int]]]]:
    return [found async for found in all_segments(metadata)]


def _bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


def test_a_segment_ends_by_its_age(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_ms=10_000)
        await act.append(partition, "old")
        await act.clock.sleep(11)
        await partition.enforce_retention()
        assert _bases(partition) == [0, 1]
        await act.append(partition, "new")
        await act.clock.sleep(11)
        await act.append(partition, "newer")
        assert _bases(partition) == [0, 1, 2]
        assert await act.read(partition) == [(0, "old"), (1, "new"), (2, "newer")]

    play(body)


def test_retention_by_time_drops_whole_segments_and_finally_all_of_them(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150, retention_ms=20_000)
        for number in range(4):
            await act.append(partition, str(number) * 40, at=act.clock.wall_ms())
            await act.clock.sleep(6)
        await partition.enforce_retention()
        assert [offset for offset, _ in await act.read(partition)] == [1, 2, 3]
        await act.clock.sleep(60)
        await partition.enforce_retention()
        assert await act.read(partition) == []
        assert partition.log is not None
        assert (partition.log.start_offset, partition.log.high_watermark) == (4, 4)
        assert (await act.append(partition, "next")).base_offset == 4

    async def reopened(act: Any) -> None:
        assert await act.read(await act.partition()) == [(4, "next")]

    play(body, reopened)


def test_retention_wakes_readers_only_when_it_dropped_a_segment(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150, retention_ms=20_000)
        for number in range(4):
            await act.append(partition, str(number) * 40, at=act.clock.wall_ms())
        await act.clock.sleep(15)
        await act.append(partition, "young" * 9, at=act.clock.wall_ms())
        await act.clock.sleep(10)

        async def all_of_it(end: Offset) -> RetentionBound:
            return RetentionBound(Offset(0), ())

        before = act.advances
        assert await partition.enforce_retention(all_of_it)
        assert act.advances == before
        assert await partition.enforce_retention()
        assert act.advances == before + 1
        assert [offset for offset, _ in await act.read(partition)] == [4]

    play(body)


def test_retention_by_size_keeps_at_least_the_configured_bytes(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=1000, retention_bytes=2500)
        for number in range(50):
            await act.append(partition, f"{number}" * 30)
        assert partition.log is not None
        await partition.enforce_retention()
        kept = sum(segment.size_bytes for segment in partition.segments[:-1]) + partition.log.segment_bytes
        assert 2500 <= kept < 2500 + 1100
        read = await act.read(partition)
        assert read[0][0] == partition.log.start_offset > 0
        assert read[-1][0] == 49

    play(body)


def test_a_segment_counts_only_the_bytes_of_its_batches_also_after_a_restart(play: Play) -> None:
    counted: list[list[int]] = []

    def sizes(partition: Partition) -> list[int]:
        assert partition.log is not None
        return [*(segment.size_bytes for segment in partition.segments[:-1]), partition.log.segment_bytes]

    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=1000)
        for number in range(25):
            await act.append(partition, "x" * 60, producer_id=5, base_sequence=number)
        each = len(act.batch("x" * 60))
        assert sizes(partition) == [1000 // each * each] * 3 + [25 % (1000 // each) * each]
        counted.append(sizes(partition))

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        await partition.opened()
        assert sizes(partition) == counted[0]
        ((_, _, (*sealed, _)),) = await _sealed(act.metadata)
        assert [size for size, _ in sealed] == counted[0][:-1]

    play(body, reopened)


def test_sealed_segments_without_timestamps_expire_by_their_last_append_also_after_a_restart(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for number in range(4):
            await act.append(partition, str(number) * 40, at=-1)
            await act.clock.sleep(6)

    async def reopened(act: Any) -> None:
        partition = await act.partition(retention_ms=20_000)
        await partition.opened()
        await partition.enforce_retention()
        assert [offset for offset, _ in await act.read(partition)] == [1, 2, 3]
        await act.clock.sleep(21)
        await partition.enforce_retention()
        assert await act.read(partition) == []

    play(body, reopened)


def test_a_segment_with_only_a_snapshot_never_ends_by_its_age(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_ms=10_000)
        await act.append(partition, "a", producer_id=5, base_sequence=0)
        await act.clock.sleep(11)
        await partition.enforce_retention()
        await act.clock.sleep(1)
        assert _bases(partition) == [0, 1]

    async def reopened(act: Any) -> None:
        partition = await act.partition(segment_ms=10_000, retention_ms=12_000)
        await partition.opened()
        await act.clock.sleep(13)
        await partition.enforce_retention()
        assert _bases(partition) == [1]
        assert (await act.append(partition, "b", producer_id=5, base_sequence=1)).base_offset == 1
        assert _bases(partition) == [1]

    play(body, reopened)


def test_segments_are_known_from_one_read_of_the_metadata(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for number in range(3):
            await act.append(partition, "x" * 40, at=5000 + number)
        with act.metadata.measure() as cost:
            ((_, index, (*sealed, last)),) = await _sealed(act.metadata)
        assert (cost.reads, cost.writes) == (1, 0)
        assert index == 0
        assert [timestamp for _, timestamp in sealed] == [5000, 5001]
        assert all(size > 100 for size, _ in sealed)
        assert last[0] == 0
        assert 0 <= act.clock.wall_ms() - last[1] < 1000

    play(body)


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 6, 8, 9])
def test_records_can_be_deleted_up_to_any_offset(play: Play, before: int) -> None:
    values = [(offset, f"{offset}" * 40) for offset in range(9)]

    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=400)
        for first in range(0, 9, 2):
            await act.append(partition, *(value for offset, value in values if offset in (first, first + 1)))
        assert len(partition.segments) == 3
        await partition.delete_before(Offset(before))
        assert partition.log is not None
        assert partition.log.start_offset == before
        assert await act.read(partition) == values[before:]
        await partition.delete_before(Offset(0))
        assert partition.log.start_offset == before

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        assert await act.read(partition) == values[before:]
        assert partition.log is not None
        assert (partition.log.start_offset, partition.log.high_watermark) == (before, 9)
        assert (await act.append(partition, "next")).base_offset == 9

    play(body, reopened)


def test_a_reader_goes_on_at_an_entry_without_records_that_was_deleted_since(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)

    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=1000)
        for number in range(20):
            await act.append(partition, str(number), producer_id=5, base_sequence=number)
        first = partition.segments[0]
        with first.view() as view:
            kinds = [first.header(view, EntryId(entry)).kind for entry in range(first.ledger.last_add_confirmed + 1)]
        snapshot = kinds.index(EntryKind.PRODUCERS)
        await partition.delete_before(Offset(snapshot))
        assert first.ledger.start_entry > snapshot
        # A reader of a shadow had read all records before the snapshot was confirmed.
        first.remember(Offset(snapshot), EntryId(snapshot))
        assert (await act.read(partition))[0] == (snapshot, str(snapshot))

    play(body)


def test_listing_very_many_partitions_yields_to_other_tasks(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "a")
        name = partition.segments[0].ledger.name
        record = (await act.metadata.get(ledger_key(name))).value
        keys = [
            ledger_key(f"{ledgers_prefix(UUID(int=1000 + number), 0)}{name.rpartition('/')[2]}")
            for number in range(10 * PARTITIONS_PER_TURN)
        ]
        for first in range(0, len(keys), 100):
            await act.metadata.txn((), [Put(key, record) for key in keys[first : first + 100]])
        assert await turns_during(_sealed(act.metadata)) >= 10
        assert len(await _sealed(act.metadata)) == len(keys) + 1

    play(body)


def test_a_producer_is_known_after_a_crash_a_roll_and_a_cut(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)

    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=1000)
        for number in range(20):
            produced = await act.append(partition, "x" * 60, producer_id=5, base_sequence=number)
            assert (produced.error, produced.base_offset) == (ErrorCode.NONE, number)
        assert len(partition.segments) > 1
        await partition.delete_before(Offset(20))

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        repeat = await act.append(partition, "x" * 60, producer_id=5, base_sequence=18)
        assert (repeat.error, repeat.base_offset) == (ErrorCode.NONE, 18)
        gap = await act.append(partition, "x", producer_id=5, base_sequence=21)
        assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await act.append(partition, "x", producer_id=5, base_sequence=20)).base_offset == 20

    play(body, reopened, _nothing_lost)


def test_a_log_opens_whose_records_were_all_deleted_before_an_idle_roll(play: Play) -> None:
    """Both segments are without entries then: there is no header to restore the log from."""

    async def body(act: Any) -> None:
        partition = await act.partition(segment_ms=1_000)
        for number in range(3):
            await act.append(partition, f"{number}")
        await partition.delete_before(Offset(3))
        await trio.sleep(2)
        await partition.enforce_retention()
        assert [segment.base_offset for segment in partition.segments] == [0, 3]

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        assert (await act.append(partition, "next")).base_offset == 3
        assert [offset for offset, _ in await act.read(partition)] == [3]

    play(body, reopened)


async def _nothing_lost(act: Any) -> None:
    partition = await act.partition()
    assert [offset for offset, _ in await act.read(partition)] == [20]


@pytest.mark.parametrize("dropped", [Partition.enforce_retention, lambda partition: partition.delete_before(Offset(3))])
def test_no_segment_is_dropped_before_the_snapshot_that_replaces_it_is_durable(
    play: Play, monkeypatch: pytest.MonkeyPatch, dropped: Callable[[Partition], Awaitable[object]]
) -> None:
    """The producer snapshot that begins a new segment is not stored by the same disk as the deletion."""
    durable = []

    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=500, retention_bytes=0)
        for number in range(3):
            await act.append(partition, "x" * 60, producer_id=5, base_sequence=number)
        assert len(partition.segments) == 1
        delete = Chain.delete

        async def seen(chain: Chain, segments: Any, *how: Any) -> bool:
            durable.append(partition.segments[-1].ledger.last_add_confirmed)
            return await delete(chain, segments, *how)

        monkeypatch.setattr(Chain, "delete", seen)
        _store_later(act, monkeypatch)
        pending = act.send(partition, "x" * 60, producer_id=5, base_sequence=3)  # rolls
        while len(partition.segments) == 1:
            await act.clock.sleep(0.001)
        await dropped(partition)
        assert len(partition.segments) == 1
        assert (await pending.wait()).base_offset == 3

    play(body)
    assert durable != []
    assert min(durable) >= 0


def _store_later(act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the bookie takes half a second for an entry."""
    bookie = act.stores.bookies.get(BOOKIE_NAME)
    add = bookie.add

    async def later(given: tuple[Any, ...]) -> None:
        await act.clock.sleep(0.5)
        add(*given)

    monkeypatch.setattr(bookie, "add", lambda *given: act.nursery.start_soon(later, given))


def test_a_cut_keeps_the_last_durable_snapshot(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_MIN", 3)
    monkeypatch.setattr(partition_log, "SNAPSHOT_ENTRIES_PER_PRODUCER", 1)

    async def body(act: Any) -> None:
        partition = await act.partition()
        for number in range(3):
            await act.append(partition, "x", producer_id=5, base_sequence=number)
        ledger = partition.segments[-1].ledger
        _store_later(act, monkeypatch)
        act.send(partition, "x", producer_id=5, base_sequence=3)  # after a snapshot
        cut: list[int] = []
        shrink = ledger.shrink

        async def seen(end: EntryId, **given: Any) -> None:
            cut.append(end)
            assert end <= ledger.last_add_confirmed, "what a restart would begin with is not durable yet"
            await shrink(end, **given)

        monkeypatch.setattr(ledger, "shrink", seen)
        await partition.delete_before(Offset(3))
        assert cut == [3]

    play(body)


def test_a_topic_deleted_during_a_deletion_of_its_records_stops_no_broker(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=14)
        for number in range(3):
            await act.append(partition, f"{number}")
        delete = Chain.delete

        async def overtaken(chain: Chain, segments: Any, *how: Any) -> bool:
            await act.stores.metadata.txn([], [Delete(topic_key("orders")), DeletePrefix(ledger_key("topics/"))])
            partition.end()
            return await delete(chain, segments, *how)

        monkeypatch.setattr(Chain, "delete", overtaken)
        with pytest.raises(KafkaError) as refused:
            await partition.delete_before(Offset(2))
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(body)


def test_segments_that_are_deleted_already_do_not_prevent_the_deletion_of_others(play: Play) -> None:
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=14)
        for number in range(3):
            await act.append(partition, f"{number}")
        gone = ledger_key(partition.segments[0].ledger.name)
        await act.stores.metadata.txn([], [Delete(gone)])
        for count, left in ((1, 2), (2, 1)):
            assert await partition._chain.delete(partition.segments[:count], partition.segments[-1])
            assert len((await act.stores.metadata.range(ledger_key("topics/"))).items) == left

    play(body)


class _LikeEtcd(CountingMetadata):
    """Metadata that accepts no larger transaction than etcd does."""

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        if max(len(compare), len(then), len(otherwise)) > 128:
            raise InvalidRequest("too many operations")
        return await super().txn(compare, then, otherwise)


@pytest.mark.parametrize("by_request", [False, True])
def test_more_segments_are_dropped_than_fit_into_one_transaction_of_an_etcd(play: Play, by_request: bool) -> None:
    async def body(act: Any) -> None:
        act.metadata = _LikeEtcd(act.metadata)
        partition = await act.partition(segment_bytes=1, retention_bytes=-1 if by_request else 0)
        for number in range(130):
            await act.append(partition, str(number))
        if by_request:
            await partition.delete_before(Offset(129))
        else:
            assert await partition.enforce_retention()
        last = 129 if by_request else 130
        assert partition.log is not None
        assert (partition.log.start_offset, _bases(partition)) == (last, [last])
        assert [name for name, _ in await list_ledgers(act.metadata)] == [partition.segments[0].ledger.name]

    play(body)


async def _put_in_place(act: Any, partition: Partition, segments: int) -> None:
    """Replaces the first segments by one ledger with their entries, as a cleaning would."""
    old, last = partition.segments[:segments], partition.segments[segments - 1]
    prefix = ledgers_prefix(TOPIC_ID, 0)
    cleaned = await create_ledger(act.metadata, act.stores.bookies, segment_name(prefix, old[0].base_offset, 1))
    for segment in old:
        for payload in await segment.ledger.read(segment.ledger.start_entry, segment.ledger.last_add_confirmed):
            await cleaned.add((payload,))
    gone = [Delete(ledger_key(segment.ledger.name)) for segment in old]
    await cleaned.seal(last.ledger.properties, also=gone)


def test_a_ledger_that_replaces_segments_is_read_and_continued(play: Play) -> None:  # segment_record, 2
    async def body(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        for number in range(4):
            await act.append(partition, str(number) * 40)
        assert _bases(partition) == [0, 1, 2, 3]
        await _put_in_place(act, partition, 3)

    async def reopened(act: Any) -> None:
        partition = await act.partition(segment_bytes=150)
        assert await act.read(partition) == [(number, str(number) * 40) for number in range(4)]
        assert _bases(partition) == [0, 3]
        assert partition.segments[0].ledger.name.endswith("/" + "0" * 20 + ".1")
        assert (await act.append(partition, "4" * 40)).base_offset == 4
        await partition.delete_before(Offset(3))
        assert _bases(partition) == [3, 4]
        assert [offset for offset, _ in await act.read(partition)] == [3, 4]

    play(body, reopened)


def test_a_partition_with_a_ledger_that_is_not_named_as_a_segment_is_not_opened(play: Play) -> None:
    stray = ledger_key(ledgers_prefix(TOPIC_ID, 0) + "backup")

    async def body(act: Any) -> None:
        partition = await act.partition()
        await act.append(partition, "a")
        await act.metadata.txn([], [Put(stray, b"anything")])

    async def reopened(act: Any) -> None:
        partition = await act.partition()
        assert (await act.append(partition, "next")).error == ErrorCode.KAFKA_STORAGE_ERROR
        ((event, fields),) = act.logger.events
        assert event == "partition_not_opened"
        assert f"{stray!r} is no segment of a partition" in fields["reason"]
        assert [found[:2] for found in await _sealed(act.metadata)] == [(TOPIC_ID, 0)], "a listing passes over it"
        await act.metadata.txn([], [Delete(stray)])
        await act.clock.sleep(2)
        assert await act.read(partition) == [(0, "a")]

    play(body, reopened)
