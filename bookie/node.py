"""The node of a bookie: its disk, its service and its registration.

1. A bookie serves clients only after a check that its disk is its own (`cookie`). It refuses a client that asks for
   another bookie.
2. A bookie is registered in the metadata from the time it serves until it stops. The registration says whether the
   bookie accepts entries.
3. A failed write to the device ends the bookie: nothing is acknowledged after the failure.
4. A stopping bookie first withdraws its registration, so that no new ledger uses it. Then it answers the adds that it
   has accepted, and refuses further ones.
5. A bookie ends by itself after it was dismissed: its disk's cookie was deleted from the metadata, which says that the
   bookie was decommissioned, and no ledger needs it. From then on the bookie cannot register again. If the cookie is
   gone and no dismissal is recorded, the metadata was damaged: the bookie continues to serve.
6. A bookie whose store is an older copy of itself serves by the rule of `older_copy`, and says so. The readable part of
   a damaged store is such a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import trio

from gnomon.bookie.errors import ForeignDisk
from gnomon.bookie.ids import BookieId, LedgerId
from gnomon.bookie.protocol import ERRORS, HEADS, service_of
from gnomon.bookie.registration import BOOKIES, COOKIES, DISMISSED, BookieRegistration
from gnomon.bookie.storage.age import AGE_KEY, StoreAge
from gnomon.bookie.storage.cookie import check_cookie
from gnomon.bookie.storage.entry_store import DATABASES, EntryStore
from gnomon.bookie.storage.garbage import GarbageCollector, owned_ledgers
from gnomon.bookie.storage.older_copy import OlderCopy
from gnomon.bookie.storage.older_store import accept, admit, copy_in_repair, until_repaired
from gnomon.bookie.storage.page_walk import DAMAGED_FILE, walk_pages
from gnomon.bookie.storage.service import BookieService
from gnomon.bookie.storage.session_bound import SessionBound
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, MetadataError, Revision
from gnomon.metadata.cluster_id import cluster_id
from gnomon.metadata.follower import RETRY_SECONDS
from gnomon.metadata.presence import NotEntitled, Presence
from gnomon.runtime.disk.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.logs import Logger
from gnomon.runtime.rpc.server import RpcServer
from gnomon.runtime.tasks import open_tasks
from gnomon.runtime.world import DiskFailed, DiskFull, Durability, Environment, World

STATE_SECONDS: Final = 1.0
"""Interval at which the registration is updated with whether the disk is full."""
LEAVE_SECONDS_MAX: Final = 5.0
"""The longest time that a stopping bookie takes to write the adds it has taken."""
REFUSE_SECONDS: Final = 0.2
"""Seconds that a stopping bookie then refuses adds: clients learn that nothing was stored, instead of a lost
connection."""
NOT_LISTED_SECONDS: Final = 60.0
"""Interval at which a bookie says that the metadata does not list it."""
FOLDER: Final = "bookie"
RESTART: Final = (
    "check the disk, restart this bookie: it makes a new store of what can be read, and the auditor copies the rest"
)


@dataclass(frozen=True, slots=True)
class BookieNodeSettings:
    """The settings of one bookie."""

    name: BookieId
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str = "127.0.0.1"
    advertised_port: int = 0
    """0 means the port that the bookie listens on."""
    domain: str = ""
    """Rack or zone, for placement."""
    map_bytes: int = 1 << 40
    durability: Durability = Durability.SYNCED
    lease_seconds: float = 6.0
    garbage_interval_seconds: float = 10.0
    accept_older_metadata: bool = False
    accept_older_store: bool = False


@dataclass(frozen=True, slots=True)
class ServingBookie:
    """A running bookie."""

    host: str
    port: int
    store: EntryStore
    garbage: GarbageCollector
    environment: Environment
    presence: Presence


async def run_bookie(
    world: World,
    metadata: Metadata,
    settings: BookieNodeSettings,
    log: Logger,
    *,
    ready: Callable[[ServingBookie], None],
    stop: trio.Event,
) -> None:
    """Serves until `stop` is set, or until the bookie is not a member of the cluster any more.

    Args:
        metadata: must outlive this call; clients of other clusters are refused.

    Raises:
        DirectoryTaken, OtherFormat, OtherKind, AddressTaken, DiskFull: the bookie cannot start.
        ForeignDisk: the disk belongs to another bookie, the disk of this one was replaced, or the metadata is an
            older copy.
        MetadataUnavailable: the metadata could not be read at the start.
        DiskFailed: the device failed a write.
    """
    with hold_directory(world.disk, settings.data_dir, DirectoryKind.BOOKIE):
        environment = _open_environment(world, settings, log)
        try:
            member = await check_cookie(metadata, environment, settings.name, world.random("bookie-cookie"))
            if member.lost is not None:
                advice = f"if it is gone for good: `gnomon bookie decommission {settings.name}`, then start again"
                raise ForeignDisk(f"{member.lost}; {advice}")
            cluster = await cluster_id(metadata, world.random("cluster-id"))
            age = StoreAge(metadata, environment, settings.name, member.disk)
            revision = (await metadata.range(COOKIES)).revision
            older = await age.compare(revision, accept_older_metadata=settings.accept_older_metadata)
            copy = await _older_copy(metadata, environment, settings, member.disk, older, log)
            owned = await owned_ledgers(metadata)
            await age.begin(owned[1])
            disk = _CheckedDisk(environment, member.disk, age, copy)
            await _serve(world, metadata, settings, log, disk, owned, cluster, ready, stop)
        finally:
            environment.close()


def _open_environment(world: World, settings: BookieNodeSettings, log: Logger) -> Environment:
    """Opens the store. Of a damaged one, the records that can be read become an older copy.

    It is damaged if it cannot be opened, or if its last run found damaged pages.
    """
    path = settings.data_dir / FOLDER

    def salvaged(reason: str) -> bool:
        if not world.disk.salvage(path, databases=DATABASES, omit=(AGE_KEY,)):
            return False
        if known:
            world.disk.write_file(path / DAMAGED_FILE, b"")
        log.error("store_salvaged", reason=reason, next="it goes on with what can be read; the damaged file is kept")
        return True

    def opened() -> Environment:
        return world.disk.open_environment(
            path, databases=DATABASES, map_bytes=settings.map_bytes, durability=settings.durability
        )

    known = world.disk.read_file(path / DAMAGED_FILE)
    if known:
        salvaged(f"{path / 'data.mdb'} is damaged: {known.decode(errors='replace').strip()}")
    try:
        return opened()
    except DiskFailed as error:
        if not salvaged(str(error)):
            raise
        return opened()


class _CheckedDisk(NamedTuple):
    """The checked disk of a bookie."""

    environment: Environment
    revision: Revision
    """See `DiskMembership.disk`."""
    age: StoreAge
    copy: OlderCopy | None
    """Why it may lack entries; None if it does not."""


async def _older_copy(
    metadata: Metadata,
    environment: Environment,
    settings: BookieNodeSettings,
    disk: Revision,
    why: str | None,
    log: Logger,
) -> OlderCopy | None:
    """Makes the store fit to serve, if it is an older copy; `why` says that it is."""
    copy = await copy_in_repair(metadata, settings.name)
    if settings.accept_older_store:
        if why is not None or copy is not None:
            await accept(metadata, environment, settings.name, disk)
            log.warning("older_store_accepted", reason=why or (copy and copy.why), meaning="what it lacks is given up")
        return None
    if why is not None:
        copy = await admit(metadata, environment, settings.name, disk, why)
    if copy is not None:
        log.warning(
            "older_store",
            reason=copy.why,
            meaning="it serves what it has, and answers that it does not know about the rest",
            next="the auditor copies what it lacks from other bookies; or put the newest copy back",
        )
    return copy


async def _serve(
    world: World,
    metadata: Metadata,
    settings: BookieNodeSettings,
    log: Logger,
    on: _CheckedDisk,
    owned: tuple[Collection[LedgerId], Revision],
    cluster: str,
    ready: Callable[[ServingBookie], None],
    stop: trio.Event,
) -> None:
    environment, disk, age = on.environment, on.revision, on.age
    store = EntryStore(environment, world.clock, may_have_lost=on.copy)
    store.ledgers.owned(*owned)
    async with open_tasks() as tasks:
        tasks.start_soon(store.run)
        interval_seconds = settings.garbage_interval_seconds
        garbage = GarbageCollector(store, metadata, age, world.clock, interval_seconds=interval_seconds)
        tasks.start_soon(garbage.run)
        tasks.start_soon(walk_pages, world, store, settings.data_dir / FOLDER, log, RESTART)
        tasks.start_soon(age.grow_older, world.clock, lambda: store.adds.entries_added)
        sessions = SessionBound(metadata, settings.name, owned[1], store.promised)
        methods = BookieService(store, tasks, sessions).methods()
        server = RpcServer(world, service_of(settings.name, disk), methods, ERRORS, log, cluster=cluster, heads=HEADS)
        listener = await server.listen(settings.host, settings.port)
        port = settings.advertised_port or listener.port
        registration = BookieRegistration(settings.advertised_host, port, disk, settings.domain)
        presence = _presence(world, metadata, settings, registration, disk)
        registered = trio.CancelScope()
        tasks.start_soon(_register, presence, registered)
        tasks.start_soon(_tell_state, world, store, presence, registration)
        tasks.start_soon(server.run)
        tasks.start_soon(_stop_when_dismissed, world, metadata, settings.name, disk, log, stop)
        if on.copy is not None:
            tasks.start_soon(_tell_when_repaired, world, metadata, settings.name, on.copy, store, log)
        if await _announced(presence, stop):
            ready(ServingBookie(listener.host, listener.port, store, garbage, environment, presence))
        await stop.wait()
        registered.cancel()
        with trio.move_on_after(settings.lease_seconds):  # by then the lease has ended anyway
            await presence.withdraw()
        await _leave(world, store)
        server.close()


def _presence(
    world: World, metadata: Metadata, settings: BookieNodeSettings, registration: BookieRegistration, disk: Revision
) -> Presence:
    """The registration under a lease, which only the member with this disk may have."""
    key = f"{BOOKIES}{settings.name}"
    member = Compare(f"{COOKIES}{settings.name}", KeyField.CREATE_REVISION, disk)
    return Presence(metadata, world.clock, key, registration.encode(), settings.lease_seconds, compare=(member,))


async def _register(presence: Presence, scope: trio.CancelScope) -> None:
    with scope, suppress(NotEntitled):  # `_stop_when_dismissed` handles the same event
        await presence.run()


async def _announced(presence: Presence, stop: trio.Event) -> bool:
    """Waits until the bookie is registered; false if it is to stop before that."""
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up)
        await presence.announced()
        nursery.cancel_scope.cancel()
    return not stop.is_set()


async def _leave(world: World, store: EntryStore) -> None:
    with trio.move_on_after(LEAVE_SECONDS_MAX), suppress(DiskFull):
        await store.leave()
    await world.clock.sleep(REFUSE_SECONDS)


async def _tell_state(world: World, store: EntryStore, presence: Presence, registration: BookieRegistration) -> None:
    while True:
        await world.clock.sleep(STATE_SECONDS)
        store.adds.probe()
        presence.update(replace(registration, read_only=store.read_only is not None).encode())


async def _tell_when_repaired(
    world: World, metadata: Metadata, name: BookieId, copy: OlderCopy, store: EntryStore, log: Logger
) -> None:
    await until_repaired(metadata, world.clock, name, copy)
    store.repaired()
    log.info("older_store_repaired", meaning="it lacks nothing any more")


async def _stop_when_dismissed(
    world: World, metadata: Metadata, name: BookieId, disk: Revision, log: Logger, stop: trio.Event
) -> None:
    """Sets `stop` when the auditor has emptied the bookie, and the cookie of this disk is gone."""
    key = f"{COOKIES}{name}"

    def is_ours(item: KeyValue | None) -> bool:
        return item is not None and item.create_revision == disk

    while True:
        try:
            found = await metadata.range(key)
            gone = not any(item.key == key and is_ours(item) for item in found.items)
            async with metadata.watch(key, Revision(found.revision + 1)) as batches:
                while not gone:
                    batch = await anext(batches)
                    gone = any(event.key == key and not is_ours(event.current) for event in batch.events)
            word = await metadata.get(f"{DISMISSED}{name}")
        except MetadataError:
            await world.clock.sleep(RETRY_SECONDS)
            continue
        if word is None or word.value != str(disk).encode():
            log.error(
                "bookie_not_listed",
                problem="the metadata does not list this bookie, and does not say that it was decommissioned",
                next="it serves on and removes nothing: check the metadata, and restore it from a copy if it lost keys",
            )
            await world.clock.sleep(NOT_LISTED_SECONDS)
        else:
            log.warning(
                "bookie_dismissed",
                meaning="the metadata no longer lists this bookie; once it is decommissioned, its disk can be removed",
            )
            stop.set()
            return
