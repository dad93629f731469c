"""The stores in a data directory: metadata and entries, opened together by the owner of the directory.

1. A data directory has one owner at a time. A directory that another command made, or that has another format, is
   refused.
2. The stores are open during the caller's `async with open_stores(...)` block. They are closed at the end of that
   block, after their own tasks have ended.
3. A failed write to the device cancels that block, which then raises the error of the write. Nothing is acknowledged
   after the failure.
4. The directory has the only copy of the entries. If that copy is gone, nothing is served, because every ledger would
   look empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gnomon.bookie.ids import BookieId
from gnomon.bookie.local_bookie import LocalBookie, LocalBookies
from gnomon.bookie.registration import COOKIES
from gnomon.bookie.storage.age import OlderStore, StoreAge
from gnomon.bookie.storage.cookie import check_cookie
from gnomon.bookie.storage.entry_store import DATABASES as BOOKIE_DATABASES
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.metadata.embedded import DATABASES as METADATA_DATABASES
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.runtime.disk.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.tasks import Tasks, open_tasks
from gnomon.runtime.world import Environment, World, WorldError

BOOKIE_FOLDER = "bookie"
METADATA_FOLDER = "metadata"
BOOKIE_NAME = BookieId("bookie-1")


class EntriesLost(WorldError):
    """The store of entries that belongs to the metadata is missing: the one in its place is new or empty."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The open stores of a data directory."""

    metadata: EmbeddedMetadata
    store: EntryStore
    age: StoreAge
    bookies: LocalBookies
    """The bookies for opening ledgers, usable as long as the stores are open."""
    environments: dict[str, Environment]
    """The environments by folder: BOOKIE_FOLDER and METADATA_FOLDER."""


@asynccontextmanager
async def open_stores(
    world: World, settings: Settings, on_group: Callable[[], None] | None = None
) -> AsyncIterator[Stores]:
    """Locks the data directory for this process and opens its stores, as long as the block lasts.

    Args:
        on_group: called after the outcomes of a whole group of adds are reported.

    Raises:
        DirectoryTaken, OtherFormat, OtherKind, DiskFull: the stores cannot be opened.
        ForeignDisk: the folders of the directory do not belong together, or one of them is an older copy.
        EntriesLost: the folder of entries is gone or empty.
        DiskFailed: the device failed, also later (in an ExceptionGroup).
    """
    with hold_directory(world.disk, settings.data_dir, DirectoryKind.STANDALONE):
        map_bytes = {BOOKIE_FOLDER: settings.bookie.map_bytes, METADATA_FOLDER: settings.metadata.map_bytes}
        environments: dict[str, Environment] = {}
        try:
            for folder, databases in ((BOOKIE_FOLDER, BOOKIE_DATABASES), (METADATA_FOLDER, METADATA_DATABASES)):
                environments[folder] = world.disk.open_environment(
                    settings.data_dir / folder,
                    databases=databases,
                    map_bytes=map_bytes[folder],
                    durability=settings.bookie.durability,
                )
            async with open_tasks() as tasks:
                stores = await _opened(world, settings, environments, tasks, on_group)
                try:
                    yield stores
                finally:
                    stores.metadata.close()  # operations that wait for the commit under way are not submitted
        finally:
            for environment in environments.values():
                environment.close()


async def _opened(
    world: World,
    settings: Settings,
    environments: dict[str, Environment],
    tasks: Tasks,
    on_group: Callable[[], None] | None,
) -> Stores:
    entries = environments[BOOKIE_FOLDER]
    metadata = await EmbeddedMetadata.open(
        world, environments[METADATA_FOLDER], history_revisions=settings.metadata.history_revisions
    )
    tasks.start_soon(metadata.run)
    member = await check_cookie(metadata, entries, BOOKIE_NAME, world.random("bookie-cookie"))
    if member.lost is not None:
        directory = settings.data_dir
        raise EntriesLost(
            f"the records of data directory {directory} are missing: {directory / BOOKIE_FOLDER} was gone or empty, but"
            f" {directory / METADATA_FOLDER} names a bookie that was in use: stop here and put that folder (or its"
            f" disk) back in its place; to give up all records and topics instead, delete {directory} and start again"
        )
    age = StoreAge(metadata, entries, BOOKIE_NAME, member.disk)
    revision = (await metadata.range(COOKIES)).revision
    older = await age.compare(revision, accept_older_metadata=settings.bookie.accept_older_metadata)
    if older is not None and not settings.bookie.accept_older_store:
        raise OlderStore(
            f"{older}, and no other bookie has them: put the newest copy of {settings.data_dir / BOOKIE_FOLDER} back; "
            "to give up the records that it lacks, start once with bookie.accept_older_store"
        )
    store = EntryStore(entries, world.clock, on_group=on_group)
    tasks.start_soon(store.run)
    return Stores(metadata, store, age, bookies_on(store, world, tasks), environments)


def bookies_on(store: EntryStore, world: World, tasks: Tasks) -> LocalBookies:
    """The one bookie of a data directory; `tasks` has the tasks of its open ledgers."""
    return LocalBookies({BOOKIE_NAME: LocalBookie(store)}, world.clock, tasks)
