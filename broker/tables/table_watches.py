"""The watches of one partition's table, and the last batches, which most of them need.

1. A watch has a position: its client was sent all changes before it. The changes after it are in the log, so a slow
   client costs no memory.
2. A watch that waits at the end is woken only by a batch with one of its keys. Other batches move its position.
3. The last batches are kept up to KEPT_BYTES: many watches that follow the end read and unpack no batch again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from gnomon.broker.tables.table_state import AppliedBatch
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import memory_bytes
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.signal import Signal
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock

KEPT_BYTES: Final = 1 << 20
WOKEN_AT_ONCE: Final = 50
"""Watches that are woken in one turn; each takes some 30 us."""


class KeyWatch:
    """One watch, until its client ends it."""

    def __init__(self, prefix: bytes, first: Offset) -> None:
        """A watch of the keys with a prefix, from revision `first` on."""
        self.prefix = prefix
        self.first = first
        self.position = first
        self.items_sent = 0
        """The parts of the batch at `position` that the client was sent."""
        self.is_over = False
        """Whether this broker has no further changes."""
        self._waits = False
        self._signal = Signal()

    def reads(self) -> None:
        """The client is sent changes: the watch must be woken for those that come meanwhile."""
        self._signal.clear()
        self._waits = False

    async def woken(self) -> None:
        """Waits for a change."""
        self._waits = True
        await self._signal.wait()

    def wants(self, batch: AppliedBatch) -> bool:
        """Whether the watch has to be woken for a batch that was applied; if not, its position is moved."""
        follows = self._waits and self.position == batch.base_offset
        if follows and not any(change.key.startswith(self.prefix) for change in batch.changes):
            self.position = batch.next_offset
            return False
        return True

    def wake(self) -> None:
        """There may be changes."""
        self._signal.set()


class TableWatches:
    """The watches of one partition."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        """No watch, and no batch."""
        self._clock = clock
        self._tasks = tasks
        self._ready: deque[KeyWatch] = deque()
        """Watches to wake, in later turns."""
        self._watches: dict[KeyWatch, None] = {}
        self._kept: deque[AppliedBatch] = deque()
        self._kept_bytes = 0
        self.reading = trio.Lock()
        """Held by the one watch that reads from the log: the changes that it has read are in memory once."""

    def __len__(self) -> int:
        """The number of watches."""
        return len(self._watches)

    def add(self, watch: KeyWatch) -> None:
        """The watch is woken from now on."""
        self._watches[watch] = None

    def remove(self, watch: KeyWatch) -> None:
        """Undoes `add`; the last batches are kept as long as there are watches."""
        self._watches.pop(watch, None)
        if not self._watches:
            self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def applied(self, batch: AppliedBatch) -> None:
        """A batch was applied, the one after those before."""
        if not self._watches:
            return
        if self._kept and self._kept[-1].next_offset != batch.base_offset:
            self._forget()
        self._kept.append(batch)
        self._kept_bytes += memory_bytes(batch.changes)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= memory_bytes(self._kept.popleft().changes)
        self._wake([watch for watch in self._watches if watch.wants(batch)])

    def kept_at(self, offset: Offset) -> AppliedBatch | None:
        """The kept batch that covers `offset`; None if it is not kept."""
        if not self._kept or not self._kept[0].base_offset <= offset < self._kept[-1].next_offset:
            return None
        return next(batch for batch in self._kept if batch.next_offset > offset)

    def wake(self) -> None:
        """Wakes all watches: the log may have more than was applied."""
        self._wake(list(self._watches))

    def _wake(self, watches: Sequence[KeyWatch]) -> None:
        """Wakes a few watches now, and the others in later turns: each sends its client something."""
        for watch in watches[:WOKEN_AT_ONCE]:
            watch.wake()
        rest = watches[WOKEN_AT_ONCE:]
        if rest and not self._ready:
            self._tasks.start_soon(self._wake_rest)
        self._ready += rest

    async def _wake_rest(self) -> None:
        while self._ready:
            await self._clock.sleep(PAUSE_SECONDS)
            for _ in range(min(WOKEN_AT_ONCE, len(self._ready))):
                self._ready.popleft().wake()

    def end(self) -> None:
        """This broker has no further changes."""
        self._forget()
        for watch in list(self._watches):
            watch.is_over = True
            watch.wake()
