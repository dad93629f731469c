"""Which bookies there are: each registers itself under a lease, and every process that uses ledgers follows that.

`bookies/<name>` says where a bookie is and lives as long as its lease; `cookies/<name>` stays, and names the cluster's
members; `bookies-draining/<name>` names those that are to leave.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import trio

from gnomon.bookie.client import Bookie
from gnomon.bookie.cookie import COOKIES
from gnomon.bookie.ids import BookieId
from gnomon.bookie.remote import EXPLICIT_LAC_SECONDS, RemoteBookie
from gnomon.bookie.service import ERRORS, service_of
from gnomon.metadata.client import Compare, Field, KeyValue, Metadata, RangeResult, Revision, WatchBatch
from gnomon.metadata.cluster_id import cluster_id
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc_client import RpcClient
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World

BOOKIES: Final = "bookies/"
DRAINING: Final = "bookies-draining/"
"""Prefix of the keys that name bookies which are to leave: they get nothing new, and the auditor empties them."""
_BOTH: Final = "bookies"
CALL_SECONDS: Final = 5.0
"""A bookie that has not answered a call by then has failed for the ledger that it was for."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a bookie says of itself."""

    host: str
    port: int
    disk: Revision
    """Which of the disks that its name has stood for (`cookie.Membership`)."""
    domain: str = ""
    """Rack or zone, for placement."""
    read_only: bool = False
    """It takes no entries at the moment."""

    def encode(self) -> bytes:
        """The value of its key."""
        encoded: bytes = msgpack.packb([self.host, self.port, self.domain, self.read_only, self.disk])
        return encoded

    @classmethod
    def decode(cls, value: bytes) -> Registration:
        """Undoes `encode`.

        Raises:
            ValueError: the value is no registration, or of a version that says more.
        """
        said = msgpack.unpackb(value)
        if not isinstance(said, list):
            raise ValueError(f"a registration that is none: {said!r}")
        host, port, domain, read_only, disk = said
        return cls(host, port, disk, domain, read_only)


class RegisteredBookies:
    """`Bookies` as the metadata names them; `run` follows it."""

    def __init__(
        self,
        world: World,
        metadata: Metadata,
        log: Logger,
        nursery: trio.Nursery,
        explicit_lac_seconds: float = EXPLICIT_LAC_SECONDS,
    ) -> None:
        """Knows nobody before `load`; `nursery` runs connections, and what open ledgers have to do.

        Args:
            explicit_lac_seconds: how long after the last add the bookies are told how far it is confirmed.
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
        self._alive: dict[BookieId, Registration] = {}
        self._unreadable: set[BookieId] = set()
        """Those alive of which it is not known where they are, or whether they take entries."""
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

    def membership(self, names: Iterable[BookieId]) -> tuple[Compare, ...]:
        """See `Bookies.membership`."""
        compare: list[Compare] = []
        for name in names:
            disk = self._bookies[name].disk
            compare += (Compare(COOKIES + name, Field.CREATE_REVISION, disk), Compare.absent(DRAINING + name))
        return tuple(compare)

    def alive(self) -> Collection[BookieId]:
        """Those whose lease lives, also such as say of themselves what cannot be read here."""
        return {*self._alive, *self._unreadable}

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Bookies.start_soon`."""
        self._nursery.start_soon(run, *args)

    async def changed(self) -> None:
        """Waits until a bookie comes, goes or changes."""
        await self._follower.moved()

    # --- following ---

    async def load(self) -> None:
        """Reads who there is, and of which cluster they have to be: three metadata reads.

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
        """Later than the registrations, or one that is dismissed in between would stay known."""
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
        """Forgets those that are members no more: they are registered neither as bookies nor as such that leave."""
        for name in gone:
            if name not in self._alive:
                self._domains.pop(name, None)

    def _change(self, key: str, current: KeyValue | None) -> None:
        if key.startswith(DRAINING):
            leaving = BookieId(key.removeprefix(DRAINING))
            (self._draining.discard if current is None else self._draining.add)(leaving)
            return
        name = BookieId(key.removeprefix(BOOKIES))
        if current is None:
            self._went(name)
            return
        try:
            registration = Registration.decode(current.value)
        except ValueError as error:
            self._came_unreadable(name, str(error))
        else:
            self._came(name, registration)

    def _came_unreadable(self, name: BookieId, reason: str) -> None:
        """A newer version's may say so: it is alive, and gets nothing new from here."""
        if name not in self._unreadable:
            self._log.warning(
                "registration_unreadable", bookie=name, reason=reason, next="it gets no new ledgers from here"
            )
        self._alive.pop(name, None)
        self._unreadable.add(name)

    def _came(self, name: BookieId, registration: Registration) -> None:
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
        """Its lease is over; it may answer all the same, so its connection stays."""
        self._alive.pop(name, None)
        self._unreadable.discard(name)

    def _meet(self, name: BookieId, disk: Revision) -> RemoteBookie:
        """The bookie of a name; one with another disk than before is another one, and who has that keeps it."""
        bookie = self._bookies.get(name)
        if bookie is None or bookie.disk != disk:
            if bookie is not None:
                bookie.retire()
            seconds = self._explicit_lac_seconds
            bookie = self._bookies[name] = RemoteBookie(disk, self.clock, self._timers, explicit_lac_seconds=seconds)
            self._domains.setdefault(name, "")
        return bookie

    def _connect(self, name: BookieId, bookie: RemoteBookie, at: Registration) -> None:
        if name in self._scopes:
            self._scopes.pop(name).cancel()
        client = RpcClient(
            self._world,
            at.host,
            at.port,
            service_of(name, at.disk),
            ERRORS,
            call_seconds=CALL_SECONDS,
            cluster=self._cluster,
        )
        bookie.client = client
        scope = self._scopes[name] = trio.CancelScope()
        self._nursery.start_soon(self._run_client, client, scope)

    @staticmethod
    async def _run_client(client: RpcClient, scope: trio.CancelScope) -> None:
        with scope:
            await client.run()
