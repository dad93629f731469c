"""Joins faults of adjacent entries at one bookie to one finding. Pure.

1. A run has the faults of one kind and one text at one bookie in one ledger. A sound copy of that bookie, or another
   fault there, ends the run; an entry that the bookie need not store does not.
2. A run has passed if a sound copy at the bookie ended it.
3. The offsets of a run are those of its entries with a sound copy.
4. At most FINDINGS_MAX findings are kept; the others are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gnomon.bookie.ids import BookieId, EntryId
from gnomon.log.audit.finding import AuditFinding, FindingKind
from gnomon.log.entry import EntryHeader

FINDINGS_MAX: Final = 1000
"""Findings that are kept of one partition: a finding takes some 500 bytes."""


class FaultRuns:
    """The findings about one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self.findings: list[AuditFinding] = []
        self.left_out = 0
        """Findings beyond FINDINGS_MAX."""
        self._topic, self._partition = topic, partition
        self._open: dict[BookieId | None, AuditFinding] = {}
        """The run that may continue, by bookie; None for entries without a sound copy."""

    def add(self, kind: FindingKind, detail: str, ledger: str | None = None, entry: EntryId | None = None) -> None:
        """A finding about one entry, or about the metadata records."""
        self._keep(AuditFinding(kind, detail, self._topic, self._partition, ledger, entry, entry))

    def take(
        self,
        ledger: str,
        entry: EntryId,
        asked: Iterable[BookieId],
        faults: Mapping[BookieId, tuple[str, str]],
        header: EntryHeader | None,
        *,
        unread: bool,
    ) -> None:
        """The faults of the copies of one entry; entries come in order.

        Args:
            asked: the bookies that answered.
            faults: by bookie the value of a `FindingKind`, and the words of the bookie.
            header: of the sound copy; None if there is none, or its header cannot be read.
            unread: whether no bookie has a sound copy.
        """
        if not (faults or unread or self._open):
            return
        found: dict[BookieId | None, tuple[str, str]] = {}
        found.update(faults.items())
        if unread:
            found[None] = (FindingKind.UNREAD.value, "")
        for bookie in (*asked, None):
            fault = found.get(bookie)
            if fault is None:
                self._end(bookie, passed=True)
            else:
                self._extend(ledger, entry, bookie, fault, header)

    def _extend(
        self, ledger: str, entry: EntryId, bookie: BookieId | None, fault: tuple[str, str], header: EntryHeader | None
    ) -> None:
        kind, detail = FindingKind(fault[0]), fault[1]
        run = self._open.get(bookie)
        if run is None or (run.kind, run.detail, run.ledger) != (kind, detail, ledger):
            self._end(bookie)
            run = AuditFinding(kind, detail, self._topic, self._partition, ledger, entry, bookie=bookie)
        run = run._replace(last_entry=entry)
        if header is not None:
            first = header.base_offset if run.first_offset is None else run.first_offset
            run = run._replace(first_offset=first, next_offset=header.next_offset)
        self._open[bookie] = run

    def _end(self, bookie: BookieId | None, *, passed: bool = False) -> None:
        run = self._open.pop(bookie, None)
        if run is not None:
            self._keep(run._replace(passed=passed))

    def end_all(self) -> None:
        """No entry follows."""
        for bookie in list(self._open):
            self._end(bookie)

    def _keep(self, finding: AuditFinding) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.left_out += 1
