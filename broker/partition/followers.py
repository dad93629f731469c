"""The followers of a partition's log on its leader: a tail, which gets confirmed entries, and a view of the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gnomon.bookie.ids import EntryId
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.log_view import LogView
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment


class Tail(Protocol):
    """A listener for the entries that this broker confirms."""

    def opened(self, log: PartitionLog, segments: Sequence[Segment]) -> Callable[[EntryId, bytes], None]:
        """The log is open; returns the callback for confirmed entries of its last segment, as they are stored."""

    def rolled(self, segment: Segment) -> Callable[[EntryId, bytes], None]:
        """A segment has begun; returns the callback for its confirmed entries, as they are stored."""


class HostedView(LogView, Protocol):
    """A view of this partition, from one opening of its log to the next."""

    def opened(self, log: PartitionLog) -> None:
        """The log is open, and nothing was appended to it yet."""

    def ended(self) -> None:
        """The partition was released, or its topic was deleted: the log is not opened here again."""

    @property
    def kept_from(self) -> Offset:
        """The records from this offset on must stay in the log, since the view has them nowhere else."""

    def want_trim(self, end: Offset) -> None:
        """The records before `end` are due to be dropped, and some of them are not below `kept_from`."""
