"""Calls to the leader of one partition of a table; a transaction is sent again with its number until it is answered.

1. An error that says that nothing was done is raised as it is. If an attempt may have had an effect, and none was
   answered within TRY_SECONDS, the outcome is unknown.
2. A topic that was deleted and created again is another table: the transactions of the first one fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import msgpack

from gnomon.client.addresses import Address
from gnomon.client.errors import BrokerFailed, BrokerUnreachable, NativeError, NotTaken, OutcomeUnknown, Unavailable
from gnomon.client.leaders import REACH_SECONDS, RETRIABLE, RETRY, TRY_SECONDS, Leaders
from gnomon.client.tables.numbers import OperationNumbers
from gnomon.log.tables.operation_id import WRITER_BYTES
from gnomon.log.tables.operations import Comparison, KeyOperation, encode_operations
from gnomon.log.tables.table_status import TableStatus
from gnomon.runtime.rpc.errors import NotSent, RpcFailed
from gnomon.runtime.rpc.stream import RpcStream
from gnomon.runtime.signal import Signal
from gnomon.runtime.world import Clock

T = TypeVar("T")


class ScannedPart(NamedTuple):
    """The part of a page that one partition has."""

    revision: int
    """The one that it shows."""
    age_ms: int
    """The milliseconds since the broker's last news of the log."""
    more: bool
    """Whether more keys follow."""
    listed: list[bytes]
    """Keys and stored entries in turn; keys alone if so asked."""


