"""A metadata store in another process: `Metadata` over RPC, the client of `metadata/service.py`.

1. A transaction is sent again only if the attempt before certainly had no effect. If the effect of an attempt is
   unknown, the transaction ends with MetadataUnavailable. Every other request is safe to repeat, and is repeated within
   a time limit.
2. A watch survives lost connections without gap or repeat, for any length of time. It ends only with HistoryCompacted,
   if the history that it needs is gone, or with another error, if the other side is of another cluster or version.
3. All addresses serve one store: if one address does not answer, the next is asked. After the first answer, only the
   cluster that gave it is accepted at these addresses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import trio

from gnomon.metadata.client import (
    Compare,
    InvalidRequest,
    KeyValue,
    LeaseId,
    MetadataFull,
    MetadataUnavailable,
    Operation,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.messages import (
    ERRORS,
    HEADS,
    SERVICE,
    MalformedMessage,
    checked,
    decode_batch,
    decode_item,
    decode_range,
    decode_txn_result,
    encode_compare,
    encode_operations,
)
from gnomon.metadata.request import Txn, refusal
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.rpc.errors import NotSent, RpcFailed, RpcRefused
from gnomon.runtime.rpc.stream import RpcStream
from gnomon.runtime.world import Unreachable, World

T = TypeVar("T")

CALL_SECONDS = 5.0
RETRY_SECONDS = 15.0
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0


class RemoteMetadata:
    """A `Metadata`; nothing happens unless `run` is running."""

    def __init__(
        self,
        world: World,
        addresses: Sequence[tuple[str, int]],
        *,
        call_seconds: float = CALL_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Connects on first use.

        Args:
            addresses: host and port of each process that serves the store.
            call_seconds: time limit of one attempt; a range has the limit for each of its parts.
            retry_seconds: time after which no further attempt begins.
        """
        assert addresses, "a metadata store without an address"
        self.clock = world.clock
        self._clients = [
            RpcClient(world, host, port, SERVICE, ERRORS, call_seconds=call_seconds, heads=HEADS)
            for host, port in addresses
        ]
        self._retry_seconds = retry_seconds

    @property
    def client(self) -> RpcClient:
        """The client of the current address."""
        return self._clients[0]

    async def run(self) -> None:
        """Drives the connections until cancelled; calls under way then end with MetadataUnavailable."""
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                nursery.start_soon(client.run)

    async def get(self, key: str) -> KeyValue | None:
        """See `Metadata.get`."""
        return await self._ask(decode_item, "get", key)

    async def range(self, prefix: str) -> RangeResult:
        """See `Metadata.range`; it arrives in parts of one revision, so it may be larger than a frame."""
        return await self._attempts("range", lambda client: _range(client, prefix))

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """See `Metadata.txn`; after a cancellation the outcome is unknown."""
        refused = refusal(Txn(tuple(compare), tuple(then), tuple(otherwise)))
        if refused is not None:  # also a text that cannot be encoded as UTF-8
            raise InvalidRequest(f"the transaction is refused: {refused}")
        args = encode_compare(compare), encode_operations(then), encode_operations(otherwise)
        return await self._ask(decode_txn_result, "txn", *args, repeat=False)

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """See `Metadata.watch`; it waits while the store is away."""
        return self._watch(prefix, from_revision)

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """See `Metadata.lease`; a lease whose grant was not received ends by itself."""
        return LeaseId(await self._ask(_number, "lease", float(ttl_seconds)))

    async def keep_alive(self, lease: LeaseId) -> None:
        """See `Metadata.keep_alive`."""
        await self._ask(_nothing, "keep_alive", lease)

    async def revoke(self, lease: LeaseId) -> None:
        """See `Metadata.revoke`."""
        await self._ask(_nothing, "revoke", lease)

    async def compact(self, revision: Revision) -> None:
        """See `Metadata.compact`."""
        await self._ask(_nothing, "compact", revision)

    def give_up_on(self, client: RpcClient) -> None:
        """Switches to the next address, because this client did not answer."""
        if client is self._clients[0]:
            self._clients.append(self._clients.pop(0))
            self._clients[0].cluster = client.cluster

    @asynccontextmanager
    async def _watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        async with AsyncExitStack() as stream:
            yield RemoteWatcher(self, prefix, from_revision, stream)

    async def _ask(self, decode: Callable[[Any], T], method: str, *args: Any, repeat: bool = True) -> T:
        """Makes a call with the attempts of `_attempts`."""

        async def call(client: RpcClient) -> T:
            return decode(await client.call(method, *args))

        return await self._attempts(method, call, repeat=repeat)

    async def _attempts(self, method: str, attempt: Callable[[RpcClient], Awaitable[T]], *, repeat: bool = True) -> T:
        """Attempts until one succeeds or is final.

        Args:
            repeat: whether an attempt of unknown outcome is repeated.
        """
        deadline = self.clock.monotonic() + self._retry_seconds
        pause_seconds = PAUSE_SECONDS_MIN
        while True:
            client = self.client
            try:
                return await attempt(client)
            except (Unreachable, MetadataUnavailable) as error:
                certain = isinstance(error, NotSent)
                lasting = isinstance(error, MetadataFull) or (isinstance(error, RpcRefused) and len(self._clients) == 1)
                late = self.clock.monotonic() + pause_seconds > deadline
                if lasting or late or not (repeat or certain):
                    raise _unavailable(error) from error
            except (RpcFailed, MalformedMessage) as error:
                raise _unavailable(error) from error
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidRequest(f"{method} cannot be asked for with this: {error}") from error
            self.give_up_on(client)
            await self.clock.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)


