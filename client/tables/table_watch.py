"""A watch of a table: the present values, if they are wanted, and then every change, once and in its order.

    async with table.watch(b"config/") as events:
        async for event in events:
            print(event.kind, event.key, event.value)

1. Of each partition the changes come in the order of their revisions, each once, over any number of brokers. The
   changes of one batch are known together.
2. With `initial`, an event of the kind `current` comes first for each key, and then each change after the value shown.
3. Each partition reads ahead at most AHEAD_EVENTS events, and the brokers wait: a slow reader costs them no memory.
4. The watch ends with `close`, with its block, or with its client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import trio

from gnomon.client.errors import BrokerFailed, InvalidCall, NativeError, Unavailable
from gnomon.client.leaders import RETRIABLE, RETRY, TRY_SECONDS
from gnomon.client.tables.table_partition import TablePartition
from gnomon.log.tables.table_entry import TableEntry
from gnomon.runtime.world import Clock

AHEAD_EVENTS = 1_000
PAGE_ENTRIES = 1_000

Kind = Literal["put", "delete", "expired", "current"]


@dataclass(frozen=True, slots=True)
class TableEvent:
    """One change of a key, or its present value."""

    kind: Kind
    """`expired` is a deletion after the time to live; `current` is a value that was there when the watch began."""
    key: bytes
    value: bytes | None
    """None for a deletion."""
    revision: int
    partition: int


class TableWatch:
    """Made by `Table.watch`; an asynchronous iterator of `TableEvent`."""

    def __init__(
        self,
        clock: Clock,
        prefix: bytes,
        revisions: Mapping[int, int] | None,
        partitions: Callable[[], Awaitable[Sequence[TablePartition]]],
        nursery: trio.Nursery,
        *,
        initial: bool,
        ahead_events: int = AHEAD_EVENTS,
    ) -> None:
        """A watch that has begun.

        Args:
            revisions: the first revision by partition; None for the changes from now on.
            partitions: returns those of the table.
            nursery: runs the tasks of the watch.
        """
        self._clock = clock
        self._prefix = prefix
        self._initial = initial
        self._events, self._received = trio.open_memory_channel[TableEvent](ahead_events)
        self._error: NativeError | None = None
        self._scope = trio.CancelScope()
        nursery.start_soon(self._run, partitions, revisions)

    def __aiter__(self) -> TableWatch:
        return self

    async def __anext__(self) -> TableEvent:
        """The next event.

        Raises:
            Compacted: retention has overtaken the watch; changes are lost to it.
            NativeError: the watch failed; the text says why.
        """
        try:
            return await self._received.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None

    async def __aenter__(self) -> TableWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch."""
        self._scope.cancel()
        self._received.close()

    async def _run(
        self, partitions: Callable[[], Awaitable[Sequence[TablePartition]]], revisions: Mapping[int, int] | None
    ) -> None:
        with self._events, self._scope:
            try:
                found = await partitions()
                if revisions is not None and set(revisions) != set(range(len(found))):
                    raise InvalidCall(f"a watch needs a revision of each of the partitions 0 to {len(found) - 1}")
            except NativeError as error:
                self._fail(error)
                return
            async with trio.open_nursery() as nursery:
                for index, partition in enumerate(found):
                    first = None if revisions is None else revisions[index]
                    nursery.start_soon(self._follow_or_fail, index, partition, first)

    async def _follow_or_fail(self, index: int, partition: TablePartition, first: int | None) -> None:
        try:
            await self._follow(index, partition, first)
        except NativeError as error:
            self._fail(error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader is gone

    def _fail(self, error: NativeError) -> None:
        self._error = self._error or error
        self._scope.cancel()

    async def _follow(self, index: int, partition: TablePartition, first: int | None) -> None:
        shown: list[tuple[bytes | None, int]] = []
        if self._initial and first is None:
            shown = await self._show_current(index, partition)
            first = shown[0][1]
        elif first is None:
            part = await partition.scan(self._prefix, None, 1, keys_only=True, stale=False)
            first = part.revision + 1
        position, failures, since = first, 0, 0.0
        held: list[TableEvent] = []
        while True:
            try:
                async with partition.watch(self._prefix, position) as items:
                    async for end, changes in items:
                        failures = 0
                        held += [event for item in changes if (event := _event(item, index, shown)) is not None]
                        if end is None:
                            continue
                        for event in held:
                            await self._events.send(event)
                        held, position = [], end
            except RETRIABLE as error:
                held = []
                since = since if failures else self._clock.monotonic()
                failures += 1
                if self._clock.monotonic() - since > TRY_SECONDS:
                    raise error if isinstance(error, NativeError) else Unavailable(str(error)) from error
                await self._clock.sleep(RETRY.seconds(failures))

    async def _show_current(self, index: int, partition: TablePartition) -> list[tuple[bytes | None, int]]:
        """Sends the present values; returns the last key of each page, and the first revision that it does not show."""
        pages: list[tuple[bytes | None, int]] = []
        after: bytes | None = None
        more = True
        while more:
            part = await partition.scan(self._prefix, after, PAGE_ENTRIES, keys_only=False, stale=False)
            more = part.more
            for key, packed in zip(part.listed[::2], part.listed[1::2], strict=True):
                entry = TableEntry.decode(key, packed, index)
                await self._events.send(TableEvent("current", key, entry.value, entry.revision, index))
                after = key
            pages.append((after if more else None, part.revision + 1))
        return pages


def _event(item: Any, index: int, shown: list[tuple[bytes | None, int]]) -> TableEvent | None:
    """The event of a change; None if a page has shown its effect already."""
    try:
        revision, key, value, is_expiry = item
    except (TypeError, ValueError) as error:
        raise BrokerFailed(f"the broker has answered in another form: {error}") from error
    for last, first in shown:
        if last is None or key <= last:
            if revision < first:
                return None
            break
    kind: Kind = "put" if value is not None else "expired" if is_expiry else "delete"
    return TableEvent(kind, key, value, revision, index)


def checked_revisions(revision: int | Mapping[int, int] | None) -> Mapping[int, int] | None:
    """The first revision of a watch by partition; a number alone is that of partition 0.

    Raises:
        InvalidCall: it is no revision.
    """
    if revision is None:
        return None
    if type(revision) is int:
        revision = {0: revision}
    if not isinstance(revision, Mapping) or any(type(each) is not int or each < 0 for each in revision.values()):
        raise InvalidCall(f"a watch begins at a revision from 0 on, not at {revision!r:.80}")
    return revision
