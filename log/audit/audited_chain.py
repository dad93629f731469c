"""Checks the metadata records of one partition's segments, as of one revision. Pure.

1. Every ledger below the partition's prefix is a segment, with a record that this gnomon reads.
2. Every segment except the last is sealed, and the last one is open.
3. A sealed segment ends where the next one begins, at or after its own base offset, and its record names its end.
4. The epochs of the records never fall.
5. The start of the log is at or after the beginning of its first segment, and a sealed ledger does not start beyond its
   end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import LedgerId
from gnomon.bookie.record import LEDGERS, decode_record
from gnomon.log.chain_image import ChainSegment
from gnomon.log.segment_record import (
    BATCHES_BYTES,
    EPOCH,
    MAX_TIMESTAMP,
    NEXT_OFFSET,
    START_OFFSET,
    YOUNGEST_MS,
    parse_segment_name,
)
from gnomon.metadata.client import KeyValue

_NAMED_WHEN_SEALED = (NEXT_OFFSET, MAX_TIMESTAMP, YOUNGEST_MS, BATCHES_BYTES)


class RecordProblem(NamedTuple):
    """A broken rule, and the name of the ledger whose record breaks it."""

    ledger: str
    text: str


class AuditedChain(NamedTuple):
    """The segments whose records can be read, and the problems of all records."""

    segments: Sequence[ChainSegment]
    problems: Sequence[RecordProblem]


def audit_chain(items: Iterable[KeyValue]) -> AuditedChain:
    """Checks the records of all ledgers of a partition, in the order of their keys."""
    segments: list[ChainSegment] = []
    problems: list[RecordProblem] = []
    for item in items:
        try:
            name, record = parse_segment_name(item.key), decode_record(item.value)
        except LedgerError as error:
            problems.append(RecordProblem(item.key.removeprefix(LEDGERS), error.text))
            continue
        segments.append(ChainSegment(*name, LedgerId(item.create_revision), record, item))
    problems += (RecordProblem(ledger_of(one), text) for one in segments for text in _alone(one))
    for earlier, later in pairwise(segments):
        problems += (RecordProblem(ledger_of(earlier), text) for text in _followed(earlier, later))
    if segments and segments[-1].record.sealed:
        problems.append(RecordProblem(ledger_of(segments[-1]), "it is the last segment, and is sealed"))
    return AuditedChain(segments, problems)


def ledger_of(segment: ChainSegment) -> str:
    """The name of a segment's ledger."""
    return segment.stored.key.removeprefix(LEDGERS)


def _alone(segment: ChainSegment) -> Iterator[str]:
    record, properties = segment.record, segment.record.properties
    if EPOCH not in properties:
        yield "its record names no epoch"
    if properties.get(START_OFFSET, segment.base_offset) < 0:
        yield f"its record says that the log starts at offset {properties[START_OFFSET]}"
    if not record.sealed:
        return
    missing = [name for name in _NAMED_WHEN_SEALED if name not in properties]
    if missing:
        yield f"it is sealed, and its record lacks {', '.join(missing)}"
    if properties.get(NEXT_OFFSET, segment.base_offset) < segment.base_offset:
        yield f"it is sealed at offset {properties[NEXT_OFFSET]}, below its base offset {segment.base_offset}"
    if record.start_entry > record.last_entry + 1:
        yield f"its first entry {record.start_entry} is after its end, entry {record.last_entry}"


def _followed(earlier: ChainSegment, later: ChainSegment) -> Iterator[str]:
    record, properties = earlier.record, earlier.record.properties
    if not record.sealed:
        yield f"it is open, and segment {later.base_offset} follows it"
    elif properties.get(NEXT_OFFSET, later.base_offset) != later.base_offset:
        yield f"it ends at offset {properties[NEXT_OFFSET]}, and the next segment begins at {later.base_offset}"
    before, after = properties.get(EPOCH, 0), later.record.properties.get(EPOCH, 0)
    if after < before:
        yield f"it has epoch {before}, and the next segment epoch {after}"
