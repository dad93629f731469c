"""Finds the SN of a record, and of the last record of a log, whether or not the record is still there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter

from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ledgers.catalog import EntryId, EntryView, read_from_memory
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import NO_TRANSACTION, Offset, UnknownEntry
from gnomon.log.segment import Segment
from gnomon.log.segment_record import LAST_RECORD
from gnomon.log.sn import EMPTY, SN

_BASE_OFFSET = attrgetter("base_offset")


async def sn_of(segments: Sequence[Segment], offset: int) -> SN:
    """The SN of the record at `offset`, a confirmed one; its DLSN is None if the record is gone or damaged.

    Raises:
        LedgerError: its bookies do not answer.
    """
    number = bisect_right(segments, offset, key=_BASE_OFFSET) - 1
    if number < 0:
        return SN(None, NO_TRANSACTION, offset)
    segment = segments[number]

    def find() -> SN | None:
        last = segment.ledger.last_add_confirmed
        if last < segment.ledger.start_entry:
            return None
        with segment.view() as view:
            found = _sn_in(segment, view, last, offset)
            return found or _sn_in(segment, view, segment.entry_of(view, Offset(offset)), offset)

    return await read_from_memory(find) or SN(None, NO_TRANSACTION, offset)


def _sn_in(segment: Segment, view: EntryView, entry: EntryId, offset: int) -> SN | None:
    """The SN of the record if it is in this entry; None if it is not, or the entry cannot be read."""
    if entry <= segment.ledger.last_add_confirmed:
        with suppress(DigestMismatch, UnknownEntry):
            header = segment.header(view, entry)
            if header.base_offset <= offset < header.next_offset:
                dlsn = Dlsn(segment.base_offset, entry, offset - header.base_offset)
                return SN(dlsn, header.transaction_id, offset)
    return None


async def last_sn(segments: Sequence[Segment], end: Offset) -> SN:
    """The SN of the last record of a log that ends at `end`, as the last segment's ledger records it, or as it is read.

    Args:
        segments: of the log, in order.
        end: the offset after its last record.

    Returns:
        An SN without a DLSN if the record is gone and its SN was not recorded: an older gnomon deleted it.

    Raises:
        LedgerError: bookies do not answer.
    """
    if end == 0:
        return EMPTY
    with suppress(ValueError):
        recorded = SN.decode(segments[-1].ledger.properties.get(LAST_RECORD))
        if recorded.sequence_id == end - 1:
            return recorded
    return await sn_of(segments, end - 1)
