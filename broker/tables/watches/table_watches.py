"""The watches of one partition's table, and the last batches, which most of them need.

1. A watch has a position: its client was sent all changes before it. The changes after it are in the log, so a slow
   client costs no memory.
2. The keys of a batch that was applied are looked up among those that are watched (`watched_batch`), in several turns
   if there are many.
3. A watch that waits at the end is woken only by a batch with one of its keys. Other batches move its position.
4. The last batches are kept up to KEPT_BYTES, those of all tables up to ALL_KEPT_BYTES: the many watches that follow
   the end read and unpack no batch again.
5. If more than UNSEEN_CHANGES_MAX changes wait to be looked up, or some were not applied here, all watches are woken,
   and read the log.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Final

import trio

from gnomon.broker.tables.table_state import AppliedBatch
from gnomon.broker.tables.watches.watched_batch import BatchSpan, WatchedBatch, WatchedPrefixes
from gnomon.log.entry import Offset
from gnomon.runtime.loop.paced import PAUSE_SECONDS, in_turns
from gnomon.runtime.signal import Signal
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock

KEPT_BYTES: Final = 4 << 20
ALL_KEPT_BYTES: Final = 64 << 20
UNSEEN_CHANGES_MAX: Final = 40_000
WOKEN_AT_ONCE: Final = 50
"""Watches that are woken in one turn; each takes some 30 us."""


class KeyWatch:
    """One watch, until its client ends it."""

    def __init__(self, prefix: bytes, first: Offset) -> None:
        """A watch of the keys with a prefix, from revision `first` on."""
        self.prefix = prefix
        self.first = first
        self.position = first
        self.since = Offset(0)
        """The keys of the batches from this offset on are looked up for this watch, too."""
        self.items_sent = 0
        """The parts of the batch at `position` that the client was sent."""
        self.is_over = False
        """Whether this broker has no further changes."""
        self.waits = False
        """Whether nothing was found since it began to wait."""
        self.signal = Signal()

    def reads(self) -> None:
        """The client is sent changes: the watch must be woken for those that come meanwhile."""
        self.signal.clear()

    def found(self, base_offset: Offset) -> None:
        """The batch at an offset has one of its keys: the watch is woken soon, and goes on there if it waits."""
        if self.waits:
            self.waits = False
            self.position = max(self.position, base_offset)


class WatchesMemory:
    """Counts the bytes of the batches that the tables of a broker keep for their watches."""

    def __init__(self) -> None:
        """Nothing is kept."""
        self.bytes_used = 0


class TableWatches:
    """The watches of one partition."""

    def __init__(self, memory: WatchesMemory, clock: Clock, tasks: Tasks) -> None:
        """No watch, and no batch; `memory` counts those of all tables."""
        self._memory = memory
        self._clock = clock
        self._tasks = tasks
        self._ready: OrderedDict[KeyWatch, None] = OrderedDict()
        """Watches to wake, in later turns."""
        self._watches: dict[KeyWatch, None] = {}
        self._prefixes: WatchedPrefixes[KeyWatch] = WatchedPrefixes()
        self._unseen: deque[tuple[Iterator[None], int]] = deque()
        """The steps of batches whose keys are not looked up yet, and the number of their changes."""
        self._unseen_changes = 0
        self._is_looking = False
        self._applied_to = Offset(0)
        self._seen_to = Offset(0)
        """The keys of all batches below this offset are looked up, or their watches woken."""
        self._kept: OrderedDict[Offset, WatchedBatch] = OrderedDict()
        """The last batches, by their first offset."""
        self._kept_bytes = 0
        self.reading = trio.Lock()
        """Held by the one watch that reads from the log, or from a long batch: the changes that it has read are in
        memory once."""

    def __len__(self) -> int:
        """The number of watches."""
        return len(self._watches)

    def add(self, watch: KeyWatch) -> None:
        """The watch is woken from now on."""
        watch.since = self._applied_to
        self._watches[watch] = None
        self._prefixes.add(watch.prefix, watch)

    def remove(self, watch: KeyWatch) -> None:
        """Undoes `add`; the last batches are kept as long as there are watches."""
        del self._watches[watch]
        self._prefixes.remove(watch.prefix, watch)
        if not self._watches:
            self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._count(-self._kept_bytes)
        self._unseen.clear()
        self._unseen_changes = 0

    # --- batches ------------------------------------------------------------------------------------------------

    def applied(self, batch: AppliedBatch) -> None:
        """A batch was applied, the one after those before."""
        if not self._watches:
            return
        self._applied_to = batch.next_offset
        steps = self._look_up(batch)
        if not self._is_looking and next(steps, self) is self:  # one step was enough
            return
        self._unseen.append((steps, len(batch.changes)))
        self._unseen_changes += len(batch.changes)
        if self._unseen_changes > UNSEEN_CHANGES_MAX:
            self._forget()
            self.wake()
        elif not self._is_looking:
            self._is_looking = True
            self._tasks.start_soon(self._look_up_unseen)

    async def _look_up_unseen(self) -> None:
        while self._unseen:
            await self._clock.sleep(PAUSE_SECONDS)
            if self._unseen:
                steps, changes = self._unseen.popleft()
                self._unseen_changes -= changes
                await in_turns(steps, self._clock)
        self._is_looking = False

    def _look_up(self, batch: AppliedBatch) -> Iterator[None]:
        """Looks up the keys of a batch, and then wakes the watches of those that are watched."""
        watched = WatchedBatch(batch)
        yield from watched.look_up(self._prefixes)
        if not self._watches:
            return
        follows = batch.base_offset == self._seen_to
        self._seen_to = batch.next_offset
        self._keep(watched)
        if not follows:
            self.wake()
            return
        found = [watch for prefix in watched.spans for watch in self._prefixes.of(prefix)]
        for watch in found:
            watch.found(batch.base_offset)
        self._wake(found)

    def _keep(self, watched: WatchedBatch) -> None:
        self._kept[watched.batch.base_offset] = watched
        self._count(watched.bytes_used)
        while self._kept and (self._kept_bytes > KEPT_BYTES or self._memory.bytes_used > ALL_KEPT_BYTES):
            self._count(-self._kept.popitem(last=False)[1].bytes_used)

    def _count(self, more_bytes: int) -> None:
        self._kept_bytes += more_bytes
        self._memory.bytes_used += more_bytes

    def kept_for(self, watch: KeyWatch) -> BatchSpan | None:
        """The kept batch that begins at the position of a watch; None if there is none from `watch.since` on."""
        kept = self._kept.get(watch.position)
        if kept is None or kept.batch.base_offset < watch.since:
            return None
        first, last = kept.spans.get(watch.prefix, (0, -1))
        return BatchSpan(kept.batch, first, last + 1)

    # --- waiting ------------------------------------------------------------------------------------------------

    async def wait(self, watch: KeyWatch, seconds: float) -> bool:
        """Waits until there may be changes for a watch, or for so long, and moves it beyond those of others' keys.

        Returns:
            Whether there was no change of any key all the time.
        """
        if watch.position < self._seen_to:  # some were looked up before it waits
            await trio.lowlevel.checkpoint()
            return False
        before = watch.position
        watch.waits = True
        with trio.move_on_after(seconds) as waiting:
            await watch.signal.wait()
        if watch.waits:
            watch.waits = False
            watch.position = max(watch.position, self._seen_to)
        return waiting.cancelled_caught and watch.position == before

    def wake(self) -> None:
        """Wakes all watches: the log may have more than was applied."""
        watches = list(self._watches)
        for watch in watches:
            watch.waits = False
        self._wake(watches)

    def _wake(self, watches: Sequence[KeyWatch]) -> None:
        """Wakes a few watches now, and the others in later turns: each sends its client something."""
        for watch in watches[:WOKEN_AT_ONCE]:
            watch.signal.set()
        rest = watches[WOKEN_AT_ONCE:]
        if rest and not self._ready:
            self._tasks.start_soon(self._wake_rest)
        self._ready.update(dict.fromkeys(rest))

    async def _wake_rest(self) -> None:
        while self._ready:
            await self._clock.sleep(PAUSE_SECONDS)
            for _ in range(min(WOKEN_AT_ONCE, len(self._ready))):
                watch, _ = self._ready.popitem(last=False)
                watch.signal.set()

    def end(self) -> None:
        """This broker has no further changes."""
        self._forget()
        for watch in list(self._watches):
            watch.is_over = True
            watch.signal.set()
