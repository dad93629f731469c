"""The guarantees that both stores of positions share; two stores of a house act as two processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from store_house import TOPIC_ID, StoreHouse

from gnomon.broker.subscriptions.positions.store import Position, StoreFenced, SubscriberChanged, UnreadablePosition
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.subscription_keys import InvalidSubscriber, deletion_of_subscriptions, hold_key, subscriptions_prefix
from gnomon.metadata.client import Compare, Delete, Put

OnOneDisk = Callable[..., None]
RANGES = ((Offset(20), Offset(22)), (Offset(30), Offset(31)))


def at(entry: int) -> CommitPoint:
    return CommitPoint(0, entry, 0, 10 * entry)


@pytest.fixture(params=[False, True], ids=["metadata", "segments"])
def segments(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["next metadata", "next segments"])
def next_segments(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_an_unknown_subscriber_reads_as_the_beginning(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        assert await store.get_last_commit_position("billing") == AT_BEGINNING
        assert await store.get_last_commit_positions() == {}
        await store.advance_commit_position("billing", AT_BEGINNING)
        assert await house.records() == {}

    on_one_disk(act)


def test_positions_survive_a_crash_under_either_store(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def before(house: StoreHouse) -> None:
        store = house.store(segments)
        for entry in range(1, 6):
            await store.advance_commit_position("billing", at(entry))
        await store.advance_commit_position("audit", at(3))

    async def after(house: StoreHouse) -> None:
        store = house.store(next_segments)
        assert await store.get_last_commit_position("billing") == at(5)
        assert await store.get_last_commit_positions() == {"audit": at(3), "billing": at(5)}
        await store.advance_commit_position("billing", at(9))

    async def in_the_end(house: StoreHouse) -> None:
        assert await house.store(segments).get_last_commit_position("billing") == at(9)

    on_one_disk(before, after, in_the_end)


def test_positions_survive_the_graceful_end_of_an_owner(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_commit_position("billing", at(4))
        await store.advance_commit_position("billing", at(5))
        await store.close()
        assert (await house.records())["billing"].position.point == at(5)
        assert await house.segments() == []
        assert await house.store(next_segments).get_last_commit_position("billing") == at(5)

    on_one_disk(act)


def test_an_advance_backward_succeeds_and_changes_nothing(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_commit_position("billing", at(5))
        for entry in (5, 4, 0):
            await store.advance_commit_position("billing", at(entry))
            assert await store.get_last_commit_position("billing") == at(5)
        await store.close()
        assert await house.store(segments).get_last_commit_position("billing") == at(5)

    on_one_disk(act)


def test_an_advance_backward_changes_nothing_in_another_process_either(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        one, other = house.store(segments), house.store(next_segments)
        await one.advance_commit_position("billing", at(5))
        await one.advance_commit_position("billing", at(6))
        await other.advance_commit_position("billing", at(4))
        assert await other.get_last_commit_position("billing") == at(6)

    on_one_disk(act)


def test_an_advance_backward_succeeds_in_another_process_that_has_read_before(
    on_one_disk: OnOneDisk, segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        one, other = house.store(segments), house.store(segments)
        await one.create({"billing": at(1)})
        assert await other.load() == {"billing": Position(at(1))}
        await one.advance_commit_position("billing", at(5))
        await other.advance_commit_position("billing", at(4))
        assert await other.get_last_commit_position("billing") == at(5)

    on_one_disk(act)


def test_a_reset_can_move_backward_and_deletes_the_ranges(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_many({"billing": Position(at(5), RANGES)})
        await store.advance_many({"billing": Position(at(6), RANGES)})
        await store.reset_commit_position("billing", at(2))
        assert await store.load() == {"billing": Position(at(2))}
        await store.advance_commit_position("billing", at(3))
        await store.reset_commit_position("fresh", at(8))
        assert await house.store(next_segments).load() == {"billing": Position(at(3)), "fresh": Position(at(8))}

    on_one_disk(act)


def test_an_earlier_owner_never_undoes_a_reset(on_one_disk: OnOneDisk, segments: bool, next_segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        old = house.store(segments)
        await old.advance_commit_position("billing", at(5))
        new = house.store(next_segments)
        await new.load()
        await new.reset_commit_position("billing", at(2))
        for _ in range(2):
            with pytest.raises(SubscriberChanged):
                await old.advance_commit_position("billing", at(7))
        with pytest.raises(SubscriberChanged):
            await old.reset_commit_position("billing", at(7))
        assert await new.get_last_commit_position("billing") == at(2)

    on_one_disk(act)


def test_an_earlier_owner_never_recreates_a_deleted_subscription(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        old = house.store(segments)
        await old.create({"billing": at(5), "audit": at(5)})
        new = house.store(next_segments)
        await new.delete_subscriber("billing")
        await new.delete_subscriber("audit")
        await new.create({"audit": at(1)})
        assert await old.advance_many({"billing": Position(at(7)), "audit": Position(at(7))}) == ("billing", "audit")
        assert await new.load() == {"audit": Position(at(1))}

    on_one_disk(act)


def test_deleting_a_subscriber_removes_its_record_and_its_segment(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments, entries_max=2)
        for entry in range(1, 6):
            await store.advance_commit_position("billing", at(entry))
        await house.store(segments).delete_subscriber("billing")
        await store.delete_subscriber("billing")
        assert (await house.records(), await house.segments()) == ({}, [])
        assert await store.get_last_commit_position("billing") == AT_BEGINNING

    on_one_disk(act)


def test_a_creation_keeps_the_position_of_an_existing_subscription(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        await house.store(not segments).advance_many({"billing": Position(at(5), RANGES)})
        store = house.store(segments)
        assert await store.create({"audit": at(2), "billing": at(9)}) == {
            "audit": Position(at(2)),
            "billing": Position(at(5), RANGES),
        }
        assert await store.create({"audit": AT_BEGINNING}) == {"audit": Position(at(2))}

    on_one_disk(act)


def test_ranges_are_stored_beside_a_position_and_may_change_alone(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_many({"billing": Position(at(5))})
        await store.advance_many({"billing": Position(at(5), RANGES)})
        assert (await house.store(next_segments).load())["billing"] == Position(at(5), RANGES)

    on_one_disk(act)


def test_a_single_advance_keeps_the_ranges(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_many({"billing": Position(at(5), RANGES)})
        await store.advance_commit_position("billing", at(6))
        assert (await house.store(segments).load())["billing"] == Position(at(6), RANGES)

    on_one_disk(act)


def test_many_subscriptions_advance_in_one_call_each_to_its_own_position(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    names = [f"reader-{number:04}" for number in range(1200)]

    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.create(dict.fromkeys(names, AT_BEGINNING))
        wanted = {name: Position(at(number)) for number, name in enumerate(names)}
        assert await store.advance_many(wanted) == ()
        assert await store.advance_many({name: Position(at(number // 2)) for number, name in enumerate(names)}) == ()
        await store.close()
        assert await house.store(next_segments).load() == wanted

    on_one_disk(act)


def test_a_store_that_lost_the_partition_stores_nothing(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        await house.metadata.txn((), (Put("presence", b"me"),))
        store = house.store(segments, claimant=(Compare.version("presence", 1),))
        await store.create({"billing": at(1)})
        await house.metadata.txn((), (Delete("presence"),))
        with pytest.raises(StoreFenced):
            await store.create({"audit": at(1)})
        with pytest.raises((StoreFenced, SubscriberChanged)):
            await store.advance_commit_position("billing", at(2))
        with pytest.raises(StoreFenced):
            await store.delete_subscriber("billing")
        assert await house.store(False).load() == {"billing": Position(at(1))}

    on_one_disk(act)


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 301, "é" * 51])
def test_a_name_that_no_key_can_hold_is_refused(on_one_disk: OnOneDisk, segments: bool, name: str) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        calls: list[Any] = [
            lambda: store.get_last_commit_position(name),
            lambda: store.advance_commit_position(name, at(1)),
            lambda: store.reset_commit_position(name, at(1)),
            lambda: store.create({name: at(1)}),
            lambda: store.delete_subscriber(name),
        ]
        for call in calls:
            with pytest.raises(InvalidSubscriber):
                await call()

    on_one_disk(act)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgpack.packb(["billing"]),
        msgpack.packb({"name": "billing", "segment_id": None, "last_commit_dlsn": [1]}),
        msgpack.packb({"name": "billing", "segment_id": None, "last_commit_dlsn": 7}),
        msgpack.packb({"name": "billing", "segment_id": "1", "last_commit_dlsn": [1, 2, 3]}),
        msgpack.packb({"name": None, "segment_id": 1, "last_commit_dlsn": [1, 2, 3]}),
        msgpack.packb({"name": "billing", "segment_id": None, "last_commit_dlsn": [1, 2, 3], "ranges": [1]}),
        msgpack.packb({"name": "billing", "segment_id": None, "last_commit_dlsn": [1, 2, 3], "ranges": ["1", 2]}),
    ],
)
def test_a_damaged_record_is_an_error_that_names_it_and_can_be_deleted(
    on_one_disk: OnOneDisk, segments: bool, value: bytes
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_commit_position("billing", at(1))
        await house.metadata.txn((), (Put(f"{subscriptions_prefix(TOPIC_ID, 3)}billing", value),))
        store = house.store(segments)
        calls: list[Any] = [
            store.load,
            lambda: store.get_last_commit_position("billing"),
            lambda: store.advance_many({"billing": Position(at(2))}),
            lambda: store.create({"billing": at(2)}),
        ]
        for call in calls:
            with pytest.raises(UnreadablePosition, match="/3/billing cannot be read"):
                await call()
        await store.delete_subscriber("billing")
        assert (await store.load(), await house.segments()) == ({}, [])

    on_one_disk(act)


def test_names_that_look_like_keys_are_distinct_subscriptions(on_one_disk: OnOneDisk, segments: bool) -> None:
    names = ["a", "a/1", "a%2F1", "../a", "ä ö", "a/"]

    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        for entry, name in enumerate(names, 1):
            await store.advance_commit_position(name, at(entry))
        await store.delete_subscriber("a")
        expected = {name: at(entry) for entry, name in enumerate(names, 1) if name != "a"}
        assert await house.store(segments).get_last_commit_positions() == expected

    on_one_disk(act)


def test_the_deletion_of_a_topic_deletes_all_its_subscriptions(on_one_disk: OnOneDisk, segments: bool) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.advance_commit_position("billing", at(1))
        await house.metadata.txn((), deletion_of_subscriptions(TOPIC_ID))
        assert (await house.records(), await house.segments()) == ({}, [])

    on_one_disk(act)


def test_a_creation_a_reset_and_a_deletion_write_the_hold_key_and_an_advance_does_not(
    on_one_disk: OnOneDisk, segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        written: list[int] = []

        async def changed() -> bool:
            item = await house.metadata.get(hold_key(TOPIC_ID))
            written.append(0 if item is None else item.mod_revision)
            return written[-1:] != written[-2:-1]

        await changed()
        await store.create({"one": at(0), "two": at(3)})
        assert await changed()
        await store.create({"one": at(0)})
        assert not await changed()
        for entry in (1, 2):
            await store.advance_many({"one": Position(at(entry)), "two": Position(at(entry + 3))})
            assert not await changed()
        await store.reset_commit_position("one", at(0))
        assert await changed()
        await store.advance_commit_position("three", at(5))
        assert await changed()
        await store.delete_subscriber("two")
        assert await changed()
        await store.close()
        assert not await changed()

    on_one_disk(act)


def test_the_epoch_of_a_cursor_grows_only_when_it_is_reset_or_created_again(
    on_one_disk: OnOneDisk, segments: bool, next_segments: bool
) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(segments)
        await store.create({"billing": at(1)})
        epochs = [store.cursor_epoch("billing")]
        for change in ("forwards", "back", "made anew"):
            if change == "made anew":
                await store.delete_subscriber("billing")
            else:
                await store.reset_commit_position("billing", at(5 if change == "forwards" else 3))
            await store.create({"billing": at(1)})
            epochs.append(store.cursor_epoch("billing"))
            await store.advance_many({"billing": Position(at(7))})
            await store.close()
            store = house.store(next_segments)
            await store.load()
            await store.advance_many({"billing": Position(at(8))})
            assert store.cursor_epoch("billing") == epochs[-1]
        assert epochs == sorted(set(epochs))

    on_one_disk(act)
