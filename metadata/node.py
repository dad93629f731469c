"""The metadata service as a process of its own: the embedded store, served to the other processes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from gnomon.metadata.cluster_id import cluster_id
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.metadata.service import serve_metadata
from gnomon.metadata.state import HISTORY_REVISIONS
from gnomon.runtime.disk.data_directory import DirectoryKind, hold_directory
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import open_tasks
from gnomon.runtime.world import Durability, Environment, World

FOLDER: Final = "metadata"


@dataclass(frozen=True, slots=True)
class MetadataNodeSettings:
    """Settings of the service."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    map_bytes: int = 1 << 34
    durability: Durability = Durability.SYNCED
    history_revisions: int = HISTORY_REVISIONS


@dataclass(frozen=True, slots=True)
class ServingMetadata:
    """A running service."""

    host: str
    port: int
    metadata: EmbeddedMetadata
    environment: Environment


async def run_metadata(
    world: World,
    settings: MetadataNodeSettings,
    log: Logger,
    *,
    ready: Callable[[ServingMetadata], None],
    stop: trio.Event,
) -> None:
    """Serves until `stop` is set.

    Raises:
        DirectoryTaken, OtherFormat, OtherKind, AddressTaken, DiskFull: it could not start.
        DiskFailed: the device failed a write.
    """
    with hold_directory(world.disk, settings.data_dir, DirectoryKind.METADATA):
        environment = world.disk.open_environment(
            settings.data_dir / FOLDER,
            databases=DATABASES,
            map_bytes=settings.map_bytes,
            durability=settings.durability,
        )
        try:
            await _serve(world, settings, log, environment, ready, stop)
        finally:
            environment.close()


async def _serve(
    world: World,
    settings: MetadataNodeSettings,
    log: Logger,
    environment: Environment,
    ready: Callable[[ServingMetadata], None],
    stop: trio.Event,
) -> None:
    metadata = await EmbeddedMetadata.open(world, environment, history_revisions=settings.history_revisions)
    async with open_tasks() as tasks:
        try:
            tasks.start_soon(metadata.run)
            cluster = await cluster_id(metadata, world.random("cluster-id"))
            listener = await serve_metadata(world, metadata, tasks, log, settings.host, settings.port, cluster=cluster)
            ready(ServingMetadata(listener.host, listener.port, metadata, environment))
            await stop.wait()
        finally:
            metadata.close()
