"""`gnomon bookie`: runs a bookie in this process, until SIGTERM or SIGINT; lists and decommissions bookies."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import click
import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.node import BookieNodeSettings, ServingBookie, run_bookie
from gnomon.bookie.registry import RegisteredBookies
from gnomon.bookie.repair.auditor import Auditor, AuditSettings
from gnomon.bookie.storage.page_walk import DAMAGED_PAGES_HELP
from gnomon.cli.bookie_members import decommission, list_bookies
from gnomon.cli.cluster_metadata import awaited, metadata_address
from gnomon.cli.daemon import DaemonProcess, address, open_daemon
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import PORT, check_no_options, durability_option, metadata_option, set_option
from gnomon.metadata.client import MetadataUnavailable
from gnomon.metadata.cluster_id import CLUSTER_KEY
from gnomon.metadata.connect import connect_metadata
from gnomon.metadata.follower import RETRY_SECONDS
from gnomon.runtime.disk.data_directory import DirectoryKind
from gnomon.runtime.health import HealthCheck
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.endpoint import EVERY_ADDRESS
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.world import Clock, Durability

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--name", help="Name of the bookie, unique in the cluster.")
@metadata_option
@data_dir_option
@click.option("--host", help="Address that the cluster's processes connect to.")
@click.option("--port", type=PORT, help="Port for the cluster's processes; 0 picks a free one.")
@click.option("--advertised-host", help="Host name that other processes connect to; --host unless given.")
@click.option("--domain", help="Rack or zone; copies are spread over all of them.")
@click.option("--admin-port", type=PORT, help="Port for health and metrics; 0 picks a free one.")
@durability_option
@config_option
@set_option
@click.pass_context
def bookie(
    ctx: click.Context,
    name: str | None,
    metadata_address: str | None,
    data_dir: str | None,
    host: str | None,
    port: int | None,
    advertised_host: str | None,
    domain: str | None,
    admin_port: int | None,
    durability: str | None,
    config_file: Path | None,
    given: tuple[str, ...],
) -> None:
    """Run a bookie of a cluster, or list and decommission bookies.

    Without a subcommand it stores entries, and takes part in the election of the auditor. It writes one line to
    standard output once it serves. SIGTERM or SIGINT ends it: received entries are on disk first.
    """
    if ctx.invoked_subcommand is not None:
        check_no_options(ctx)
        return
    named = {
        "data_dir": data_dir,
        "cluster.metadata": metadata_address,
        "bookie.durability": durability,
        "bookie_service.name": name,
        "bookie_service.host": host,
        "bookie_service.port": port,
        "bookie_service.advertised_host": advertised_host,
        "bookie_service.domain": domain,
        "bookie_service.admin_port": admin_port,
    }
    trio.run(_serve, read_settings(config_file, given, **named).settings)


bookie.add_command(list_bookies)
bookie.add_command(decommission)


def _told(settings: Settings) -> BookieNodeSettings:
    at = settings.bookie_service
    if not NAME.fullmatch(at.name):
        problem = f"bookie name {at.name!r} is refused" if at.name else "the bookie has no name"
        raise Failure(f"{problem}: give --name with letters, digits, '.', '_' and '-', at most 100", Exit.USAGE)
    return BookieNodeSettings(
        BookieId(at.name),
        settings.data_dir,
        host=at.host,
        port=at.port,
        advertised_host=at.advertised_host,
        advertised_port=at.advertised_port,
        domain=at.domain,
        map_bytes=settings.bookie.map_bytes,
        durability=settings.bookie.durability,
        lease_seconds=at.lease_seconds,
        garbage_interval_seconds=settings.bookie.garbage_interval_seconds,
        accept_older_metadata=settings.bookie.accept_older_metadata,
        accept_older_store=settings.bookie.accept_older_store,
    )


async def _serve(settings: Settings) -> None:
    told = _told(settings)
    where = metadata_address(settings)
    at = settings.bookie_service
    async with (
        open_daemon(
            settings,
            at.admin_host,
            at.admin_port,
            node=at.name,
            stores=DirectoryKind.BOOKIE,
            listens=[(at.host, at.port)],
        ) as daemon,
        awaited(settings.cluster.metadata, daemon.waits, where.patience_seconds()) as answered,
        connect_metadata(daemon.world, where) as metadata,
        trio.open_nursery() as nursery,
    ):

        def ready(serving: ServingBookie) -> None:
            answered()
            bookies = RegisteredBookies(daemon.world, metadata, daemon.log, nursery)
            auditor = Auditor(metadata, bookies, _audit(settings), told.name, daemon.log)
            nursery.start_soon(_run_auditor, bookies, auditor)
            _ready(daemon, settings, serving, auditor)

        await metadata.get(CLUSTER_KEY)  # fails before a new directory is marked as a bookie's
        try:
            await run_bookie(daemon.world, metadata, told, daemon.log, ready=ready, stop=daemon.stop)
        finally:
            nursery.cancel_scope.cancel()


def _audit(settings: Settings) -> AuditSettings:
    given = settings.auditor
    return AuditSettings(
        given.grace_seconds, given.interval_seconds, given.lease_seconds, given.repair_bytes_per_second
    )


async def _run_auditor(bookies: RegisteredBookies, auditor: Auditor) -> None:
    """Takes part in the election of the auditor, after the list of bookies is loaded."""
    while True:
        try:
            await bookies.load()
        except MetadataUnavailable:
            await bookies.clock.sleep(RETRY_SECONDS)
        else:
            break
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bookies.run)
        nursery.start_soon(auditor.run)


def _ready(daemon: DaemonProcess, settings: Settings, serving: ServingBookie, auditor: Auditor) -> None:
    at, store, totals = settings.bookie_service, serving.store, auditor.totals
    metrics = Metrics(kafka=False)
    metrics.durability_synced = int(settings.bookie.durability is Durability.SYNCED)
    metrics.watch_store("bookie", serving.environment)
    watch, count = metrics.watch, metrics.watch_count
    watch("bookie_read_only", "1 while the bookie takes no entries", lambda: store.read_only is not None)
    watch("bookie_damaged_pages", DAMAGED_PAGES_HELP, lambda: len(store.pages.damages))
    watch(
        "bookie_older_copy",
        "1 while the store is an older copy that is not repaired yet",
        lambda: store.may_have_lost is not None,
    )
    count("entries_collected", "Entries removed from disk", lambda: serving.garbage.total.entries)
    watch("auditor_elected", "1 where this process is the cluster's auditor", lambda: auditor.elected)
    count("auditor_copied_bytes", "Bytes that repair copied", lambda: auditor.copied_bytes)
    count("auditor_fragments_moved", "Fragments that repair moved", lambda: totals.fragments_moved)
    watch("auditor_reports_open", "Ledgers of which copies are missing, at the auditor", lambda: auditor.reports_open)
    count("auditor_reports_settled", "Reports of missing entries settled", lambda: totals.reports_settled)
    where = address(serving.host, serving.port)
    daemon.ready(
        metrics,
        partial(_checks, serving, daemon.world.clock),
        bookie=where,
        name=at.name,
        admin=daemon.admin_address,
        data=settings.data_dir,
    )
    if settings.bookie.durability is Durability.NONE:
        daemon.log.warning("durability_none", meaning="a power cut may lose acknowledged entries: for tests only")
    if at.advertised_host in EVERY_ADDRESS:
        daemon.log.warning(
            "advertised_host_missing",
            problem=f"the cluster's processes are sent to {at.advertised_host}, which from another machine"
            " is not this one: set bookie_service.advertised_host to the name or address that they know it by",
        )


def _checks(serving: ServingBookie, clock: Clock) -> list[HealthCheck]:
    """The conditions for entries to be sent to this bookie."""
    lost, damages = serving.store.may_have_lost, serving.store.pages.damages
    kept = serving.presence.alive_until > clock.monotonic()
    return [
        HealthCheck("bookie", serving.store.read_only),
        HealthCheck("copies", None if lost is None else f"{lost.why}; the auditor copies them from other bookies"),
        HealthCheck("pages", damages[0].problem if damages else None),
        HealthCheck("registration", None if kept else "its lease is not kept: the metadata does not answer"),
    ]
