"""`gnomon metadata`: runs the metadata service of a cluster in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path

import click
import trio

from gnomon.cli.daemon import DaemonProcess, address, open_daemon
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.options import PORT, durability_option, set_option
from gnomon.metadata.node import MetadataNodeSettings, ServingMetadata, run_metadata
from gnomon.runtime.disk.data_directory import DirectoryKind
from gnomon.runtime.health import HealthCheck
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import Durability


@click.command()
@data_dir_option
@click.option("--host", help="Address that the cluster's processes connect to.")
@click.option("--port", type=PORT, help="Port for the cluster's processes; 0 picks a free one.")
@click.option("--admin-port", type=PORT, help="Port for health and metrics; 0 picks a free one.")
@durability_option
@config_option
@set_option
def metadata(
    data_dir: str | None,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    durability: str | None,
    config_file: Path | None,
    given: tuple[str, ...],
) -> None:
    """Run the metadata service of a cluster.

    Writes one line to standard output once it serves. SIGTERM or SIGINT ends it.
    """
    named = {
        "data_dir": data_dir,
        "metadata_service.host": host,
        "metadata_service.port": port,
        "metadata_service.admin_port": admin_port,
        "bookie.durability": durability,
    }
    trio.run(_serve, read_settings(config_file, given, **named).settings)


async def _serve(settings: Settings) -> None:
    at = settings.metadata_service
    told = MetadataNodeSettings(
        settings.data_dir,
        host=at.host,
        port=at.port,
        map_bytes=settings.metadata.map_bytes,
        durability=settings.bookie.durability,
        history_revisions=settings.metadata.history_revisions,
    )
    async with open_daemon(
        settings,
        at.admin_host,
        at.admin_port,
        node="metadata",
        stores=DirectoryKind.METADATA,
        listens=[(at.host, at.port)],
    ) as daemon:

        def ready(serving: ServingMetadata) -> None:
            _ready(daemon, settings, serving)

        await run_metadata(daemon.world, told, daemon.log, ready=ready, stop=daemon.stop)


def _ready(daemon: DaemonProcess, settings: Settings, serving: ServingMetadata) -> None:
    metrics = Metrics(kafka=False)
    metrics.durability_synced = int(settings.bookie.durability is Durability.SYNCED)
    metrics.watch_store("metadata", serving.environment)
    metrics.watch_count("metadata_requests", "Requests of brokers and bookies", lambda: serving.metadata.requests)
    where = address(serving.host, serving.port)
    # No check is needed: a failed device ends the process, so a process that answers here serves.
    daemon.ready(
        metrics,
        lambda: [HealthCheck("metadata", None)],
        metadata=where,
        admin=daemon.admin_address,
        data=settings.data_dir,
    )
