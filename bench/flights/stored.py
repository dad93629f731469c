"""The data of a topic and its shadow on the bookies: the ledgers' own count, and the pages in use of the disk files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

COPY_ROOM = 1.5
"""Allowed size of a file relative to its entries: tree, partly filled pages, consumers' offsets."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Entries and bytes, from `gnomon ledger list` and `gnomon bookie list --usage`."""

    source_entries: int
    source_bytes: int
    shadow_entries: int
    shadow_bytes: int
    offsets_bytes: int
    """Bytes of everything else: consumers' offsets."""
    bookie_bytes: int
    """The pages in use of all bookies' files."""

    @classmethod
    def read(
        cls, ledgers: Iterable[Mapping[str, Any]], bookies: Iterable[Mapping[str, Any]], source: str, shadow: str
    ) -> Stored:
        """Args:
        ledgers: the list of all ledgers.
        bookies: the list of all bookies with their usage.
        source: the topic's id, 32 digits; ledgers are named after it.
        shadow: the same of its shadow.
        """
        entries, size = {source: 0, shadow: 0, "": 0}, {source: 0, shadow: 0, "": 0}
        for ledger in ledgers:
            topic = ledger["ledger"].split("/")[1]
            owner = topic if topic in entries else ""
            size[owner] += ledger["bytes"]
            if ledger["last_entry"] is not None:
                entries[owner] += ledger["last_entry"] + 1 - ledger["start_entry"]
        used = sum(bookie["bytes"] for bookie in bookies)
        return cls(entries[source], size[source], entries[shadow], size[shadow], size[""], used)

    @property
    def is_one_copy(self) -> bool:
        return not self.shadow_entries and 0 < self.bookie_bytes < COPY_ROOM * (self.source_bytes + self.offsets_bytes)
