"""The stores that an audit reads, and the ways in which it reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import (
    AuditedLedger,
    Bookies,
    EntryCopies,
    SilentBookies,
    copies_at_bookies,
    durable_entry,
)
from gnomon.bookie.record import LedgerRecord
from gnomon.log.dlsn import Dlsn
from gnomon.metadata.client import Metadata


@dataclass(frozen=True, slots=True)
class AuditPlace:
    """The stores of a cluster, or of a data directory."""

    metadata: Metadata
    bookies: Bookies
    blocking: Callable[..., Awaitable[object]]
    """Runs a call outside of the event loop (`World.blocking`): checking a run of entries takes some 10 ms."""
    replicated_to: Callable[[bytes], Dlsn]
    """The place in the source that the stored cursor of a shadow's replicator names; ValueError if it is none."""
    end_on_disk: Callable[[LedgerId, LedgerRecord], Awaitable[EntryId]] | None = None
    """The last entry of an open ledger of a data directory; None for a cluster, whose bookies are asked."""
    silent: SilentBookies = field(default_factory=SilentBookies)

    async def last_entry(self, ledger: AuditedLedger) -> EntryId:
        """The last entry of a ledger that every recovery finds."""
        if self.end_on_disk is not None:
            return await self.end_on_disk(ledger.id, ledger.record)
        return await durable_entry(self.bookies, self.silent, ledger)

    def copies(
        self, ledger: AuditedLedger, first: EntryId, last: EntryId, only: Collection[BookieId] | None = None
    ) -> AsyncGenerator[Sequence[EntryCopies], None]:
        """The entries of a ledger with their copies, in runs (`copies_at_bookies`)."""
        return copies_at_bookies(self.bookies, self.silent, ledger, first, last, only)
