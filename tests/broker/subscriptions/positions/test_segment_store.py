from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from store_house import StoreHouse

from gnomon.broker.subscriptions.positions.store import Position, SubscriberChanged
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint

OnOneDisk = Callable[..., None]
COMMITS = 10_000
SUBSCRIPTIONS = 20
SEGMENT_ENTRIES = 400


def at(entry: int) -> CommitPoint:
    return CommitPoint(0, entry, 0, 10 * entry)


def test_ten_thousand_commits_write_to_the_metadata_once_for_a_segment(on_one_disk: OnOneDisk) -> None:
    names = [f"reader-{number:02}" for number in range(SUBSCRIPTIONS)]
    rounds = COMMITS // SUBSCRIPTIONS
    segments = -(-rounds // (SEGMENT_ENTRIES + 1))  # the record that begins a segment holds a position, too

    async def act(house: StoreHouse) -> None:
        store = house.store(True, entries_max=SEGMENT_ENTRIES)
        await store.create(dict.fromkeys(names, AT_BEGINNING))
        with house.metadata.measure() as cost:
            for entry in range(1, rounds + 1):
                assert await store.advance_many({name: Position(at(entry)) for name in names}) == ()
        assert cost.writes == segments * SUBSCRIPTIONS == 40
        assert cost.reads == (segments - 1) * SUBSCRIPTIONS  # one check of the owner for each segment that ends
        with house.metadata.measure() as cost:
            await store.close()
        assert cost.writes == SUBSCRIPTIONS
        assert {record.position.point for record in (await house.records()).values()} == {at(rounds)}

    on_one_disk(act)


def test_many_subscriptions_advance_without_the_metadata(on_one_disk: OnOneDisk) -> None:
    names = [f"reader-{number:03}" for number in range(300)]

    async def act(house: StoreHouse) -> None:
        store = house.store(True)
        await store.create(dict.fromkeys(names, AT_BEGINNING))
        await store.advance_many({name: Position(at(1)) for name in names})
        with house.metadata.measure() as cost:
            for entry in range(2, 6):
                assert await store.advance_many({name: Position(at(entry)) for name in names}) == ()
        assert (cost.reads, cost.writes) == (0, 0)

    async def after(house: StoreHouse) -> None:
        assert await house.store(True).get_last_commit_positions() == dict.fromkeys(names, at(5))

    on_one_disk(act, after)


def test_a_segment_is_deleted_when_the_next_one_begins(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(True, entries_max=2)
        for entry, segment in enumerate((1, 1, 1, 2, 2, 2, 3), 1):
            await store.advance_commit_position("billing", at(entry))
            assert await house.segments() == [f"billing/{segment}"]
            assert (await house.records())["billing"].segment_id == segment

    on_one_disk(act)


def test_a_store_that_reads_a_segment_fences_its_owner(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        old, new = house.store(True), house.store(True)
        for entry in (1, 2):
            await old.advance_commit_position("billing", at(entry))
        assert await new.get_last_commit_position("billing") == at(2)
        with pytest.raises(SubscriberChanged):
            await old.advance_commit_position("billing", at(3))
        await new.advance_commit_position("billing", at(4))
        assert await house.store(True).get_last_commit_position("billing") == at(4)

    on_one_disk(act)


def test_a_fenced_owner_can_neither_roll_nor_reset_nor_close(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        owners = [house.store(True, entries_max=1) for _ in range(3)]
        rolling, resetting, closing = owners
        new = house.store(True)
        for number, owner in enumerate(owners):
            for entry in (1, 2):
                await owner.advance_commit_position(f"reader-{number}", at(entry))
        await new.load()
        await new.advance_many({f"reader-{number}": Position(at(5)) for number in range(3)})
        with pytest.raises(SubscriberChanged):
            await rolling.advance_commit_position("reader-0", at(3))
        with pytest.raises(SubscriberChanged):
            await resetting.reset_commit_position("reader-1", at(0))
        await closing.close()
        found = await house.store(False).get_last_commit_positions()
        assert found == {f"reader-{number}": at(5) for number in range(3)}

    on_one_disk(act)


def test_one_of_two_stores_that_begin_the_same_segment_concurrently_is_refused(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        owners = [house.store(True) for _ in range(2)]
        for owner in owners:
            await owner.create({"billing": AT_BEGINNING})
        refused = []

        async def advance(number: int) -> None:
            try:
                await owners[number].advance_commit_position("billing", at(1 + number))
            except SubscriberChanged:
                refused.append(number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(advance, 0)
            nursery.start_soon(advance, 1)
        stored = await house.store(True).get_last_commit_position("billing")
        (loser,) = refused
        assert stored == at(1 if loser == 1 else 2)

    on_one_disk(act)


def test_an_owner_continues_its_own_segment_after_a_cancelled_advance(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(True, entries_max=1)
        cut_short = 0
        for entry in range(1, 8):
            with trio.move_on_after(0.0003 * entry) as patience:  # its outcome is unknown
                await store.advance_commit_position("billing", at(entry))
            cut_short += patience.cancelled_caught
            await store.advance_commit_position("billing", at(entry))
            assert await store.get_last_commit_position("billing") == at(entry)
        assert cut_short > 3
        assert await house.store(False).get_last_commit_position("billing") == at(7)

    on_one_disk(act)


def test_the_record_is_never_ahead_of_the_segment(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(True, entries_max=3)
        for step, entry in enumerate((1, 4, 5, 9, 12, 13, 20)):
            await store.advance_commit_position("billing", at(entry))
            if step == 3:
                await store.reset_commit_position("billing", at(2))
            assert (await house.records())["billing"].position.point <= await store.get_last_commit_position("billing")

    on_one_disk(act)