class TablePartition:
    """One partition, as one client uses it."""

    def __init__(self, clock: Clock, leaders: Leaders, topic: str, index: int, writer: bytes) -> None:
        """`writer` is random, and of this client and partition alone; it has WRITER_BYTES."""
        assert len(writer) == WRITER_BYTES, "an id of another length"
        self._clock = clock
        self._leaders = leaders
        self._topic = topic
        self._index = index
        self._writer = writer
        self._numbers = OperationNumbers()
        self._ended = Signal()
        self._topic_id: str | None = None
        self._leader: Address | None = None
        """The last known leader; None before the first look-up and after a failure."""

    async def transact(
        self, comparisons: Sequence[Comparison], then: Sequence[KeyOperation], otherwise: Sequence[KeyOperation]
    ) -> tuple[bool, list[Any]]:
        """Does a transaction once; returns whether its comparisons held, and the answers of the operations.

        Raises:
            NativeError: it was not done, or that is unknown: the error says which.
        """
        while not self._numbers.has_room:
            await self._ended.wait()
        number = self._numbers.begin()
        lists = [each.encode() for each in comparisons], encode_operations(then), encode_operations(otherwise)
        try:
            succeeded, attachment = await self._repeated(
                lambda: self._call("table_write", self._writer, number, self._numbers.answered_below, *lists),
                writes=True,
            )
        finally:
            self._numbers.end(number)
            self._ended.notify()
        return bool(succeeded), _listed(attachment)

    async def get(self, key: bytes, *, stale: bool) -> tuple[int, bytes]:
        """The milliseconds since the broker's last news of the log, and the stored entry, empty for an absent key."""
        (_, age_ms), packed = await self._repeated(lambda: self._call("table_get", key, stale))
        return int(age_ms), packed

    async def scan(
        self, prefix: bytes, after: bytes | None, limit: int, *, keys_only: bool, stale: bool
    ) -> ScannedPart:
        """The entries of the partition in a page."""
        answer, attachment = await self._repeated(
            lambda: self._call("table_scan", prefix, after, limit, keys_only, stale)
        )
        applied, age_ms, more = answer
        return ScannedPart(applied - 1, int(age_ms), bool(more), _listed(attachment))

    async def count(self, prefix: bytes, *, stale: bool) -> int:
        """The number of keys with a prefix."""
        return int(await self._repeated(lambda: self._answer("table_count", prefix, stale)))

    async def snapshot(self) -> tuple[int, int, int, bytes]:
        """Takes a snapshot if there is something new; revision, keys, bytes and digest of the newest one."""
        revision, keys, bytes_used, digest = await self._repeated(lambda: self._answer("table_snapshot"))
        return revision, keys, bytes_used, digest

    async def status(self, *, digest: bool) -> TableStatus:
        """The state of the partition's table."""
        fields = await self._repeated(lambda: self._answer("table_status", digest))
        try:
            return TableStatus.decode(self._index, fields)
        except ValueError as error:
            raise BrokerFailed(str(error)) from error

    def watch(self, prefix: bytes, position: int) -> AbstractAsyncContextManager[RpcStream]:
        """The changes of a prefix from a revision on, from the present leader: items of an end and changes.

        Raises:
            Exception: as a call; the leader is looked up again with the next one.
        """
        return self._stream("table_watch", prefix, position)

    def parts(self) -> AbstractAsyncContextManager[RpcStream]:
        """The newest snapshot, from the present leader: revision, keys, bytes and digest, and then parts of entries.

        Raises:
            Exception: as `watch`.
        """
        return self._stream("table_parts")

    @asynccontextmanager
    async def _stream(self, method: str, *args: Any) -> AsyncIterator[RpcStream]:
        try:
            leader = self._leader or await self._look_up()
            connection = self._leaders.connection(leader)
            await connection.opened()
            async with connection.rpc.stream(method, self._topic, self._topic_id, self._index, *args) as items:
                yield items
        except RpcFailed as error:
            raise BrokerFailed(str(error)) from error
        except RETRIABLE:
            self._leader = None
            raise

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        """Asks the leader until it answers.

        Args:
            writes: whether an attempt without an answer may have had an effect.
        """
        failures, began, unknown = 0, self._clock.monotonic(), False
        while True:
            try:
                return await attempt()
            except RETRIABLE as error:
                self._leader = None
                failures += 1
                unknown = unknown or (writes and not isinstance(error, (NotSent, NotTaken, BrokerUnreachable)))
                pause_seconds = RETRY.seconds(failures)
                seconds = REACH_SECONDS if isinstance(error, BrokerUnreachable) and not unknown else TRY_SECONDS
                if self._clock.monotonic() + pause_seconds > began + seconds:
                    raise _given_up(error, unknown) from None
            await self._clock.sleep(pause_seconds)

    async def _answer(self, method: str, *args: Any) -> Any:
        """The answer to a question that may take long: it has no time limit while the connection lives."""
        async with self._stream(method, *args) as items:
            async for answer in items:
                return answer
        raise BrokerFailed(f"the broker has not answered '{method}'")

    async def _call(self, method: str, *args: Any) -> tuple[Any, bytes]:
        leader = self._leader or await self._look_up()
        connection = self._leaders.connection(leader)
        await connection.opened()
        if connection.gone:
            raise NotSent(f"the connection to {connection.rpc.address} is lost: nothing was sent")
        try:
            return await connection.rpc.exchange(method, self._topic, self._topic_id, self._index, *args)
        except RpcFailed as error:
            raise BrokerFailed(str(error)) from error

    async def _look_up(self) -> Address:
        topic_id, leaders = await self._leaders.look_up_topic(self._topic)
        self._topic_id = self._topic_id or topic_id
        leader = leaders[self._index] if self._index < len(leaders) else None
        if leader is None:
            raise Unavailable(f"partition {self._index} of '{self._topic}' has no leader at the moment")
        self._leader = leader
        return leader


def _given_up(error: Exception, unknown: bool) -> NativeError:
    if unknown:
        return OutcomeUnknown(f"no answer within {TRY_SECONDS:.0f} s, so it may have been done: {error}")
    if isinstance(error, NotTaken):
        return Unavailable(str(error))
    return error if isinstance(error, NativeError) else BrokerUnreachable(str(error))


def _listed(attachment: bytes) -> list[Any]:
    try:
        found = msgpack.unpackb(attachment)
    except ValueError as error:
        raise BrokerFailed(f"the broker has answered in another form: {error}") from error
    if type(found) is not list:
        raise BrokerFailed("the broker has answered in another form: a list was expected")
    return found
