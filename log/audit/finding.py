"""The findings of an audit, and their words. Pure.

1. A finding about copies names the bookie, the ledger and a run of entries; its offsets are those of the run, where a
   sound copy gives them.
2. A finding about one bookie that does not answer names no entry: it is about all copies there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from gnomon.bookie.ids import BookieId, EntryId
from gnomon.log.entry import Offset


class FindingKind(Enum):
    """The rule that stored data breaks."""

    UNREACHABLE = "unreachable"
    """The copies at a bookie could not be read."""
    MISSING = "missing"
    """A bookie of the write set has no copy."""
    DAMAGED = "damaged"
    """A copy does not match its digest."""
    DIFFERENT = "different"
    """A copy is not equal to the other copies."""
    UNKNOWN = "unknown"
    """A bookie cannot decide whether it has the copy, or cannot read it."""
    UNREAD = "unread"
    """No bookie has a sound copy."""
    FORM = "form"
    """An entry is no entry of a partition, or one that this gnomon does not read."""
    BATCH = "batch"
    """A record batch contradicts its checksum, its counts or the header of its entry."""
    OFFSETS = "offsets"
    """The offsets of a log have a gap or an overlap."""
    EPOCH = "epoch"
    """A leader epoch falls, or is above that of the metadata record."""
    HEADER = "header"
    """Another value of an entry's header falls that never falls."""
    RECORD = "record"
    """The metadata records of a partition contradict each other, or the entries."""
    SHADOW = "shadow"
    """The record of a shadow contradicts its source."""


OF_A_COPY = frozenset({FindingKind.MISSING, FindingKind.DAMAGED, FindingKind.DIFFERENT, FindingKind.UNKNOWN})
"""The kinds that are about the copies at one bookie."""
_COPY_WORDS = {
    FindingKind.MISSING: "has no copy of",
    FindingKind.DAMAGED: "has a damaged copy of",
    FindingKind.DIFFERENT: "has another copy than the other bookies of",
    FindingKind.UNKNOWN: "does not say whether it has",
}


class AuditFinding(NamedTuple):
    """One finding; the fields that do not apply are None."""

    kind: FindingKind
    detail: str
    """The values that contradict each other, or the error of the bookie; may be empty for a missing copy."""
    topic: str | None = None
    partition: int | None = None
    ledger: str | None = None
    """The name of the ledger."""
    first_entry: EntryId | None = None
    last_entry: EntryId | None = None
    bookie: BookieId | None = None
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    """The offset after the last one."""
    passed: bool = False
    """Whether the bookie has a copy of a later entry: then these copies are not in flight, since a writer sends entries
    in order."""

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        detail = f": {self.detail}" if self.detail else ""
        if self.kind is FindingKind.UNREACHABLE:
            return f"copies at bookie {self.bookie} could not be read{detail}"
        if self.kind in OF_A_COPY:
            return f"bookie {self.bookie} {_COPY_WORDS[self.kind]} {self._place}{detail}"
        if self.kind is FindingKind.UNREAD:
            return f"no bookie has a sound copy of {self._place}"
        return f"{self._place}{detail}" if self.first_entry is not None else self.detail

    @property
    def _place(self) -> str:
        entries = _run("entry", "entries", self.first_entry, self.last_entry)
        offsets = ""
        if self.first_offset is not None and self.next_offset is not None and self.first_offset < self.next_offset:
            offsets = f" ({_run('offset', 'offsets', self.first_offset, self.next_offset - 1)})"
        return f"{entries} of ledger {self.ledger}{offsets}"

    def row(self) -> Mapping[str, Any]:
        """The finding as a row of the report; offsets and entries include the last one."""
        last_offset = None if self.next_offset is None else self.next_offset - 1
        return {
            "kind": self.kind.value,
            "topic": self.topic,
            "partition": self.partition,
            "bookie": self.bookie,
            "ledger": self.ledger,
            "first_entry": self.first_entry,
            "last_entry": self.last_entry,
            "first_offset": self.first_offset,
            "last_offset": last_offset,
            "finding": self.words,
        }


def _run(one: str, many: str, first: int | None, last: int | None) -> str:
    return f"{one} {first}" if first == last else f"{many} {first} to {last}"
