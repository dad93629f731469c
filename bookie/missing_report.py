"""Reports of missing entries for the auditor: a writer or claimer names a ledger of which a bookie may lack entries."""

from __future__ import annotations

from typing import Final

from gnomon.bookie.ids import LedgerId
from gnomon.metadata.client import Put

MISSING: Final = "missing/"
"""Prefix of the metadata keys that name ledgers of which a bookie may lack entries, for the auditor."""


def missing_report(ledger: LedgerId, name: str) -> Put:
    """The operation that reports a ledger of this id and name to the auditor."""
    return Put(f"{MISSING}{ledger}", name.encode())
