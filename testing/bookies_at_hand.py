"""Bookies for tests of ledgers: given by name, and what open ledgers do in the background needs no nursery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from gnomon.bookie.client import Bookie
from gnomon.bookie.ids import BookieId
from gnomon.metadata.client import Compare
from gnomon.runtime.world import Clock


class BookiesAtHand:
    """`Bookies` that a test can take from and give to while ledgers are open."""

    def __init__(self, bookies: Mapping[BookieId, Bookie], clock: Clock) -> None:
        self.clock = clock
        self.all = dict(bookies)
        self.away: set[BookieId] = set()
        """Those that take no entries, as the process sees it."""
        self.domains: dict[BookieId, str] = {}

    def get(self, name: BookieId) -> Bookie | None:
        """See `Bookies.get`."""
        return self.all.get(name)

    def available(self) -> Mapping[BookieId, str]:
        """See `Bookies.available`."""
        return {name: self.domains.get(name, "") for name in self.all if name not in self.away}

    def known(self) -> Mapping[BookieId, str]:
        """See `Bookies.known`."""
        return {name: self.domains.get(name, "") for name in self.all}

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`: no metadata knows them."""
        return ()

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`; an error ends the Trio run."""
        trio.lowlevel.spawn_system_task(run, *args)