class RemoteWatcher:
    """A position in the history of one prefix, and the stream that advances it, if there is one now."""

    def __init__(self, metadata: RemoteMetadata, prefix: str, from_revision: Revision, stream: AsyncExitStack) -> None:
        self._metadata, self._prefix, self._position = metadata, prefix, from_revision
        self._stack = stream
        self._client: RpcClient | None = None
        self._items: RpcStream | None = None
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._asked_at = 0.0

    def __aiter__(self) -> RemoteWatcher:
        return self

    async def __anext__(self) -> WatchBatch:
        """The next batch; a cancelled call loses none."""
        while True:
            try:
                batch = decode_batch(await anext(await self._stream()))
                if batch.revision < self._position:
                    raise MalformedMessage(f"a watch from revision {self._position} was given {batch.revision}")
            except (Unreachable, MetadataUnavailable, StopAsyncIteration) as error:
                await self.drop_stream()
                if isinstance(
                    error, RpcRefused
                ):  # the caller gets the error; if it asks again, the next address is asked
                    raise _unavailable(error) from error
                continue
            except (RpcFailed, MalformedMessage) as error:
                raise _unavailable(error) from error
            self._pause_seconds = PAUSE_SECONDS_MIN
            self._position = Revision(batch.revision + 1)
            if batch.events:
                return batch

    async def _stream(self) -> RpcStream:
        if self._items is None:
            self._client, self._asked_at = self._metadata.client, self._metadata.clock.monotonic()
            opened = self._client.stream("watch", self._prefix, self._position)
            self._items = await self._stack.enter_async_context(opened)
        return self._items

    async def drop_stream(self) -> None:
        """Drops the stream, gives up on its address and pauses; the next stream continues from the position."""
        self._items = None
        await self._stack.aclose()
        if self._client is not None:
            self._metadata.give_up_on(self._client)
        if self._metadata.clock.monotonic() - self._asked_at > PAUSE_SECONDS_MAX:
            self._pause_seconds = PAUSE_SECONDS_MIN  # the stream has lived, perhaps without news
        pause_seconds, self._pause_seconds = self._pause_seconds, min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        await self._metadata.clock.sleep(pause_seconds)


async def _range(client: RpcClient, prefix: str) -> RangeResult:
    try:
        async with client.stream("range", prefix) as forms:
            parts = [decode_range(form) async for form in forms]
    except (
        RpcFailed
    ):  # watches may use all streams of the connection; a range that fits a frame can be read without one
        return decode_range(await client.call("range", prefix))
    if not parts:
        raise MalformedMessage("a range came without its keys: is the caller a newer gnomon than the metadata service?")
    if len({part.revision for part in parts}) > 1:
        raise MalformedMessage("the parts of a range are not of one revision")
    return RangeResult(parts[0].revision, tuple([item for part in parts for item in part.items]))


def _number(value: Any) -> int:
    return checked(int, value)


def _nothing(value: Any) -> None:
    return None


def _unavailable(error: Exception) -> MetadataUnavailable:
    return error if isinstance(error, MetadataUnavailable) else MetadataUnavailable(str(error))
