"""The registry of bookies: follows their registrations in the metadata and keeps a client for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from typing import Any, Final

import trio

from gnomon.bookie.bookie import Bookie
from gnomon.bookie.ids import BookieId
from gnomon.bookie.registration import BOOKIES, COOKIES, DISMISSED, DRAINING, BookieRegistration
from gnomon.bookie.remote import EXPLICIT_LAC_SECONDS, RemoteBookie, bookie_client
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, RangeResult, Revision, WatchBatch
from gnomon.metadata.cluster_id import cluster_id
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World

_BOTH: Final = "bookies"


class RegisteredBookies:
    """The `Bookies` that the metadata names; `run` follows the metadata."""

    def __init__(
        self,
        world: World,
        metadata: Metadata,
        log: Logger,
        nursery: trio.Nursery,
        explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS,
    ) -> None:
        """Knows no bookie before `load`; `nursery` runs connections and the background work of open ledgers.

        Args:
            explicit_lac_seconds: after this time without an add the last add confirmed is sent to the bookies.
        """
        self.clock = world.clock
        self._world = world
        self._metadata = metadata
        self._log = log
        self._cluster: str | None = None
        self._nursery = nursery
        self._timers = Timers(world.clock)
        self._explicit_lac_seconds = explicit_lac_seconds
        self._follower = Follower(metadata, world.clock, log, _BOTH, self._replace, self._apply, self._read_members)
        self._alive: dict[BookieId, BookieRegistration] = {}
        self._unreadable: set[BookieId] = set()
        """Live bookies whose address and state are unknown."""
        self._draining: set[BookieId] = set()
        self._bookies: dict[BookieId, RemoteBookie] = {}
        self._scopes: dict[BookieId, trio.CancelScope] = {}
        self._domains: dict[BookieId, str] = {}

    # --- see `Bookies` ---

    def get(self, name: BookieId) -> Bookie | None:
        """See `Bookies.get`."""
        return self._bookies.get(name)

    def available(self) -> Mapping[BookieId, str]:
        """See `Bookies.available`."""
        return {name: at.domain for name, at in self._alive.items() if not at.read_only and name not in self._draining}

    def known(self) -> Mapping[BookieId, str]:
        """See `Bookies.known`."""
        return {name: domain for name, domain in self._domains.items() if name not in self._draining}

    def absent(self) -> Set[BookieId]:
        """See `Bookies.absent`."""
        return self._domains.keys() - self._alive.keys() - self._unreadable

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`."""
        compare: list[Compare] = []
        for name in names:
            disk = self._bookies[name].disk
            compare += (Compare(COOKIES + name, KeyField.CREATE_REVISION, disk), Compare.absent(DRAINING + name))
        return tuple(compare)

    def alive(self) -> Collection[BookieId]:
        """The bookies with a live lease, including those with an unreadable registration."""
        return {*self._alive, *self._unreadable}

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`."""
        self._nursery.start_soon(run, *args)

    async def changed(self) -> None:
        """Waits until a bookie comes, goes or changes."""
        await self._follower.moved()

    # --- following ---

    async def load(self) -> None:
        """Reads the registered bookies and the cluster's id: three metadata reads.

        Raises:
            MetadataUnavailable: it could not be read.
        """
        self._cluster = await cluster_id(self._metadata, self._world.random("cluster-id"))
        await self._follower.load()

    async def run(self) -> None:
        """Follows the registrations until cancelled."""
        self._nursery.start_soon(self._timers.run)
        await self._follower.run()

    async def _read_members(self) -> None:
        """Reads the members, after the registrations: otherwise a bookie dismissed in between would stay known."""
        cookies = await self._metadata.range(COOKIES)
        members = {BookieId(item.key.removeprefix(COOKIES)): item.create_revision for item in cookies.items}
        for name, disk in members.items():
            self._meet(name, disk)
        self._dismiss([name for name in self._domains if name not in members])

    def _replace(self, found: RangeResult) -> None:
        here = {item.key for item in found.items}
        for name in self.alive():
            if f"{BOOKIES}{name}" not in here:
                self._went(name)
        self._draining = set()
        for item in found.items:
            self._change(item.key, item)

    def _apply(self, batch: WatchBatch) -> None:
        draining = set(self._draining)
        for event in batch.events:
            self._change(event.key, event.current)
        self._dismiss(draining - self._draining)

    def _dismiss(self, gone: Iterable[BookieId]) -> None:
        """Forgets bookies that have left the cluster and are not registered any more."""
        for name in gone:
            if name not in self._alive:
                self._domains.pop(name, None)

    def _change(self, key: str, current: KeyValue | None) -> None:
        if key.startswith(DRAINING):
            leaving = BookieId(key.removeprefix(DRAINING))
            (self._draining.discard if current is None else self._draining.add)(leaving)
            return
        if key.startswith(DISMISSED) and current is not None:
            self._end(BookieId(key.removeprefix(DISMISSED)), current.value)
        if not key.startswith(BOOKIES):
            return  # the follower's prefix also has the names of older stores
        name = BookieId(key.removeprefix(BOOKIES))
        if current is None:
            self._went(name)
            return
        try:
            registration = BookieRegistration.decode(current.value)
        except ValueError as error:
            self._came_unreadable(name, str(error))
        else:
            self._came(name, registration)

    def _came_unreadable(self, name: BookieId, reason: str) -> None:
        """An unreadable registration, perhaps of a newer version: the bookie gets no new entries from here."""
        if name not in self._unreadable:
            self._log.warning(
                "registration_unreadable", bookie=name, reason=reason, next="it gets no new ledgers from here"
            )
        self._alive.pop(name, None)
        self._unreadable.add(name)

    def _came(self, name: BookieId, registration: BookieRegistration) -> None:
        before = self._alive.get(name)
        bookie = self._meet(name, registration.disk)
        self._unreadable.discard(name)
        self._alive[name] = registration
        self._domains[name] = registration.domain
        if (
            bookie.client is None
            or before is None
            or (before.host, before.port) != (registration.host, registration.port)
        ):
            self._connect(name, bookie, registration)
        bookie.has_started()

    def _went(self, name: BookieId) -> None:
        """The lease of a bookie is over; its connection stays, since it may still answer."""
        self._alive.pop(name, None)
        self._unreadable.discard(name)

    def _end(self, name: BookieId, disk: bytes) -> None:
        """A disk was dismissed for good: it gets no more calls. Transactions that still name it are refused."""
        bookie = self._bookies.get(name)
        if bookie is None or str(bookie.disk).encode() != disk:
            return  # the name means another disk now
        bookie.retire()
        self._went(name)
        self._domains.pop(name, None)
        if name in self._scopes:
            self._scopes.pop(name).cancel()

    def _meet(self, name: BookieId, disk: Revision) -> RemoteBookie:
        """The bookie of a name. A changed disk means a different bookie: code that holds the old one keeps it."""
        bookie = self._bookies.get(name)
        if bookie is None or bookie.disk != disk:
            if bookie is not None:
                bookie.retire()
            seconds = self._explicit_lac_seconds
            bookie = self._bookies[name] = RemoteBookie(disk, self.clock, self._timers, explicit_lac_seconds=seconds)
            self._domains.setdefault(name, "")
        return bookie

    def _connect(self, name: BookieId, bookie: RemoteBookie, at: BookieRegistration) -> None:
        if name in self._scopes:
            self._scopes.pop(name).cancel()
        client = bookie_client(self._world, name, at.host, at.port, at.disk, self._cluster)
        bookie.client = client
        scope = self._scopes[name] = trio.CancelScope()
        self._nursery.start_soon(self._run_client, client, scope)

    @staticmethod
    async def _run_client(client: RpcClient, scope: trio.CancelScope) -> None:
        with scope:
            await client.run()
