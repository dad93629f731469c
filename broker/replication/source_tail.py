"""The tail of one partition that has shadows: the newly confirmed (fresh) entries, until replicators have their ids.

An entry is fresh until `collect` adds its id to the outbox of every replicator. `collect` joins the ids of consecutive
entries to one run. `runs` gives a replicator that starts the ids of earlier entries, without the fresh ones: it gets
those by the next `collect`, and so no id twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gnomon.bookie.ids import EntryId
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.replication.outbox import EntryRun
from gnomon.broker.replication.replicator import Replicator
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.log.topic import Topic

FRESH_BYTES_MAX = 1 << 20
"""More fresh bytes than this are sent at once."""


class Replication(Protocol):
    """The part that a tail notifies."""

    def now(self) -> float:
        """The current monotonic second."""

    def start_soon(self, tail: SourceTail, replicator: Replicator) -> None:
        """The log was opened: starts a replicator at its stored cursor."""

    def due(self, tail: SourceTail, size_bytes: int, first: bool, *, much: bool = False) -> None:
        """The tail has a fresh entry. `first`: it is the first since `collect`; `much`: they must not wait longer."""

    def replicate(self, tails: Iterable[SourceTail]) -> None:
        """Sends everything unsent of these tails, as far as there is room."""


class SourceTail:
    """The fresh entries of one partition, and its replicators; notified by the partition (`partition.Tail`)."""

    def __init__(self, replication: Replication, topic: Topic, index: int, partition: Partition) -> None:
        self.topic, self.index, self.partition = topic, index, partition
        self.replicators: dict[uuid.UUID, Replicator] = {}
        """The replicators by the ids of their shadows."""
        self.terms = 0
        """The number of times that the log was opened."""
        self._replication = replication
        self._log: PartitionLog | None = None
        self._segments: Sequence[Segment] = ()
        self._segment: Segment | None = None
        self._next_offset = Offset(0)
        self._fresh: list[bytes] = []
        self._fresh_bytes = 0
        self._last_fresh = EntryId(0)
        """The last fresh entry."""

    def opened(self, log: PartitionLog, segments: Sequence[Segment]) -> Callable[[EntryId, bytes], None]:
        """See `Tail`."""
        self._log, self._segments, self._segment = log, segments, segments[-1]
        self._fresh, self._fresh_bytes = [], 0
        self._next_offset = log.high_watermark
        self.terms += 1
        for replicator in self.replicators.values():
            self._replication.start_soon(self, replicator)
        return self._confirmed

    def rolled(self, segment: Segment) -> Callable[[EntryId, bytes], None]:
        """See `Tail`."""
        self._replication.replicate([self])
        self._segment = segment
        return self._confirmed

    def _confirmed(self, entry: EntryId, value: bytes) -> None:
        self._fresh.append(value)
        self._last_fresh = entry
        size_bytes = len(value)
        self._fresh_bytes += size_bytes
        self._replication.due(self, size_bytes, len(self._fresh) == 1, much=self._fresh_bytes > FRESH_BYTES_MAX)

    def collect(self) -> list[bytes]:
        """Returns the entries confirmed since the last call, and adds their ids to all outboxes."""
        fresh, self._fresh = self._fresh, []
        size_bytes, self._fresh_bytes = self._fresh_bytes, 0
        log, segment = self._log, self._segment
        if not fresh or log is None or segment is None:
            return []
        last = self._last_fresh
        run = EntryRun(
            segment.base_offset,
            segment.ledger.record.session,
            EntryId(last + 1 - len(fresh)),
            last,
            self._next_offset,
            log.high_watermark,
            size_bytes,
            self._replication.now(),
        )
        self._next_offset = log.high_watermark
        for replicator in self.replicators.values():
            replicator.outbox.confirmed(run)
        return fresh

    def runs(self) -> list[EntryRun]:
        """Everything that is confirmed except fresh entries, by segments."""
        log = self._log
        if log is None:
            return []
        now = self._replication.now()
        found = []
        for segment in self._segments:
            ledger, sealed = segment.ledger, segment.next_offset is not None
            first, last = ledger.start_entry, ledger.last_add_confirmed
            if segment is self._segment:
                last = EntryId(last - len(self._fresh))
            next_offset = segment.next_offset if segment.next_offset is not None else self._next_offset
            size_bytes = segment.size_bytes if sealed else log.segment_bytes
            if first <= last:
                start = Offset(max(segment.base_offset, min(log.start_offset, next_offset)))
                session = ledger.record.session
                found.append(EntryRun(segment.base_offset, session, first, last, start, next_offset, size_bytes, now))
        return found
