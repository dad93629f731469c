"""The outbox of a replicator: the ids of entries that a shadow's partition has not acknowledged, as runs. Pure.

1. Ids are sent in the order of the log. Unacknowledged ids of a lost connection are sent again, before later ones.
2. Adjacent ids are one run. At most RUNS_MAX runs of any length wait to be sent; beyond that the oldest run is
   discarded: a shadow that receives a later id reads the entries before it from storage.
3. An outbox holds only ids. The bytes of an entry are sent only if its id is sent at once, without waiting here.
4. The cursor is directly after the last acknowledged entry, and never moves back. A replicator that starts again begins
   with the entry at the cursor.
5. If `entries_max` is set, at most that many entries wait to be sent. Beyond that, all of them except the last one are
   skipped (auto-reset).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.log.entry import Offset

RUNS_MAX = 64
"""A run ends with its segment or its writer's session, so that many runs are hours or gigabytes of log."""
NO_LIMIT = 0


class EntryRun(NamedTuple):
    """Adjacent entries of one segment, all confirmed."""

    segment: Offset
    """The base offset of the segment."""
    session: SessionId
    """The session of the writer that confirmed them."""
    first: EntryId
    last: EntryId
    offset: Offset
    """The offset of the first record."""
    next_offset: Offset
    """The offset after the last record."""
    size_bytes: int
    since: float
    """The monotonic second at which the first entry was confirmed."""

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.last + 1 - self.first

    def joined(self, run: EntryRun) -> EntryRun | None:
        """Both runs as one; None if `run` does not begin directly after this one."""
        if (run.segment, run.session, run.first) != (self.segment, self.session, self.last + 1):
            return None
        return self._replace(last=run.last, next_offset=run.next_offset, size_bytes=self.size_bytes + run.size_bytes)


class ReplicatorCursor(NamedTuple):
    """The position of a replicator: the next entry to replicate, which may not exist yet."""

    segment: Offset
    entry: EntryId


class Outbox:
    """The outbox for one shadow and partition; `entries_max` is the limit of invariant 5."""

    def __init__(self, entries_max: int = NO_LIMIT) -> None:
        self.cursor: ReplicatorCursor | None = None
        """None if no entry was ever acknowledged."""
        self.acked_entries = self.acked_records = self.acked_bytes = 0
        self.resets = 0
        """The number of times that entries were skipped because too many waited."""
        self._entries_max = entries_max
        self._unsent: deque[EntryRun] = deque()
        self._sent: deque[tuple[int, EntryRun]] = deque()

    @property
    def unsent(self) -> bool:
        """Whether ids wait to be sent."""
        return bool(self._unsent)

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._unsent and not self._sent

    def start(self, cursor: ReplicatorCursor | None, runs: Iterable[EntryRun]) -> None:
        """Sets the cursor, unless this outbox has a later one, and replaces the runs by those after the cursor.

        Args:
            cursor: the stored one. Without a cursor only the last entry is sent: the shadow reads earlier ones from
                storage.
            runs: everything that is confirmed, from the first kept segment.
        """
        self._sent.clear()
        self._unsent.clear()
        self.cursor = max(filter(None, (self.cursor, cursor)), default=None)
        for run in runs:
            left = run if self.cursor is None else _after(run, self.cursor)
            if left is not None:
                self.confirmed(left)
        if self.cursor is None:
            self._skip_to_last()
        self._check_limit()

    def confirmed(self, run: EntryRun) -> None:
        """Adds entries that follow all others."""
        unsent = self._unsent
        joined = unsent[-1].joined(run) if unsent else None
        if joined is None:
            unsent.append(run)
            if len(unsent) > RUNS_MAX:
                unsent.popleft()
        else:
            unsent[-1] = joined
        if self._entries_max:
            self._check_limit()

    def take(self, frame: int) -> tuple[EntryRun, ...]:
        """Returns everything unsent, which the frame of this number then sends; numbers grow."""
        runs = tuple(self._unsent)
        self._unsent.clear()
        self._sent.extend((frame, run) for run in runs)
        return runs

    def acked(self, frame: int) -> None:
        """The frames up to this one are acknowledged."""
        while self._sent and self._sent[0][0] <= frame:
            _, run = self._sent.popleft()
            cursor = ReplicatorCursor(run.segment, EntryId(run.last + 1))
            self.cursor = cursor if self.cursor is None else max(self.cursor, cursor)
            self.acked_entries += run.entries
            self.acked_records += run.next_offset - run.offset
            self.acked_bytes += run.size_bytes

    def lost(self) -> None:
        """The connection is lost: unacknowledged runs become unsent again."""
        runs = [*(run for _, run in self._sent), *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        for run in runs:
            self.confirmed(run)

    # --- the backlog ----------------------------------------------------------------------------------------------

    def backlog(self) -> tuple[int, int, float | None]:
        """The unacknowledged entries and bytes, and the monotonic second at which the oldest entry was confirmed."""
        runs = [*(run for _, run in self._sent), *self._unsent]
        since = runs[0].since if runs else None
        return sum(run.entries for run in runs), sum(run.size_bytes for run in runs), since

    def _check_limit(self) -> None:
        if self._entries_max and sum(run.entries for run in self._unsent) > self._entries_max:
            self._skip_to_last()
            self.resets += 1

    def _skip_to_last(self) -> None:
        """Discards everything unsent except the last entry."""
        if self._unsent:
            last = _shortened(self._unsent[-1], self._unsent[-1].last)
            self._unsent.clear()
            self._unsent.append(last)


def _after(run: EntryRun, cursor: ReplicatorCursor) -> EntryRun | None:
    """The part of a run from the cursor on; None if the cursor is after all of it."""
    if cursor <= (run.segment, run.first):
        return run
    return None if cursor > (run.segment, run.last) else _shortened(run, cursor.entry)


def _shortened(run: EntryRun, first: EntryId) -> EntryRun:
    """The same run from a later entry on; its offset and bytes are estimates, since no entry is read for it."""
    left, entries = run.last + 1 - first, run.entries
    if left == entries:
        return run
    offset = Offset(run.next_offset - (run.next_offset - run.offset) * left // entries)
    return run._replace(first=first, offset=offset, size_bytes=run.size_bytes * left // entries)
