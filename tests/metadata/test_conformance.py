"""The behaviour of every metadata backend, tested through the interface only.

Each backend is a parameter of the fixture `metadata_backend`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from gnomon.metadata.client import (
    GETS_MAX,
    KEY_BYTES_MAX,
    TXN_BYTES_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    HistoryCompacted,
    InvalidRequest,
    KeyField,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    Metadata,
    Operation,
    Put,
    Revision,
    WatchBatch,
    read_many,
)

Backend = Callable[[Any], None]


async def written(metadata: Metadata, key: str, value: bytes = b"", lease: LeaseId | None = None) -> KeyValue:
    result = (await metadata.txn([], [Put(key, value, lease)])).results[0]
    assert isinstance(result, KeyValue)
    return result


async def taken(watch: AsyncIterator[WatchBatch], count: int) -> list[WatchBatch]:
    return [await anext(watch) for _ in range(count)]


def test_a_new_store_is_empty(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        assert await metadata.get("a") is None
        assert (await metadata.range("")).items == ()

    metadata_backend(scenario)


def test_a_put_is_read_back_with_its_revisions_and_version(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        first = await written(metadata, "a", b"1")
        second = await written(metadata, "a", b"2")
        assert (first.version, first.create_revision) == (1, first.mod_revision)
        assert second == KeyValue("a", b"2", first.create_revision, Revision(first.mod_revision + 1), 2)
        assert await metadata.get("a") == second

    metadata_backend(scenario)


def test_many_keys_are_read_in_transactions_of_so_many_and_absent_ones_are_left_out(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        keys = [f"key-{number:03}" for number in range(2 * GETS_MAX + 1)]
        stored = {key: await written(metadata, key, key.encode()) for key in keys[::50]}
        revision = (await metadata.range("")).revision
        assert await read_many(metadata, keys) == stored
        assert await read_many(metadata, []) == {}
        assert (await metadata.range("")).revision == revision

    metadata_backend(scenario)


def test_a_key_created_again_has_version_one_and_a_create_revision_of_its_own(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        first = await written(metadata, "a")
        await written(metadata, "a")
        await metadata.txn([], [Delete("a")])
        again = await written(metadata, "a")
        assert again.version == 1
        assert again.create_revision == again.mod_revision > first.create_revision

    metadata_backend(scenario)


def test_a_range_has_exactly_the_keys_below_the_prefix_in_order(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        for key in ["b/2", "b/10", "a", "b", "b0", "c", "b/é", "b/\U0001f980", "b/\uffff"]:
            last = await written(metadata, key)
        found = await metadata.range("b/")
        assert [item.key for item in found.items] == ["b/10", "b/2", "b/é", "b/\uffff", "b/\U0001f980"]
        assert found.revision == last.mod_revision
        assert len((await metadata.range("")).items) == 9

    metadata_backend(scenario)


def test_a_transaction_takes_one_branch_by_its_comparisons(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        won = await metadata.txn([Compare.absent("a")], [Put("a", b"1")], [Get("a")])
        lost = await metadata.txn([Compare.absent("a")], [Put("a", b"2")], [Get("a")])
        assert won.succeeded
        assert not lost.succeeded
        assert lost.results == won.results == (await metadata.get("a"),)
        assert lost.revision == won.revision

    metadata_backend(scenario)


@pytest.mark.parametrize("field", list(KeyField))
def test_every_field_can_be_compared_and_is_zero_or_empty_for_an_absent_key(
    metadata_backend: Backend, field: KeyField
) -> None:
    async def scenario(metadata: Metadata) -> None:
        await written(metadata, "before")
        item = await written(metadata, "a", b"1")
        value = getattr(item, field.value)
        nothing: int | bytes = b"" if field is KeyField.VALUE else 0
        for compare, expected in [
            (Compare("a", field, value), True),
            (Compare("a", field, nothing), False),
            (Compare("absent", field, value), False),
            (Compare("absent", field, nothing), True),
        ]:
            assert (await metadata.txn([compare], [])).succeeded is expected

    metadata_backend(scenario)


def test_all_comparisons_must_hold(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        await written(metadata, "a")
        assert not (await metadata.txn([Compare.version("a", 1), Compare.version("b", 1)], [Put("c", b"")])).succeeded
        assert await metadata.get("c") is None

    metadata_backend(scenario)


def test_a_branch_that_changes_nothing_keeps_the_revision(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        revision = (await written(metadata, "a")).mod_revision
        result = await metadata.txn([], [Get("a"), Delete("b"), DeletePrefix("c")])
        assert result.revision == (await metadata.range("")).revision == revision
        assert result.results[1:] == (0, 0)

    metadata_backend(scenario)


def test_a_transaction_is_one_revision_however_many_keys_it_writes(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        old = await written(metadata, "old/1")
        result = await metadata.txn([], [Put("a", b""), DeletePrefix("old/"), Put("b", b""), Get("a"), Get("old/1")])
        a, deleted, b, seen, gone = result.results
        assert result.revision == old.mod_revision + 1
        assert isinstance(a, KeyValue)
        assert isinstance(b, KeyValue)
        assert a.mod_revision == b.mod_revision == result.revision
        assert (deleted, seen, gone) == (1, a, None)

    metadata_backend(scenario)


@pytest.mark.parametrize(
    "branch",
    [
        [Put("a", b"1"), Put("a", b"2")],
        [DeletePrefix("")],
        [Put("a/1", b""), DeletePrefix("a/")],
        [Delete("a"), Put("a", b"")],
        [Put("", b"")],
        [Put("é" * (KEY_BYTES_MAX // 2) + "x", b"")],
        [Put("\udc80", b"")],
        [Put("large", bytes(TXN_BYTES_MAX))],
    ],
    ids=[
        "put twice",
        "no prefix",
        "put and deleted prefix",
        "deleted and put",
        "no key",
        "long key",
        "no UTF-8",
        "too large",
    ],
)
def test_a_branch_that_breaks_a_rule_is_refused_and_applies_nothing(
    metadata_backend: Backend, branch: list[Operation]
) -> None:
    async def scenario(metadata: Metadata) -> None:
        before = await written(metadata, "a")
        for then, otherwise in [([Put("b", b""), *branch], []), ([Put("b", b"")], branch)]:
            with pytest.raises(InvalidRequest):
                await metadata.txn([], then, otherwise)
        assert (await metadata.range("")).items == (before,)

    metadata_backend(scenario)


def test_the_longest_key_allowed_is_stored(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        key = "k" * KEY_BYTES_MAX
        item = await written(metadata, key)
        assert await metadata.get(key) == item

    metadata_backend(scenario)


def test_exactly_one_of_concurrent_claims_of_a_version_wins(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        await written(metadata, "ledger")
        won: list[bytes] = []

        async def claim(name: bytes) -> None:
            if (await metadata.txn([Compare.version("ledger", 1)], [Put("ledger", name)])).succeeded:
                won.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(claim, b"%d" % number)
        item = await metadata.get("ledger")
        assert item is not None
        assert [item.value] == won
        assert item.version == 2

    metadata_backend(scenario)


def test_a_watch_delivers_past_and_later_revisions_once_each(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        a1 = await written(metadata, "w/a")
        await written(metadata, "other")
        deleted = await metadata.txn([], [Put("w/b", b""), Delete("w/a"), Put("x", b"")])
        async with metadata.watch("w/", a1.mod_revision) as watch:
            past = await taken(watch, 2)
            assert past[0] == WatchBatch(a1.mod_revision, (Event("w/a", a1),))
            assert past[1].revision == deleted.revision
            assert {event.key: event.current is None for event in past[1].events} == {"w/a": True, "w/b": False}
            a2 = await written(metadata, "w/a")
            a3 = await written(metadata, "w/a")
            assert await taken(watch, 2) == [WatchBatch(item.mod_revision, (Event("w/a", item),)) for item in (a2, a3)]

    metadata_backend(scenario)


def test_a_waiting_watch_receives_only_writes_below_its_prefix(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        seen: list[str] = []

        async def follow() -> None:
            async with metadata.watch("w/", Revision(1)) as watch:
                async for batch in watch:
                    seen.extend(event.key for event in batch.events)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for key in ["v", "w/1", "x", "w", "w/2"]:
                await written(metadata, key)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert seen == ["w/1", "w/2"]

    metadata_backend(scenario)


def test_a_watch_can_begin_at_a_future_revision(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        now = (await written(metadata, "a")).mod_revision
        async with metadata.watch("", Revision(now + 2)) as watch:
            await written(metadata, "b")
            last = await written(metadata, "c")
            assert await anext(watch) == WatchBatch(last.mod_revision, (Event("c", last),))

    metadata_backend(scenario)


def test_listing_and_watching_from_the_next_revision_misses_nothing(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        image: dict[str, KeyValue] = {}
        stop = trio.Event()

        async def write(name: str) -> None:
            for number in range(20):
                key = f"{name}/{number % 3}"
                await metadata.txn([], [Delete(key) if number % 4 == 3 else Put(key, b"%d" % number)])

        async def follow() -> None:
            listed = await metadata.range("")
            image.update((item.key, item) for item in listed.items)
            async with metadata.watch("", Revision(listed.revision + 1)) as watch:
                async for batch in watch:
                    for event in batch.events:
                        if event.current is None:
                            assert image.pop(event.key)
                        else:
                            image[event.key] = event.current
                    if "end" in image:
                        stop.set()

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as writers:
                writers.start_soon(write, "p")
                writers.start_soon(write, "q")
                nursery.start_soon(follow)
            await written(metadata, "end")
            await stop.wait()
            nursery.cancel_scope.cancel()
        assert tuple(sorted(image.values(), key=lambda item: item.key)) == (await metadata.range("")).items

    metadata_backend(scenario)


def test_a_compacted_revision_is_an_error_that_says_where_history_begins(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        first = await written(metadata, "a")
        await written(metadata, "a")
        last = await written(metadata, "a")
        for _ in range(2):
            await metadata.compact(last.mod_revision)
        async with metadata.watch("", first.mod_revision) as watch:
            with pytest.raises(HistoryCompacted) as raised:
                await anext(watch)
        assert raised.value.oldest == last.mod_revision
        async with metadata.watch("", last.mod_revision) as watch:
            assert (await anext(watch)).revision == last.mod_revision
        assert await metadata.get("a") == last

    metadata_backend(scenario)


def test_a_future_revision_cannot_be_compacted(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        last = await written(metadata, "a")
        with pytest.raises(InvalidRequest, match="has not happened"):
            await metadata.compact(Revision(last.mod_revision + 1))

    metadata_backend(scenario)


def test_the_end_of_a_lease_deletes_all_its_keys_in_one_revision(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        lease = await metadata.lease(10)
        result = await metadata.txn([], [Put("a", b"", lease), Put("b", b"", lease), Put("kept", b"")])
        async with metadata.watch("", Revision(result.revision + 1)) as watch:
            batch = await anext(watch)
        assert batch.revision == result.revision + 1
        assert {event.key: event.current for event in batch.events} == {"a": None, "b": None}
        assert [item.key for item in (await metadata.range("")).items] == ["kept"]
        with pytest.raises(LeaseNotFound):
            await metadata.keep_alive(lease)

    metadata_backend(scenario)


def test_a_lease_that_is_kept_alive_does_not_run_out(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        lease = await metadata.lease(10)
        item = await written(metadata, "a", lease=lease)
        assert item.lease == lease
        for _ in range(5):
            await trio.sleep(6)
            await metadata.keep_alive(lease)
        assert await metadata.get("a") == item
        await trio.sleep(30)
        assert await metadata.get("a") is None

    metadata_backend(scenario)


def test_a_short_lease_granted_after_a_long_one_runs_out_first(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        long = await metadata.lease(100)
        await trio.sleep(1)  # the store waits for the end of the long lease now
        short = await metadata.lease(5)
        await metadata.txn([], [Put("long", b"", long), Put("short", b"", short)])
        await trio.sleep(20)
        assert [item.key for item in (await metadata.range("")).items] == ["long"]

    metadata_backend(scenario)


def test_a_revoked_lease_is_gone_at_once_and_may_be_revoked_again(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        lease = await metadata.lease(10)
        await written(metadata, "a", lease=lease)
        for _ in range(2):
            await metadata.revoke(lease)
        assert await metadata.get("a") is None
        for call in (metadata.keep_alive(lease), metadata.txn([], [Put("b", b""), Put("a", b"", lease)])):
            with pytest.raises(LeaseNotFound):
                await call
        assert (await metadata.range("")).items == ()

    metadata_backend(scenario)


def test_a_key_put_again_without_its_lease_outlives_it(metadata_backend: Backend) -> None:
    async def scenario(metadata: Metadata) -> None:
        lease = await metadata.lease(10)
        await written(metadata, "a", lease=lease)
        item = await written(metadata, "a")
        await metadata.revoke(lease)
        assert await metadata.get("a") == item
        assert item.lease is None

    metadata_backend(scenario)


@pytest.mark.parametrize("ttl_seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_with_an_invalid_time_is_refused(metadata_backend: Backend, ttl_seconds: float) -> None:
    async def scenario(metadata: Metadata) -> None:
        with pytest.raises(InvalidRequest, match="positive"):
            await metadata.lease(ttl_seconds)

    metadata_backend(scenario)
