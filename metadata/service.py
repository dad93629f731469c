"""Serves a metadata store to other processes; `metadata/remote.py` is the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import trio

from gnomon.metadata.client import InvalidRequest, KeyValue, LeaseId, Metadata, RangeResult, Revision
from gnomon.metadata.messages import (
    ERRORS,
    HEADS,
    SERVICE,
    MalformedMessage,
    checked,
    decode_compare,
    decode_operations,
    encode_batch,
    encode_item,
    encode_range,
    encode_txn_result,
)
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc.call import Call, in_task
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Listener, World

PROGRESS_REVISIONS = 256
"""After this many revisions without an event below its prefix a watcher gets its revision, so that it can resume there:
the history before may be compacted."""
PART_BYTES = 64 << 10
"""Approximate size of keys and values in one item of a range's stream: other calls are served between two items."""


async def serve_metadata(
    world: World,
    metadata: Metadata,
    tasks: Tasks,
    log: Logger,
    host: str,
    port: int,
    *,
    cluster: str,
) -> Listener:
    """Serves from now on, in `tasks`, until they are cancelled. They must have ended before the store is closed.

    Args:
        cluster: the id of this cluster; clients that name another one are refused.

    Raises:
        AddressTaken: the address is in use or not one of this machine.
    """
    served = _Served(metadata)
    work: dict[str, Callable[[Call], Awaitable[object]]] = {
        "get": served.get,
        "range": served.range,
        "txn": served.txn,
        "watch": served.watch,
        "lease": served.lease,
        "keep_alive": served.keep_alive,
        "revoke": served.revoke,
        "compact": served.compact,
    }
    methods = {name: in_task(tasks, _refusing_malformed(call)) for name, call in work.items()}
    server = RpcServer(world, SERVICE, methods, ERRORS, log, cluster=cluster, heads=HEADS)
    listener = await server.listen(host, port)
    tasks.start_soon(server.run)
    return listener


def _refusing_malformed(work: Callable[[Call], Awaitable[object]]) -> Callable[[Call], Awaitable[object]]:
    async def refusing(call: Call) -> object:
        try:
            return await work(call)
        except MalformedMessage as error:
            raise InvalidRequest(f"the request cannot be read: {error}: is the caller another version?") from error

    return refusing


def _args(call: Call, count: int) -> list[Any]:
    if len(call.args) != count:
        raise MalformedMessage(f"{count} arguments were expected, not {len(call.args)}")
    return call.args


def _parts(items: Sequence[KeyValue]) -> Iterator[tuple[KeyValue, ...]]:
    """Parts of about `PART_BYTES`; one empty part if there are no items."""
    part: list[KeyValue] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(item.key) + len(item.value)
        if size >= PART_BYTES:
            yield tuple(part)
            part, size = [], 0
    if part or not items:
        yield tuple(part)


class _Served:
    """The methods of `Metadata` as methods of the RPC service."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def get(self, call: Call) -> object:
        (key,) = _args(call, 1)
        return encode_item(await self._metadata.get(checked(str, key)))

    async def range(self, call: Call) -> object:
        """Answers in parts of one revision to a client that opens a stream; whole to a client that calls, as older
        clients do."""
        (prefix,) = _args(call, 1)
        found = await self._metadata.range(checked(str, prefix))
        if not call.streams:
            return encode_range(found)
        for part in _parts(found.items):
            call.item(encode_range(RangeResult(found.revision, part)))
            await trio.lowlevel.checkpoint()
            await call.room()
        return None

    async def txn(self, call: Call) -> object:
        compare, then, otherwise = _args(call, 3)
        result = await self._metadata.txn(
            decode_compare(compare), decode_operations(then), decode_operations(otherwise)
        )
        return encode_txn_result(result)

    async def watch(self, call: Call) -> None:
        """A batch without events means that there were none below the prefix up to its revision."""
        prefix, from_revision = _args(call, 2)
        prefix = checked(str, prefix)
        quiet_revisions = 0
        async with self._metadata.watch("", Revision(checked(int, from_revision))) as batches:
            async for batch in batches:
                below = batch.below(prefix)
                quiet_revisions += 1
                if below.events or quiet_revisions >= PROGRESS_REVISIONS:
                    quiet_revisions = 0
                    call.item(encode_batch(below))
                    await call.room()

    async def lease(self, call: Call) -> object:
        (ttl_seconds,) = _args(call, 1)
        return await self._metadata.lease(checked(float, ttl_seconds))

    async def keep_alive(self, call: Call) -> None:
        (lease,) = _args(call, 1)
        await self._metadata.keep_alive(LeaseId(checked(int, lease)))

    async def revoke(self, call: Call) -> None:
        (lease,) = _args(call, 1)
        await self._metadata.revoke(LeaseId(checked(int, lease)))

    async def compact(self, call: Call) -> None:
        (revision,) = _args(call, 1)
        await self._metadata.compact(Revision(checked(int, revision)))
