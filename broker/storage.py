"""The storage of one broker: the metadata, the bookies, and the quorum of new ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.bookie.ledgers.catalog import Bookies, EntryCache, Quorum
from gnomon.metadata.client import Metadata


@dataclass(slots=True)
class Storage:
    """The places where a broker keeps records. All parts of a broker share one object, and read it at each use."""

    metadata: Metadata
    bookies: Bookies
    entries: EntryCache
    """The entries of remote bookies that this broker keeps in memory."""
    quorum: Quorum
    """The quorum of new ledgers; a partition takes it when it comes into use."""

    def quorum_of(self, copies: int | None) -> Quorum:
        """The quorum of new ledgers of a topic.

        Args:
            copies: those that the topic asks for; None for the broker's default. Another number than the default is
                not striped, and a majority of the copies acknowledges a record.
        """
        if copies is None or copies == self.quorum.write_quorum:
            return self.quorum
        return Quorum(copies, copies, copies // 2 + 1)
