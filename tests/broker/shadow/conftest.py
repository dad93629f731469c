"""Counts the writes to bookies while a shadow is read."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gnomon.bookie.storage.entry_store import EntryStore

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

CHANGES = ("add", "put_copies", "begin_session", "fence", "shrink", "delete")


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests of each change, at all bookies of the test."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        original = getattr(EntryStore, name)

        def call(self: EntryStore, *args: Any, **fields: Any) -> Any:
            if (name, args[-1]) != ("shrink", 0):  # the collector asks this of every ledger that has all its entries
                counts[name] += 1
            return original(self, *args, **fields)

        return call

    for name in CHANGES:
        monkeypatch.setattr(EntryStore, name, counted(name))
    return counts
