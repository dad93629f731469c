"""Helpers for tests with a real etcd, on real time; without httpx2 such tests are skipped and say so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

pytest.importorskip(
    "httpx2", reason="NOT TESTED ON ETCD: the package httpx2 is not installed: pip install 'gnomon[dev]'"
)

from gnomon.metadata.client import (
    KeyValue,
    MetadataUnavailable,
    Put,
    WatchBatch,
)
from gnomon.metadata.etcd.etcd import EtcdMetadata
from gnomon.testing.etcd_server import EtcdServer

NewEtcd = Callable[..., EtcdServer]
OnEtcd = Callable[..., None]


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Runs `main` on real time, since etcd has no virtual time; a test that hangs fails."""

    async def bounded() -> None:
        with trio.fail_after(30):
            await main()

    trio.run(bounded)


def run_on_etcd(
    new_etcd: NewEtcd,
    world: Any,
    body: Callable[[EtcdServer, EtcdMetadata], Awaitable[None]],
    *,
    etcd_options: Sequence[str] = (),
    **options: Any,
) -> None:
    """Runs `body` with an etcd of its own and the metadata in it; `options` go to `EtcdMetadata`."""
    server = new_etcd(options=etcd_options)

    async def main() -> None:
        await ready(server)
        async with EtcdMetadata(world, [server.endpoint], **options) as metadata:
            await body(server, metadata)

    run(main)


async def put(metadata: EtcdMetadata, key: str, value: bytes = b"") -> KeyValue:
    (item,) = (await metadata.txn([], [Put(key, value)])).results
    assert isinstance(item, KeyValue)
    return item


async def taken(watch: AsyncIterator[WatchBatch], count: int) -> list[WatchBatch]:
    return [await anext(watch) for _ in range(count)]


async def ready(*servers: EtcdServer) -> None:
    """Waits until each server answers; other tasks continue."""
    for server in servers:
        await trio.to_thread.run_sync(server.wait_ready)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - another process sets no event
        await trio.sleep(0.005)


async def answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Repeats a call until the metadata is available."""
    while True:
        try:
            return await ask()
        except MetadataUnavailable:
            await trio.sleep(0.01)


def keys(batches: list[WatchBatch]) -> list[str]:
    return [event.key for batch in batches for event in batch.events]


def compact(server: EtcdServer, revision: int) -> None:
    """Compacts the history as another program, or etcd itself, would."""
    server.ask("kv/compaction", {"revision": str(revision), "physical": True})
