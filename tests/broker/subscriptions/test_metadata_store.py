from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest
from store_house import StoreHouse
from turns import turns_during

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.record_changes import Held
from gnomon.broker.subscriptions.records import PUTS_BYTES_MAX, PUTS_MAX
from gnomon.broker.subscriptions.store import Position
from gnomon.metadata.client import Compare, Operation, Put, TxnResult
from gnomon.testing.counting_metadata import CountingMetadata

OnOneDisk = Callable[..., None]
NAMES = [f"reader-{number:04}" for number in range(2 * PUTS_MAX)]


def all_at(entry: int) -> dict[str, Position]:
    return {name: Position(Dlsn(0, entry, 0)) for name in NAMES}


def test_many_subscriptions_take_a_transaction_for_some_hundred_and_a_read_for_all(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(False)
        with house.metadata.measure() as cost:
            await store.create(dict.fromkeys(NAMES, BEGINNING))
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
def test_loading_very_many_subscriptions_leaves_others_their_turn(
    on_one_disk: OnOneDisk, monkeypatch: pytest.MonkeyPatch, segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        await house.store(False).create(dict.fromkeys(NAMES, BEGINNING))
        monkeypatch.setattr("gnomon.broker.subscriptions.records.RECORDS_PER_TURN", 5)
        assert await turns_during(house.store(segments).load()) >= len(NAMES) // 5

    on_one_disk(act)


def test_what_another_process_advanced_meanwhile_costs_one_more_read_and_transaction(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store, other = house.store(False), house.store(False)
        names = NAMES[:PUTS_MAX]
        await store.create(dict.fromkeys(names, BEGINNING))
        await other.advance_many({names[3]: Position(Dlsn(0, 5, 0)), names[4]: Position(Dlsn(0, 9, 0))})
        with house.metadata.measure() as cost:
            assert await store.advance_many({name: Position(Dlsn(0, 7, 0)) for name in names}) == ()
        assert (cost.reads, cost.writes) == (1, 2)
        stored = await other.get_last_commit_positions()
        assert stored.pop(names[4]) == Dlsn(0, 9, 0)
        assert set(stored.values()) == {Dlsn(0, 7, 0)}

    on_one_disk(act)


def test_a_segment_goes_into_the_record_when_it_is_first_read(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        segments = house.store(True)
        for entry in (1, 2):
            await segments.advance_commit_position("billing", Dlsn(0, entry, 0))
        assert (await house.records())["billing"].segment_id == 1
        assert await house.store(False).get_last_commit_position("billing") == Dlsn(0, 2, 0)
        record = (await house.records())["billing"]
        assert (record.segment_id, record.position.dlsn) == (None, Dlsn(0, 2, 0))
        assert await house.segments() == []

    on_one_disk(act)


def test_a_segment_that_is_gone_leaves_what_the_record_says(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        segments = house.store(True)
        for entry in (1, 2):
            await segments.advance_commit_position("billing", Dlsn(0, entry, 0))
        await house.delete_ledgers()
        store = house.store(False)
        assert await store.get_last_commit_position("billing") == Dlsn(0, 1, 0)
        await store.advance_commit_position("billing", Dlsn(0, 3, 0))
        assert await house.store(True).get_last_commit_position("billing") == Dlsn(0, 3, 0)

    on_one_disk(act)


def test_long_ranges_are_spread_over_several_transactions(on_one_disk: OnOneDisk) -> None:
    ranges = tuple((Offset(2**40 + 2 * run), Offset(2**40 + 2 * run + 1)) for run in range(1000))
    wanted = {name: Position(Dlsn(0, 1, 0), ranges) for name in NAMES[: 2 * PUTS_MAX]}
    expected = -(-sum(len(SubscriberRecord(name, at).encode()) for name, at in wanted.items()) // PUTS_BYTES_MAX)

    async def act(house: StoreHouse) -> None:
        store = house.store(False)
        with house.metadata.measure() as cost:
            assert await store.advance_many(wanted) == ()
        assert expected <= cost.writes <= expected + 2
        assert await house.store(False).load() == wanted

    on_one_disk(act)


class Sizes(CountingMetadata):
    """Looks at how many comparisons or operations there are in a transaction."""

    largest = 0

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        self.largest = max(self.largest, len(compare), len(then), len(otherwise))
        return await super().txn(compare, then, otherwise)


def test_on_an_etcd_a_transaction_is_not_too_large(on_one_disk: OnOneDisk) -> None:
    etcd_takes = 128
    lives = [Compare.version(f"life/{number}", 1) for number in range(5)]

    async def act(house: StoreHouse) -> None:
        await house.metadata.txn((), [Put(compare.key, b"") for compare in lives])
        house.metadata = sizes = Sizes(house.stores.metadata)
        store = house.store(False, claimant=lives)
        await store.create(dict.fromkeys(NAMES, BEGINNING))
        await store.advance_many(all_at(1))
        assert 100 < sizes.largest <= etcd_takes

    on_one_disk(act)


def test_subscriptions_that_stand_alike_are_held_as_one(on_one_disk: OnOneDisk) -> None:
    def held() -> int:
        return sum(type(each) is Held for each in gc.get_objects())

    async def act(house: StoreHouse) -> None:
        writer = house.store(False)
        await writer.create(dict.fromkeys(NAMES, Dlsn(0, 1, 0)))
        assert await writer.advance_many(dict.fromkeys(NAMES, Position(Dlsn(0, 2, 0)))) == ()
        assert held() == 2, "one for each transaction"
        reader = house.store(False)
        assert len(await reader.load()) == len(NAMES)
        assert held() == 4

    gc.collect()
    assert held() == 0
    on_one_disk(act)
