"""The ids of the ledger layer (ledger, entry, session, bookie), each with a type of its own."""

from __future__ import annotations

from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""Unique to one life of one ledger name: the create revision of its metadata record."""

EntryId = NewType("EntryId", int)
"""Position in a ledger, from 0."""

SessionId = NewType("SessionId", int)
"""One writer's claim of a ledger; only grows, and a bookie refuses adds of sessions below the one it has promised."""

BookieId = NewType("BookieId", str)
"""Name of a storage node in records."""

FIRST_ENTRY: Final = EntryId(0)
"""The first entry of every ledger."""

NO_ENTRY: Final = EntryId(-1)
"""The last entry, or last add confirmed, of an empty ledger."""

ENTRY_MAX: Final = EntryId(2**63 - 1)
"""Above every entry."""

FIRST_SESSION: Final = SessionId(1)
"""The session of a ledger's creator: its record's first version."""

ANY_SESSION: Final = SessionId(0)
"""Below every session: the minimum for readers that accept any copy."""

SESSION_MAX: Final = SessionId(2**63 - 1)
"""Above every session: promised for a ledger that is being deleted, so that all adds are refused."""
