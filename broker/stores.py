"""The stores in a data directory: metadata and entries, opened together by whoever owns the directory.

1. A data directory has one owner at a time; one of another command, or of a newer format, is refused.
2. The stores are closed when the block ends, after the tasks that used them.
3. A device that failed a write ends the block with its error: nothing is acknowledged after it.
4. Entries have one copy here. Where that is gone nothing is served: without it no ledger can be told from an empty one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from gnomon.bookie.client import LocalBookie, LocalBookies
from gnomon.bookie.cookie import check_cookie
from gnomon.bookie.entry_store import DATABASES as BOOKIE_DATABASES
from gnomon.bookie.entry_store import EntryStore
from gnomon.bookie.ids import BookieId
from gnomon.metadata.embedded import DATABASES as METADATA_DATABASES
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.runtime.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.settings import Settings
from gnomon.runtime.world import Environment, World, WorldError

BOOKIE_FOLDER = "bookie"
METADATA_FOLDER = "metadata"
BOOKIE_NAME = BookieId("bookie-1")


class EntriesLost(WorldError):
    """The metadata was used with another store of entries than the one that is there now."""


@dataclass(frozen=True, slots=True)
class Stores:
    """What a data directory holds, open."""

    metadata: EmbeddedMetadata
    store: EntryStore
    bookies: LocalBookies
    """Those that ledgers are opened with, as long as the stores are open."""
    environments: dict[str, Environment]
    """By folder: BOOKIE_FOLDER and METADATA_FOLDER."""


@asynccontextmanager
async def open_stores(world: World, settings: Settings) -> AsyncIterator[Stores]:
    """Takes the data directory for this process and opens its stores, for as long as the block lasts.

    Raises:
        DirectoryTaken, NewerFormat, OtherKind, DiskFull: they could not be opened.
        ForeignDisk: the folders of the directory do not belong together.
        EntriesLost: the folder of entries is gone, or empty.
        DiskFailed: the device failed, also later on (in an ExceptionGroup).
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
            async with trio.open_nursery() as nursery:
                yield await _opened(world, settings, environments, nursery)
                nursery.cancel_scope.cancel()
        finally:
            for environment in environments.values():
                environment.close()


async def _opened(
    world: World, settings: Settings, environments: dict[str, Environment], nursery: trio.Nursery
) -> Stores:
    entries = environments[BOOKIE_FOLDER]
    metadata = await EmbeddedMetadata.open(
        world, environments[METADATA_FOLDER], history_revisions=settings.metadata.history_revisions
    )
    nursery.start_soon(metadata.run)
    if (await check_cookie(metadata, entries, BOOKIE_NAME, world.random("bookie-cookie"))).lost is not None:
        directory = settings.data_dir
        raise EntriesLost(
            f"the records of data directory {directory} are missing: {directory / BOOKIE_FOLDER} was gone or empty, but"
            f" {directory / METADATA_FOLDER} knows of one that was in use: stop here and put that folder (or its disk)"
            f" back in its place; to give up all records and topics instead, delete {directory} and start again"
        )
    store = EntryStore(entries, world.clock)
    nursery.start_soon(store.run)
    return Stores(metadata, store, bookies_on(store, world, nursery), environments)


def bookies_on(store: EntryStore, world: World, nursery: trio.Nursery) -> LocalBookies:
    """The one bookie of a data directory; `nursery` runs what its open ledgers have to do."""
    return LocalBookies({BOOKIE_NAME: LocalBookie(store)}, world.clock, nursery)
