"""Positions of the ledger layer, each a type of its own."""

from __future__ import annotations

from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""Unique to one life of one ledger name: the create revision of its metadata record."""

EntryId = NewType("EntryId", int)
"""Position in a ledger, from 0."""

Session = NewType("Session", int)
"""One writer's claim of a ledger; only grows, and a bookie refuses adds of lower ones than it has promised."""

BookieId = NewType("BookieId", str)
"""Name of a storage node, as records name it."""

FIRST_ENTRY: Final = EntryId(0)
"""Where every ledger begins."""

NO_ENTRY: Final = EntryId(-1)
"""The last entry, or last add confirmed, of a ledger that has none."""

ENTRY_MAX: Final = EntryId(2**63 - 1)
"""Above every entry."""

FIRST_SESSION: Final = Session(1)
"""The session of a ledger's creator: its record's first version."""

ANY_SESSION: Final = Session(0)
"""Below every session: the minimum for readers that take any copy."""

SESSION_MAX: Final = Session(2**63 - 1)
"""Above every session: promised for a ledger that is being deleted, so that nobody adds to it."""
