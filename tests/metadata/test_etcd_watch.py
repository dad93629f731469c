"""A watch of a real etcd has no gap and no repeat, or ends with an error."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from real_etcd import OnEtcd, answered, compact, keys, put, ready, taken, until

from gnomon.metadata.client import (
    Delete,
    Event,
    HistoryCompacted,
    KeyValue,
    Put,
    Revision,
    WatchBatch,
)
from gnomon.metadata.etcd import gateway as etcd_gateway
from gnomon.metadata.etcd.etcd import EtcdMetadata
from gnomon.testing.etcd_server import EtcdServer


def test_a_watch_continues_across_restarts_of_etcd_without_gap_or_repeat(on_etcd: OnEtcd) -> None:
    batches: list[WatchBatch] = []

    async def follow(metadata: EtcdMetadata) -> None:
        async with metadata.watch("w/", Revision(1)) as watch:
            async for batch in watch:
                batches.append(batch)  # noqa: PERF401 - the test reads the list while it grows

    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        written: list[KeyValue] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, metadata)
            for life in range(3):
                for number in range(30):
                    written.append(await answered(lambda number=number: put(metadata, f"w/{number % 7}")))
                    await put(metadata, "x")
                if life < 2:
                    server.kill()
                    server.start()
                    await ready(server)
            await until(lambda: len(batches) >= len(written))
            nursery.cancel_scope.cancel()
        assert batches == [WatchBatch(item.mod_revision, (Event(item.key, item),)) for item in written]

    on_etcd(main, call_seconds=5)


def test_a_cancelled_wait_for_a_watch_loses_nothing(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        async with metadata.watch("", Revision(1)) as watch:
            for number in range(10):
                with trio.move_on_after(0.002 * number) as scope:
                    await anext(watch)
                assert scope.cancelled_caught
            items = [await put(metadata, f"{number}") for number in range(3)]
            assert await taken(watch, 3) == [WatchBatch(item.mod_revision, (Event(item.key, item),)) for item in items]

    on_etcd(main)


def test_history_compacted_while_a_watch_is_disconnected_is_an_error_and_not_a_gap(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        first = await put(metadata, "a")
        async with metadata.watch("", first.mod_revision) as watch:
            assert (await anext(watch)).revision == first.mod_revision
            server.kill()
            server.start()
            await ready(server)
            await metadata.txn([], [Delete("a")])
            last = await put(metadata, "b")
            await metadata.compact(last.mod_revision)
            with pytest.raises(HistoryCompacted) as raised:
                await anext(watch)
        assert (raised.value.asked, raised.value.oldest) == (first.mod_revision + 1, last.mod_revision)
        async with metadata.watch("", raised.value.oldest) as watch:
            assert keys([await anext(watch)]) == ["b"]

    on_etcd(main)


def test_a_connected_watch_does_not_notice_a_compaction(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        async with metadata.watch("", Revision(1)) as watch:
            for key in ("a", "b", "c"):
                item = await put(metadata, key)
                assert await anext(watch) == WatchBatch(item.mod_revision, (Event(key, item),))
                await metadata.compact(item.mod_revision)
                compact(server, item.mod_revision)

    on_etcd(main)


def test_deletions_of_a_compacted_revision_are_kept_or_the_watch_ends_with_an_error(
    on_etcd: OnEtcd, etcd_world: Any
) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        gateway = etcd_gateway.Gateway(etcd_world, [server.endpoint], call_seconds=5)
        await put(metadata, "a")
        deleted = (await metadata.txn([], [Delete("a")])).revision
        await metadata.compact(deleted)
        async with metadata.watch("", deleted) as watch:
            assert await anext(watch) == WatchBatch(deleted, (Event("a", None),))
        last = await put(metadata, "b")

        compact(server, deleted)
        every = {"key": "AA==", "range_end": "AA==", "start_revision": str(deleted)}
        stream = await gateway.stream(f"http://{server.endpoint}", "watch", {"create_request": every})
        assert (await stream.next())["created"]
        (event,) = (await stream.next())["events"]  # etcd's own watch: the deletion is missing without an error
        assert event["kv"]["mod_revision"] == str(last.mod_revision)
        await stream.close()
        await gateway.close()
        async with metadata.watch("", deleted) as watch:
            with pytest.raises(HistoryCompacted) as raised:
                await anext(watch)
        assert raised.value.oldest == deleted + 1

    on_etcd(main)


def test_a_revision_is_one_batch_however_etcd_cuts_its_messages(on_etcd: OnEtcd) -> None:
    fragments: list[bool] = []

    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        for _ in range(6):
            result = await metadata.txn([], [Put(f"{number:02}", bytes(20_000)) for number in range(13)])
        async with metadata.watch("", Revision(1)) as watch:
            inner: Any = watch
            receive = inner._messages.receive

            def counted(message: Any) -> Any:
                fragments.append(message.get("fragment", False))
                return receive(message)

            inner._messages.receive = counted
            batches = await taken(watch, 6)
        assert [batch.revision for batch in batches] == list(range(result.revision - 5, result.revision + 1))
        assert [keys([batch]) for batch in batches] == [[f"{number:02}" for number in range(13)]] * 6
        assert any(fragments), "etcd cut nothing: the test shows nothing"

    on_etcd(main, etcd_options=["--max-request-bytes", "300000"])


def test_an_idle_watch_advances_with_the_revisions_of_other_keys(on_etcd: OnEtcd) -> None:
    async def main(server: EtcdServer, metadata: EtcdMetadata) -> None:
        async with metadata.watch("idle/", Revision(1)) as watch:
            inner: Any = watch
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, watch)
                for number in range(50):
                    last = await put(metadata, f"busy/{number}")
                await until(lambda: bool(inner._messages.position > last.mod_revision))
                nursery.cancel_scope.cancel()
            server.kill()
            server.start()
            await metadata.compact(last.mod_revision)
            item = await put(metadata, "idle/a")
            assert await anext(watch) == WatchBatch(item.mod_revision, (Event("idle/a", item),))

    on_etcd(main, etcd_options=["--experimental-watch-progress-notify-interval", "100ms"])
