"""The bookies of a list, for a process that reads entries and has no metadata.

    bookies = ListedBookies(world, cluster, nursery, warn)
    bookies.add([ListedBookie("bookie-1", "10.0.0.2", 4002, 7)])
    run = await read_run(bookies, ledger, record, first, last, bytes_max)

1. The bookies are those that were added. One that moves to another address, or gets another disk, does not answer any
   more until it is added again.
2. A bookie that has left a read without an answer is not available for DOUBT_SECONDS: readers prefer the others, so
   that a dead or slow bookie delays one read in that time, and not each.
3. The list is for reading: no ledger can be created or claimed on it.
4. A bookie that does not answer, or has a damaged copy, is reported, at most once in DOUBT_SECONDS: readers go on with
   other copies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from math import inf
from typing import Any, Final, NamedTuple

import trio

from gnomon.bookie.bookie import Bookie, RangeRead
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import DigestMismatch, LedgerError, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.copies import SPECULATIVE_SECONDS
from gnomon.bookie.remote import RemoteBookie, bookie_client
from gnomon.metadata.client import Compare, Revision
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World, WorldError

DOUBT_SECONDS: Final = 5.0


class ListedBookie(NamedTuple):
    """A bookie by name, address and disk."""

    name: BookieId
    host: str
    port: int
    disk: int
    """The create revision of its cookie: another disk under the same name has another one."""


class _Doubted(RemoteBookie):
    """A bookie whose silence is remembered."""

    def __init__(self, world: World, at: ListedBookie, cluster: str, warn: Callable[[str], None]) -> None:
        disk = Revision(at.disk)
        super().__init__(disk, world.clock, Timers(world.clock))
        self.client = self._own_client = bookie_client(world, at.name, at.host, at.port, disk, cluster)
        self._scope = trio.CancelScope()
        self._monotonic = world.clock.monotonic
        self._doubted_until = self._quiet_until = -inf
        self._place, self._warn = f"bookie {at.name} at {at.host}:{at.port}", warn

    async def run(self) -> None:
        """Runs the connection until `end`."""
        with self._scope:
            await self._own_client.run()

    def end(self) -> None:
        """Ends the connection for good."""
        self.retire()
        self._scope.cancel()

    @property
    def is_doubted(self) -> bool:
        """Whether its last read had no answer, DOUBT_SECONDS ago or less."""
        return self._monotonic() < self._doubted_until

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> StoredEntry:
        """See `Bookie.read`."""
        with self._watched():
            return await super().read(ledger, entry, minimum_session)

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        """See `Bookie.read_range`."""
        with self._watched():
            return await super().read_range(ledger, first, last, minimum_session, bytes_max)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        began = self._monotonic()
        try:
            yield
        except WorldError as error:
            self._doubt()
            self._report(str(error))
            raise
        except trio.Cancelled:  # readers cancel a read that takes too long
            self._doubt()
            seconds = self._monotonic() - began
            if seconds >= SPECULATIVE_SECONDS:
                self._report(f"no answer in {seconds:.1f} s")
            raise
        except LedgerError as error:
            self._doubted_until = -inf
            if isinstance(error, DigestMismatch):
                self._report(str(error))
            raise
        self._doubted_until = -inf

    def _doubt(self) -> None:
        self._doubted_until = self._monotonic() + DOUBT_SECONDS

    def _report(self, trouble: str) -> None:
        now = self._monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + DOUBT_SECONDS
            self._warn(f"{self._place}: {trouble}; another copy is read")


class ListedBookies:
    """A `Bookies` of a list; see the module's invariants."""

    def __init__(self, world: World, cluster: str, nursery: trio.Nursery, warn: Callable[[str], None]) -> None:
        """Knows no bookie; `nursery` runs the connections.

        Args:
            cluster: the id of the cluster; a bookie of another one refuses to be read.
            warn: is called with each report (invariant 4).
        """
        self.clock, self._warn = world.clock, warn
        self._world, self._cluster, self._nursery = world, cluster, nursery
        self._listed: dict[BookieId, ListedBookie] = {}
        self._bookies: dict[BookieId, _Doubted] = {}

    def add(self, bookies: Iterable[ListedBookie]) -> None:
        """Adds bookies, or their new addresses and disks; each is connected to with its first read."""
        for each in bookies:
            if self._listed.get(each.name) == each:
                continue
            if each.name in self._bookies:
                self._bookies[each.name].end()
            self._listed[each.name] = each
            bookie = self._bookies[each.name] = _Doubted(self._world, each, self._cluster, self._warn)
            self._nursery.start_soon(bookie.run)

    def get(self, name: BookieId) -> Bookie | None:
        """See `Bookies.get`."""
        return self._bookies.get(name)

    def available(self) -> Mapping[BookieId, str]:
        """See `Bookies.available`; no domain is known."""
        return {name: "" for name, bookie in self._bookies.items() if not bookie.is_doubted}

    def known(self) -> Mapping[BookieId, str]:
        """See `Bookies.known`; no domain is known."""
        return dict.fromkeys(self._bookies, "")

    def absent(self) -> Set[BookieId]:
        """See `Bookies.absent`."""
        return self._bookies.keys() - self.available().keys()

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`.

        Raises:
            NotEnoughBookies: always, see invariant 3.
        """
        raise NotEnoughBookies(f"bookies {', '.join(names)} are known by a list, which is for reading only")

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`."""
        self._nursery.start_soon(run, *args)
