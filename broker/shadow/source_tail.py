"""What this broker confirms of one partition that has shadows.

An entry is fresh until `collect` gives its id to every replicator, as a part of one run; `runs` leaves out what is
fresh, so that a replicator that begins meanwhile is not told it twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gnomon.bookie.ids import EntryId
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.segment import Segment
from gnomon.broker.shadow.outbox import Run
from gnomon.broker.topics import Topic

if TYPE_CHECKING:
    from gnomon.broker.shadow.replicator import Replicator, ShadowReplication

FRESH_BYTES_MAX = 1 << 20
"""More than this is told at once."""


class SourceTail:
    """What this broker confirms of one partition, and the replicators that are to tell it: see `partition.Tail`."""

    def __init__(self, replication: ShadowReplication, topic: Topic, index: int, partition: Partition) -> None:
        self.topic, self.index, self.partition = topic, index, partition
        self.replicators: dict[uuid.UUID, Replicator] = {}
        """By the ids of the shadows."""
        self.terms = 0
        """How often the log was opened."""
        self._replication = replication
        self._log: PartitionLog | None = None
        self._segments: Sequence[Segment] = ()
        self._segment: Segment | None = None
        self._next_offset = Offset(0)
        self._fresh: list[bytes] = []
        self._fresh_bytes = 0
        self._fresh_end = EntryId(0)
        """Behind the last one."""

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
        self._replication.tell([self])
        self._segment = segment
        return self._confirmed

    def _confirmed(self, entry: EntryId, value: bytes) -> None:
        self._fresh.append(value)
        self._fresh_end = entry
        size_bytes = len(value)
        self._fresh_bytes += size_bytes
        self._replication.due(self, size_bytes, len(self._fresh) == 1, much=self._fresh_bytes > FRESH_BYTES_MAX)

    def collect(self) -> list[bytes]:
        """What was confirmed since this was called last; its ids are with the replicators then."""
        fresh, self._fresh = self._fresh, []
        size_bytes, self._fresh_bytes = self._fresh_bytes, 0
        log, segment = self._log, self._segment
        if not fresh or log is None or segment is None:
            return []
        last = self._fresh_end
        run = Run(
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

    def runs(self) -> list[Run]:
        """All that is confirmed, by segments."""
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
                found.append(Run(segment.base_offset, session, first, last, start, next_offset, size_bytes, now))
        return found
