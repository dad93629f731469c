"""Older copies of a store and of the metadata are seen (numbers: invariants of `age`)."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from gnomon.bookie.errors import ForeignDisk
from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import create_ledger
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.registration import AGES, COOKIES
from gnomon.bookie.storage.age import GROW_SECONDS, TELL_SECONDS, OlderMetadata, StoreAge
from gnomon.bookie.storage.cookie import check_cookie
from gnomon.bookie.storage.entry_store import STATES, EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.metadata.client import Delete, MetadataFull, Revision
from gnomon.testing.storms.ledgers.bookies_at_hand import BookiesAtHand

NAME = BookieId("b0")


async def started(metadata: Any, environment: Any) -> StoreAge:
    """The age of a store whose bookie has just started."""
    member = await check_cookie(metadata, environment, NAME, random.Random(1))
    age = StoreAge(metadata, environment, NAME, member.disk)
    revision = (await metadata.range(LEDGERS)).revision
    why = await age.compare(revision)
    if why is not None:
        raise Older(why)
    await age.begin(revision)
    return age


class Older(Exception):
    """The store is an older copy."""


def states(environment: Any) -> dict[bytes, bytes]:
    with environment.read() as transaction:
        return {bytes(key): bytes(value) for key, value in transaction.cursor(db=environment.databases[STATES])}


def restore(environment: Any, copy: dict[bytes, bytes]) -> None:
    with environment.environment.begin(write=True, db=environment.databases[STATES]) as transaction:
        transaction.drop(environment.databases[STATES], delete=False)
        for key, value in copy.items():
            transaction.put(key, value)


def test_a_store_starts_again_and_again(environment: Any, make_metadata: Any) -> None:
    async def main() -> None:
        metadata = make_metadata()
        for _ in range(3):
            await started(metadata, environment)

    trio.run(main)


def test_a_copy_of_a_store_from_before_its_last_start_is_seen_until_a_run_begins(
    environment: Any, make_metadata: Any
) -> None:
    """2."""

    async def main() -> None:
        metadata = make_metadata()
        await started(metadata, environment)
        copy = states(environment)
        await started(metadata, environment)
        restore(environment, copy)
        for _ in range(2):
            with pytest.raises(Older, match="is an older copy"):
                await started(metadata, environment)
        member = await check_cookie(metadata, environment, NAME, random.Random(1))
        age = StoreAge(metadata, environment, NAME, member.disk)
        revision = (await metadata.range(LEDGERS)).revision
        assert await age.compare(revision) is not None
        await age.begin(revision)
        await started(metadata, environment)
        assert states(environment)[b"age"] > copy[b"age"]

    trio.run(main)


def test_a_copy_from_the_same_run_is_seen_once_the_store_grew_older_while_entries_were_added(
    environment: Any, make_metadata: Any, clock: Any
) -> None:
    """1, 2."""

    async def main() -> None:
        metadata, added = make_metadata(), [0]
        age = await started(metadata, environment)
        copy = states(environment)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(age.grow_older, Virtual(), lambda: added[0])
            await trio.sleep(1.5 * GROW_SECONDS)
            assert states(environment) == copy, "nothing was added"
            added[0] += 1
            await trio.sleep(GROW_SECONDS)
            nursery.cancel_scope.cancel()
        restore(environment, copy)
        with pytest.raises(Older):
            await started(metadata, environment)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_an_age_that_the_metadata_had_no_room_for_is_told_once_it_has(environment: Any, make_metadata: Any) -> None:
    """1."""

    async def main() -> None:
        metadata = make_metadata()
        await started(metadata, environment)
        copy = states(environment)
        txn, metadata.txn = metadata.txn, full
        age = StoreAge(
            metadata, environment, NAME, (await check_cookie(metadata, environment, NAME, random.Random(1))).disk
        )
        await age.begin(Revision(0))
        metadata.txn = txn
        async with trio.open_nursery() as nursery:
            nursery.start_soon(age.grow_older, Virtual(), lambda: 0)
            await trio.sleep(1.5 * TELL_SECONDS)
            nursery.cancel_scope.cancel()
        restore(environment, copy)
        with pytest.raises(Older):
            await started(metadata, environment)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def full(*_: object) -> None:
    raise MetadataFull("no room")


class Virtual:
    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


def test_a_start_that_ended_between_the_store_and_the_metadata_is_no_older_copy(
    environment: Any, make_metadata: Any
) -> None:
    """1."""

    async def main() -> None:
        metadata = make_metadata()
        await started(metadata, environment)
        known = metadata.keys[AGES + NAME]
        await started(metadata, environment)
        metadata.keys[AGES + NAME] = known
        await started(metadata, environment)

    trio.run(main)


def test_a_bookie_that_was_dismissed_while_it_started_leaves_no_age_to_the_next_disk_of_its_name(
    environment: Any, make_metadata: Any
) -> None:
    async def main() -> None:
        metadata = make_metadata()
        age = await started(metadata, environment)
        await metadata.txn((), (Delete(COOKIES + NAME), Delete(AGES + NAME)))  # as an auditor dismisses it
        await age.grow()
        assert await metadata.get(AGES + NAME) is None

    trio.run(main)


def test_metadata_that_is_older_than_the_bookie_has_seen_is_refused_and_nothing_is_removed(
    environment: Any, make_metadata: Any, clock: Any
) -> None:
    """3."""

    async def main() -> None:
        metadata = make_metadata()
        store = EntryStore(environment, clock)
        age = await started(metadata, environment)
        member = await check_cookie(metadata, environment, NAME, random.Random(1))
        ledger = await create_ledger(metadata, BookiesAtHand({NAME: LocalBookie(store)}, clock), "ledger")
        await ledger.add([b"payload"])
        older = metadata.revision
        await metadata.txn((), ())
        del metadata.keys[f"{LEDGERS}ledger"]
        await age.check(Revision(older + 5))
        collector = GarbageCollector(store, metadata, age, clock, interval_seconds=60)
        with pytest.raises(OlderMetadata, match="put the newest copy back"):
            await collector.collect()
        assert await store.ledgers.all() == [ledger.id]
        with pytest.raises(ForeignDisk, match="older copy"):
            await started(metadata, environment)
        age = StoreAge(metadata, environment, NAME, member.disk)
        revision = (await metadata.range(LEDGERS)).revision
        await age.compare(revision, accept_older_metadata=True)
        await age.begin(revision)
        await started(metadata, environment)

    trio.run(main)


def test_nothing_is_removed_on_the_word_of_metadata_that_does_not_list_the_bookie(
    environment: Any, make_metadata: Any, clock: Any
) -> None:
    """4."""

    async def main() -> None:
        metadata = make_metadata()
        store = EntryStore(environment, clock)
        age = await started(metadata, environment)
        ledger = await create_ledger(metadata, BookiesAtHand({NAME: LocalBookie(store)}, clock), "ledger")
        await ledger.add([b"payload"])
        cookie = metadata.keys.pop(COOKIES + NAME)
        del metadata.keys[f"{LEDGERS}ledger"]
        collector = GarbageCollector(store, metadata, age, clock, interval_seconds=60)
        with pytest.raises(OlderMetadata, match="does not list"):
            await collector.collect()
        assert await store.ledgers.all() == [ledger.id]
        metadata.keys[COOKIES + NAME] = cookie
        assert (await collector.collect()).ledgers == 1

    trio.run(main)


def test_metadata_that_is_older_than_a_stored_ledger_is_refused(
    environment: Any, make_metadata: Any, clock: Any
) -> None:
    """3."""

    async def main() -> None:
        metadata = make_metadata()
        await started(metadata, environment)
        older = metadata.revision
        ledger = await create_ledger(
            metadata, BookiesAtHand({NAME: LocalBookie(EntryStore(environment, clock))}, clock), "ledger"
        )
        await ledger.add([b"payload"])
        metadata.revision = older
        del metadata.keys[f"{LEDGERS}ledger"]
        with pytest.raises(ForeignDisk, match="older copy"):
            await started(metadata, environment)

    trio.run(main)
