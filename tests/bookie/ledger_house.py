"""One bookie and its metadata, for tests of ledgers on a single bookie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.catalog import (
    Ledger,
    OpenMode,
    open_ledger,
)
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.testing.storms.ledgers.bookies_at_hand import BookiesAtHand


class House:
    """One bookie and its metadata."""

    def __init__(self, environment: Any, clock: Any, metadata: Any) -> None:
        self.environment, self.clock, self.metadata = environment, clock, metadata
        self.store = EntryStore(environment, clock)
        self.bookies = BookiesAtHand({BookieId("b0"): LocalBookie(self.store)}, clock)

    async def open(self, name: str, mode: OpenMode = OpenMode.O_APPEND, **options: Any) -> Ledger:
        return await open_ledger(self.metadata, self.bookies, name, mode=mode, **options)

    async def create(self, name: str = "ledger", **options: Any) -> Ledger:
        return await self.open(name, OpenMode.O_CREATE | OpenMode.O_APPEND, **options)


Run = Callable[[Callable[[House], Awaitable[None]]], None]
