from __future__ import annotations

from collections.abc import Callable

from store_house import StoreHouse

from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.broker.subscriptions.records import PUTS_MAX
from gnomon.broker.subscriptions.store import Position

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
