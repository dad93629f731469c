"""The slowest subscription of a partition, as a process without ownership finds it (numbers: invariants of `hold`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from store_house import TOPIC_ID, StoreHouse

from gnomon.broker.subscriptions.positions.hold import Hold, Holder
from gnomon.broker.subscriptions.positions.segments import AT_ONCE
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import AT_BEGINNING, CommitPoint
from gnomon.log.subscription_keys import subscriptions_prefix
from gnomon.metadata.client import Compare, KeyField, KeyValue, MetadataUnavailable

OnOneDisk = Callable[..., None]
PARTITION = 3
MANY = 4 * AT_ONCE


def at(entry: int) -> CommitPoint:
    return CommitPoint(0, entry, 0, 10 * entry)


def names(count: int) -> list[str]:
    return [f"reader-{number:03}" for number in range(count)]


async def held(house: StoreHouse, before: Hold | None = None, metadata: Any = None) -> Hold:
    unchanged = Compare("holds", KeyField.MOD_REVISION, 0)
    hold = Hold(metadata or house.metadata, house.stores.bookies, TOPIC_ID, unchanged)
    await hold.take("orders", TOPIC_ID, before)
    return hold


async def slowest(hold: Hold, below: int = 1000) -> tuple[str, int]:
    """The slowest subscription, if a position below entry `below` holds records."""

    async def holds_up(holder: Holder) -> bool:
        return holder.position < at(below)

    found = await hold.slowest(PARTITION, holds_up)
    assert found is not None
    return found.subscription, found.position.entry


async def advanced(house: StoreHouse, count: int) -> Any:
    """A store of `count` subscriptions: their records are at entry 1, their segments at entries from 100 on."""
    store = house.store(True)
    await store.create(dict.fromkeys(names(count), AT_BEGINNING))
    await store.advance_many(dict.fromkeys(names(count), Position(at(1))))
    await store.advance_many({name: Position(at(100 + number)) for number, name in enumerate(names(count))})
    return store


def test_a_segment_is_read_if_its_record_would_hold_records_and_its_owner_is_not_fenced(
    on_one_disk: OnOneDisk,
) -> None:  # invariant 4
    async def act(house: StoreHouse) -> None:
        store = await advanced(house, 1)
        assert await slowest(await held(house), below=1) == ("reader-000", 1)
        assert await slowest(await held(house)) == ("reader-000", 100)
        await store.advance_commit_position("reader-000", at(200))
        assert await slowest(await held(house)) == ("reader-000", 200)

    async def after(house: StoreHouse) -> None:
        assert await slowest(await held(house)) == ("reader-000", 200)  # no store has loaded it since the kill

    on_one_disk(act, after)


def test_a_segment_is_read_again_only_if_its_last_known_position_would_hold_records(
    on_one_disk: OnOneDisk,
) -> None:  # invariant 5
    async def act(house: StoreHouse) -> None:
        await advanced(house, MANY)
        with house.metadata.measure() as cost:
            first = await held(house)
            assert await slowest(first, below=100) == ("reader-000", 100)
        assert cost.reads == 1 + MANY, "one range, and the record of each segment's ledger"
        with house.metadata.measure() as cost:
            second = await held(house, first)
            assert await slowest(second, below=100) == ("reader-000", 100)
        assert cost.reads == 1
        with house.metadata.measure() as cost:
            assert await slowest(await held(house, second)) == ("reader-000", 100)
        assert cost.reads == 1 + 1, "the slowest one alone"

    on_one_disk(act)


def test_no_other_segment_is_read_if_one_subscription_lags_far(on_one_disk: OnOneDisk) -> None:  # invariant 4
    async def act(house: StoreHouse) -> None:
        store = await advanced(house, MANY)
        await store.create({"slow": at(1)})
        with house.metadata.measure() as cost:
            assert await slowest(await held(house)) == ("slow", 1)
        assert cost.reads == 1

    on_one_disk(act)


@pytest.mark.parametrize("segments", [False, True], ids=["metadata", "segments"])
def test_a_subscription_that_was_reset_or_created_again_has_its_new_position(
    segments: bool, on_one_disk: OnOneDisk
) -> None:  # invariant 5
    async def act(house: StoreHouse) -> None:
        store = await advanced(house, 2)
        first = await held(house)
        assert await slowest(first) == ("reader-000", 100)
        if not segments:
            await store.close()
            store = house.store(False)
            await store.load()
        await store.reset_commit_position("reader-001", at(50))
        second = await held(house, first)
        assert await slowest(second) == ("reader-001", 50)
        await store.delete_subscriber("reader-001")
        await store.create({"reader-001": at(7)})
        assert await slowest(await held(house, second)) == ("reader-001", 7)

    on_one_disk(act)


class Meddling:
    """A metadata service with a change right before each read of a ledger's record."""

    def __init__(self, inner: Any, meddle: Callable[[], Any]) -> None:
        self._inner = inner
        self._meddle = meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, key: str) -> KeyValue | None:
        if key.startswith("ledgers/"):
            await self._meddle()
        found: KeyValue | None = await self._inner.get(key)
        return found


def test_a_segment_that_is_rolled_finished_or_deleted_meanwhile_is_followed(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        store = house.store(True, entries_max=1)
        for entry in (1, 2):
            await store.advance_commit_position("billing", at(entry))
        todo: list[Any] = []

        async def meddle() -> None:
            if todo:
                await todo.pop()()

        metadata = Meddling(house.metadata, meddle)
        todo.append(lambda: store.advance_commit_position("billing", at(3)))
        assert await slowest(await held(house, metadata=metadata)) == ("billing", 3)
        await store.advance_commit_position("billing", at(4))
        todo.append(store.close)
        assert await slowest(await held(house, metadata=metadata)) == ("billing", 4)
        await advanced(house, 2)
        todo.append(lambda: house.store(True).delete_subscriber("billing"))
        await store.create({"billing": AT_BEGINNING})
        await store.advance_commit_position("billing", at(5))
        assert await slowest(await held(house, metadata=metadata)) == ("reader-000", 100)

    on_one_disk(act)


def test_a_segment_whose_ledger_was_deleted_has_the_position_of_its_record(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        await advanced(house, 1)
        await house.delete_ledgers()
        assert await slowest(await held(house)) == ("reader-000", 1)

    on_one_disk(act)


def test_a_segment_with_an_unreadable_entry_is_damaged_and_has_the_position_of_its_record(
    on_one_disk: OnOneDisk,
) -> None:
    async def act(house: StoreHouse) -> None:
        store = await advanced(house, 1)
        await store._owned["reader-000"].ledger.add([b"\xc1"])
        hold = await held(house)
        assert await slowest(hold) == ("reader-000", 1)
        lowest = hold.lowest(PARTITION)
        assert lowest is not None
        assert "the last entry of ledger" in (lowest.damage or "")

    on_one_disk(act)


def test_no_subscription_is_forgotten_when_a_read_fails_half_way(on_one_disk: OnOneDisk) -> None:
    async def act(house: StoreHouse) -> None:
        await advanced(house, MANY)
        left = [MANY // 2]

        async def fail() -> None:
            left[0] -= 1
            if left[0] == 0:
                raise MetadataUnavailable("away")

        hold = await held(house, metadata=Meddling(house.metadata, fail))
        with pytest.raises(MetadataUnavailable):
            await slowest(hold)
        assert await slowest(hold) == ("reader-000", 100)
        prefix = subscriptions_prefix(TOPIC_ID, PARTITION)
        assert {key.removeprefix(prefix) for key in hold._in_segments} == set(names(MANY))

    on_one_disk(act)
