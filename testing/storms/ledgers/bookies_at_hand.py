"""A `Bookies` for tests of ledgers: the test gives the bookies by name, and open ledgers need no nursery for background
tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any

import trio

from gnomon.bookie.bookie import Bookie
from gnomon.bookie.ids import BookieId
from gnomon.metadata.client import Compare
from gnomon.runtime.world import Clock


class BookiesAtHand:
    """An implementation of `Bookies` whose members a test can change while ledgers are open."""

    def __init__(self, bookies: Mapping[BookieId, Bookie], clock: Clock) -> None:
        self.clock = clock
        self.all = dict(bookies)
        self.away: set[BookieId] = set()
        """The bookies that this process considers unavailable for entries."""
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

    def absent(self) -> Set[BookieId]:
        """See `Bookies.absent`."""
        return frozenset(self.away)

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`; no metadata has these bookies."""
        return ()

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`; an error ends the Trio run."""
        trio.lowlevel.spawn_system_task(run, *args)
