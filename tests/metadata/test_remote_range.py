"""A range of a metadata store in another process: it arrives in parts, and is whole or an error."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from gnomon.metadata.client import DeletePrefix, MetadataUnavailable, Put, Revision
from gnomon.metadata.messages import ERRORS, HEADS, SERVICE, decode_range
from gnomon.metadata.remote import RemoteMetadata
from gnomon.metadata.service import PART_BYTES
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.rpc.call import Call, in_task
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.trio_world import open_trio_world


def test_a_range_comes_in_parts_of_one_revision(machine: Any) -> None:
    async def main() -> None:
        async with machine.serving() as served:
            remote, value = served.remote(), b"x" * (PART_BYTES // 4)
            keys = [f"a/{number:02}" for number in range(60)]
            for key in keys:
                await remote.txn([], [Put(key, value)])
            parts = []
            async with remote.client.stream("range", "a/") as forms:
                async for form in forms:
                    if not parts:
                        await remote.txn([], [Put("a/later", b"")])
                    parts.append(decode_range(form))
            assert [len(part.items) for part in parts] == [4] * 15
            assert [item.key for part in parts for item in part.items] == keys
            assert len({part.revision for part in parts}) == 1
            found = await remote.range("a/")
            assert [item.key for item in found.items] == [*keys, "a/later"]
            assert found == decode_range(await remote.client.call("range", "a/")), "what older clients ask for"
            assert (await remote.range("b/")).items == ()

    trio.run(main)


def test_a_watch_gets_a_change_with_more_events_than_the_head_of_a_call_may_have(machine: Any) -> None:
    """4 of `wire.rpc`: only the heads of clients are limited."""
    each, count = 1_000, HEADS.of_method("txn").items_max // 2_000 + 1

    async def main() -> None:
        async with machine.serving() as served:
            remote = served.remote()
            for number in range(count):
                await remote.txn([], [Put(f"a/{number:03}/{index:04}", b"") for index in range(each)])
            async with remote.watch("a/", Revision(1)) as batches:
                for _ in range(count):
                    await anext(batches)
                await remote.txn([], [DeletePrefix("a/")])
                deleted = await anext(batches)
            assert len(deleted.events) == each * count

    trio.run(main)


def test_a_range_is_answered_while_watches_use_all_streams_of_the_connection(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.runtime.rpc.server.STREAMS_MAX", 3)

    async def main() -> None:
        async with machine.serving() as served, AsyncExitStack() as watches:
            remote = served.remote()
            await remote.txn([], [Put("a/one", b"")])
            for _ in range(3):
                batches = await watches.enter_async_context(remote.watch("", Revision(1)))
                await anext(batches)
            assert [item.key for item in (await remote.range("a/")).items] == ["a/one"]

    trio.run(main)


@pytest.mark.parametrize(
    ("revisions", "meaning"), [((), "a newer gnomon than the metadata service"), ((1, 2), "not of one revision")]
)
def test_a_range_without_parts_or_of_several_revisions_is_an_error(revisions: tuple[int, ...], meaning: str) -> None:
    async def main() -> None:
        async with open_trio_world() as world, trio.open_nursery() as nursery:

            async def answer(call: Call) -> None:
                for revision in revisions:
                    call.item([revision, []])

            server = RpcServer(world, SERVICE, {"range": in_task(nursery, answer)}, ERRORS, SilentLogger(), cluster="a")
            listener = await server.listen("127.0.0.1", 0)
            nursery.start_soon(server.run)
            remote = RemoteMetadata(world, [("127.0.0.1", listener.port)])
            nursery.start_soon(remote.run)
            with pytest.raises(MetadataUnavailable, match=meaning):
                await remote.range("a/")
            nursery.cancel_scope.cancel()

    trio.run(main)
