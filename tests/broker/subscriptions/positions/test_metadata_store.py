from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest
from store_house import StoreHouse
from turns import turns_during

from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.record_changes import Held
from gnomon.broker.subscriptions.positions.records import PUTS_BYTES_MAX, PUTS_MAX
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.entry import Offset
from gnomon.metadata.client import Compare, Operation, Put, TxnOutcome
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata

OnOneDisk = Callable[..., None]
NAMES = [f"reader-{number:04}" for number in range(2 * PUTS_MAX)]


def all_at(entry: int) -> dict[str, Position]:
    return {name: Position(CommitPoint(0, entry, 0, entry)) for name in NAMES}


def test_many_subscriptions_need_one_transaction_per_hundred_or_so_and_one_read_for_all(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(False)
        with house.metadata.measure() as cost:
            await store.create(dict.fromkeys(NAMES, AT_BEGINNING))
        assert (cost.reads, cost.writes) == (0, 2)
        store = house.store(False)
        with house.metadata.measure() as cost:
            await store.load()
        assert (cost.reads, cost.writes) == (1, 0)
        with house.metadata.measure() as cost:
            await store.advance_many(all_at(1))
        assert (cost.reads, cost.writes) == (0, 2)
        with house.metadata.measure() as cost:
            await store.advance_many(all_at(1))
        assert (cost.reads, cost.writes) == (0, 0)

    on_one_disk(act)


@pytest.mark.parametrize("segments", [False, True])
def test_loading_very_many_subscriptions_yields_to_other_tasks(
    on_one_disk: OnOneDisk, monkeypatch: pytest.MonkeyPatch, segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        await house.store(False).create(dict.fromkeys(NAMES, AT_BEGINNING))
        monkeypatch.setattr("gnomon.broker.subscriptions.positions.records.RECORDS_PER_TURN", 5)
        assert await turns_during(house.store(segments).load()) >= len(NAMES) // 5

    on_one_disk(act)


def test_a_conflict_with_an_advance_by_another_process_costs_one_more_read_and_transaction(
    on_one_disk: OnOneDisk,
) -> None:
    async def act(house: StoreHouse) -> None:
        store, other = house.store(False), house.store(False)
        names = NAMES[:PUTS_MAX]
        await store.create(dict.fromkeys(names, AT_BEGINNING))
        await other.advance_many(
            {names[3]: Position(CommitPoint(0, 5, 0, 5)), names[4]: Position(CommitPoint(0, 9, 0, 9))}
        )
        with house.metadata.measure() as cost:
            assert await store.advance_many({name: Position(CommitPoint(0, 7, 0, 7)) for name in names}) == ()
        assert (cost.reads, cost.writes) == (1, 2)
        stored = await other.get_last_commit_positions()
        assert stored.pop(names[4]) == CommitPoint(0, 9, 0, 9)
        assert set(stored.values()) == {CommitPoint(0, 7, 0, 7)}

    on_one_disk(act)


def test_the_position_of_a_segment_moves_to_the_record_when_it_is_first_read(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        segments = house.store(True)
        for entry in (1, 2):
            await segments.advance_commit_position("billing", CommitPoint(0, entry, 0, entry))
        assert (await house.records())["billing"].segment_id == 1
        assert await house.store(False).get_last_commit_position("billing") == CommitPoint(0, 2, 0, 2)
        record = (await house.records())["billing"]
        assert (record.segment_id, record.position.point) == (None, CommitPoint(0, 2, 0, 2))
        assert await house.segments() == []

    on_one_disk(act)


def test_a_missing_segment_leaves_the_position_of_the_record(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        segments = house.store(True)
        for entry in (1, 2):
            await segments.advance_commit_position("billing", CommitPoint(0, entry, 0, entry))
        await house.delete_ledgers()
        store = house.store(False)
        assert await store.get_last_commit_position("billing") == CommitPoint(0, 1, 0, 1)
        await store.advance_commit_position("billing", CommitPoint(0, 3, 0, 3))
        assert await house.store(True).get_last_commit_position("billing") == CommitPoint(0, 3, 0, 3)

    on_one_disk(act)


def test_long_ranges_are_spread_over_several_transactions(on_one_disk: OnOneDisk) -> None:
    ranges = tuple((Offset(2**40 + 2 * run), Offset(2**40 + 2 * run + 1)) for run in range(1000))
    wanted = {name: Position(CommitPoint(0, 1, 0, 1), ranges) for name in NAMES[: 2 * PUTS_MAX]}
    expected = -(-sum(len(SubscriberRecord(name, at).encode()) for name, at in wanted.items()) // PUTS_BYTES_MAX)

    async def act(house: StoreHouse) -> None:
        store = house.store(False)
        with house.metadata.measure() as cost:
            assert await store.advance_many(wanted) == ()
        assert expected <= cost.writes <= expected + 2
        assert await house.store(False).load() == wanted

    on_one_disk(act)


class Sizes(CountingMetadata):
    """Keeps the largest number of comparisons or operations of a transaction."""

    largest = 0

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        self.largest = max(self.largest, len(compare), len(then), len(otherwise))
        return await super().txn(compare, then, otherwise)


def test_a_transaction_is_not_too_large_for_etcd(on_one_disk: OnOneDisk) -> None:
    etcd_takes = 128
    lives = [Compare.version(f"life/{number}", 1) for number in range(5)]

    async def act(house: StoreHouse) -> None:
        await house.metadata.txn((), [Put(compare.key, b"") for compare in lives])
        house.metadata = sizes = Sizes(house.stores.metadata)
        store = house.store(False, claimant=lives)
        await store.create(dict.fromkeys(NAMES, AT_BEGINNING))
        await store.advance_many(all_at(1))
        assert 100 < sizes.largest <= etcd_takes

    on_one_disk(act)


def test_subscriptions_with_equal_positions_share_one_object(on_one_disk: OnOneDisk) -> None:
    def held() -> int:
        return sum(type(each) is Held for each in gc.get_objects())

    async def act(house: StoreHouse) -> None:
        writer = house.store(False)
        await writer.create(dict.fromkeys(NAMES, CommitPoint(0, 1, 0, 1)))
        assert await writer.advance_many(dict.fromkeys(NAMES, Position(CommitPoint(0, 2, 0, 2)))) == ()
        assert held() == 2, "one for each transaction"
        reader = house.store(False)
        assert len(await reader.load()) == len(NAMES)
        assert held() == 4

    gc.collect()
    assert held() == 0
    on_one_disk(act)
