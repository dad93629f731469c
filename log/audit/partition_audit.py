"""Audits one partition: its metadata records, every copy of its confirmed entries, and the log that the entries make.

1. Nothing is written: no claim, no fence, no repair.
2. Entries above the last one that every recovery finds are not looked at: their copies may be in flight. The record of
   the open ledger is read after that entry is known, so it names the bookies and the epoch of every entry up to there.
3. A finding here is a suspicion: `second_look` confirms it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import LedgerId
from gnomon.bookie.ledgers.catalog import AuditedLedger, EntryCopies, compare_copies
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.audited_chain import audit_chain, ledger_of
from gnomon.log.audit.audited_entries import EntriesAudit
from gnomon.log.audit.finding import AuditFinding, FindingKind
from gnomon.log.chain_image import ChainImage, ChainSegment
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import Offset


class AuditedPartition(NamedTuple):
    """The extent of the audit of one partition, and its suspicions."""

    topic: str
    partition: int
    segments: int
    entries: int
    copies: int
    """Sound copies."""
    start_offset: Offset
    end_offset: Offset
    """The offset after the last entry that was read."""
    findings: Sequence[AuditFinding]
    left_out: int
    """Findings that are not listed, because there are too many."""


async def audit_partition(place: AuditPlace, topic: str, topic_id: uuid.UUID, partition: int) -> AuditedPartition:
    """Audits a partition of a topic that is no shadow.

    Raises:
        MetadataError: the metadata does not answer.
    """
    found = await place.metadata.range(ledger_key(ledgers_prefix(topic_id, partition)))
    chain = audit_chain(found.items)
    audit = EntriesAudit(topic, partition)
    for ledger, text in chain.problems:
        audit.runs.add(FindingKind.RECORD, text, ledger)
    for segment in chain.segments:
        await _audit_segment(place, audit, segment)
    image = ChainImage()
    if not chain.problems:
        image.replace(found.items)
    return AuditedPartition(
        topic,
        partition,
        len(chain.segments),
        audit.entries,
        audit.copies,
        image.start_offset,
        max(image.high_watermark, audit.end_offset or Offset(0)),
        audit.runs.findings,
        audit.runs.left_out,
    )


async def _audit_segment(place: AuditPlace, audit: EntriesAudit, segment: ChainSegment) -> None:
    last, name = segment.record.last_entry, ledger_of(segment)
    if not segment.record.sealed:
        last = await place.last_entry(AuditedLedger(name, segment.ledger, segment.record))
        fresh = await _newer(place, segment)
        if fresh is None:
            return  # it was deleted, or replaced, meanwhile
        segment = fresh
    ledger = AuditedLedger(name, segment.ledger, segment.record)
    audit.begin(segment, name)
    async with aclosing(place.copies(ledger, ledger.record.start_entry, last)) as runs:
        async for run in runs:
            await place.blocking(_take, audit, run)
    audit.end()


def _take(audit: EntriesAudit, run: Sequence[EntryCopies]) -> None:
    audit.take(compare_copies(*each) for each in run)


async def _newer(place: AuditPlace, segment: ChainSegment) -> ChainSegment | None:
    """The segment by its record of now; None if its ledger is gone."""
    stored = await place.metadata.get(segment.stored.key)
    if stored is None or LedgerId(stored.create_revision) != segment.ledger:
        return None
    try:
        return segment._replace(record=decode_record(stored.value), stored=stored)
    except UnreadableRecord:
        return None
