"""What one partition of a shadow is still to be told of its source: ids, in order, in few words. Pure.

1. Ids are told in the order of the log; what was told and not heard is told again, before what comes after it.
2. Ids that follow each other are one run, and at most RUNS_MAX runs wait, however long. Beyond, the oldest go: who
   is told of an entry reads from storage what lies before it.
3. An entry itself comes along only with an id that is told at once; what has to wait keeps its id alone.
4. The cursor is behind all that was heard and at nothing that was not; it never goes back. Who begins there leaves out
   nothing.
5. With a limit, never more entries than that wait: beyond it all but the last one are left out (auto-reset).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gnomon.bookie.ids import EntryId, Session
from gnomon.broker.partition.entry import Offset

RUNS_MAX = 64
"""A run ends with its segment or its writer's session, so these are hours or gigabytes."""
NO_LIMIT = 0


class Run(NamedTuple):
    """Entries of one segment that follow each other, all confirmed."""

    segment: Offset
    """The base offset of the segment."""
    session: Session
    """Of the writer that has confirmed them."""
    first: EntryId
    last: EntryId
    offset: Offset
    """Of the first record."""
    next_offset: Offset
    """Behind the last record."""
    size_bytes: int
    since: float
    """When the first one was confirmed, in monotonic seconds."""

    @property
    def entries(self) -> int:
        """How many there are."""
        return self.last + 1 - self.first

    def then(self, run: Run) -> Run | None:
        """Both as one; None where `run` does not follow."""
        if (run.segment, run.session, run.first) != (self.segment, self.session, self.last + 1):
            return None
        return self._replace(last=run.last, next_offset=run.next_offset, size_bytes=self.size_bytes + run.size_bytes)


class Cursor(NamedTuple):
    """Where a replicator goes on: at this entry of this segment, or behind it where there is none yet."""

    segment: Offset
    entry: EntryId


class Outbox:
    """One shadow and partition; `entries_max` is the limit of invariant 5."""

    def __init__(self, entries_max: int = NO_LIMIT) -> None:
        self.cursor: Cursor | None = None
        """None before anything was heard."""
        self.heard_entries = self.heard_records = self.heard_bytes = 0
        """Since this was made."""
        self.resets = 0
        """How often entries were left out because too many waited."""
        self._entries_max = entries_max
        self._unsent: deque[Run] = deque()
        self._sent: deque[tuple[int, Run]] = deque()

    @property
    def unsent(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._unsent)

    def start(self, cursor: Cursor | None, runs: Iterable[Run]) -> None:
        """Takes what is stored as the cursor, and all that is confirmed behind it in the place of what was known.

        Args:
            runs: from the first segment that is kept on; what lies before the cursor is left out here. Without a cursor
                a shadow begins at the end: it reads from storage what there is.
        """
        self._sent.clear()
        self._unsent.clear()
        self.cursor = max(filter(None, (self.cursor, cursor)), default=None)
        for run in runs:
            left = run if self.cursor is None else _behind(run, self.cursor)
            if left is not None:
                self.confirmed(left)
        if self.cursor is None:
            self._leave_out()
        self._check_limit()

    def confirmed(self, run: Run) -> None:
        """These entries come behind all that is known."""
        unsent = self._unsent
        joined = unsent[-1].then(run) if unsent else None
        if joined is None:
            unsent.append(run)
            if len(unsent) > RUNS_MAX:
                unsent.popleft()
        else:
            unsent[-1] = joined
        if self._entries_max:
            self._check_limit()

    def take(self, frame: int) -> tuple[Run, ...]:
        """All that is to be told, now told by a frame of this number; numbers grow."""
        runs = tuple(self._unsent)
        self._unsent.clear()
        self._sent.extend((frame, run) for run in runs)
        return runs

    def heard(self, frame: int) -> None:
        """The frames up to this one were taken."""
        while self._sent and self._sent[0][0] <= frame:
            _, run = self._sent.popleft()
            cursor = Cursor(run.segment, EntryId(run.last + 1))
            self.cursor = cursor if self.cursor is None else max(self.cursor, cursor)
            self.heard_entries += run.entries
            self.heard_records += run.next_offset - run.offset
            self.heard_bytes += run.size_bytes

    def lost(self) -> None:
        """Whether what was told and not heard was taken nobody knows."""
        runs = [*(run for _, run in self._sent), *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        for run in runs:
            self.confirmed(run)

    # --- how far it is behind -------------------------------------------------------------------------------------

    def backlog(self) -> tuple[int, int, float | None]:
        """What was not heard yet: entries, bytes, and the second since when the oldest of it is confirmed."""
        runs = [*(run for _, run in self._sent), *self._unsent]
        since = runs[0].since if runs else None
        return sum(run.entries for run in runs), sum(run.size_bytes for run in runs), since

    def _check_limit(self) -> None:
        if self._entries_max and sum(run.entries for run in self._unsent) > self._entries_max:
            self._leave_out()
            self.resets += 1

    def _leave_out(self) -> None:
        """Keeps the last entry alone."""
        if self._unsent:
            last = _shortened(self._unsent[-1], self._unsent[-1].last)
            self._unsent.clear()
            self._unsent.append(last)


def _behind(run: Run, cursor: Cursor) -> Run | None:
    """What of a run the cursor is not behind of; None where it is behind all of it."""
    if cursor <= (run.segment, run.first):
        return run
    return None if cursor > (run.segment, run.last) else _shortened(run, cursor.entry)


def _shortened(run: Run, first: EntryId) -> Run:
    """The same run from a later entry on; its offset and bytes are estimated, since no entry is read for it."""
    left, entries = run.last + 1 - first, run.entries
    if left == entries:
        return run
    offset = Offset(run.next_offset - (run.next_offset - run.offset) * left // entries)
    return run._replace(first=first, offset=offset, size_bytes=run.size_bytes * left // entries)
