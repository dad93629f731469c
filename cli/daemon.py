"""The common setup of every daemon: logs, the world, an admin port, and a stop event that SIGTERM or SIGINT sets."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import trio

from gnomon import __version__
from gnomon.cli.signals import stop_on_signal
from gnomon.runtime.collector import short_collections
from gnomon.runtime.disk.data_directory import PRIVATE_UMASK, DirectoryKind, check_directory
from gnomon.runtime.health import HealthCheck, health_app
from gnomon.runtime.http import HttpSocket
from gnomon.runtime.logs import StreamLogger, configure_logs
from gnomon.runtime.loop.sockets import check_address
from gnomon.runtime.loop.turn_watch import TurnWatch
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.listeners import KafkaListener
from gnomon.runtime.settings.settings import Settings
from gnomon.runtime.trio_world import TrioWorld, open_trio_world

if TYPE_CHECKING:
    from starlette.applications import Starlette

Checks: TypeAlias = Callable[[], list[HealthCheck]]
"""Called for each `/readyz`."""


@dataclass(frozen=True, slots=True)
class DaemonProcess:
    """A process that serves until `stop` is set."""

    world: TrioWorld
    log: StreamLogger
    stop: trio.Event
    serves: trio.Event
    admin: HttpSocket
    nursery: trio.Nursery
    turns: TurnWatch
    directory: Path | None
    """The data directory; None for a daemon without one."""
    facts: dict[str, str]
    """The version, the addresses and the data directory, once it serves."""

    @property
    def admin_address(self) -> str:
        """`host:port` of health and metrics."""
        return address(self.admin.host, self.admin.port)

    def waits(self, reason: str) -> None:
        """Logs the reason why the daemon does not serve yet."""
        self.log.warning("waiting", reason=reason)

    def ready(
        self,
        metrics: Metrics,
        checks: Checks,
        *,
        make_app: Callable[[Metrics, Checks], Starlette] = health_app,
        **facts: object,
    ) -> None:
        """Serves the admin port from now on, and writes a line to standard output: `ready`, the facts, the process id.

        The log gets them with the version.

        Args:
            make_app: makes the ASGI application of the admin port when its first client connects.
        """
        metrics.turn_seconds = self.turns.seconds
        metrics.process = True
        dropped = "Lines of the log that could not be written when they were due"
        metrics.watch_count("log_lines_dropped", dropped, lambda: self.log.lines_dropped)
        if self.directory is not None:
            metrics.watch_disk(self.world.disk, self.directory)
        self.nursery.start_soon(
            self.admin.serve,
            partial(make_app, metrics, checks),
            self.stop.wait,
            lambda reason: self.log.error("admin_port_unserved", reason=reason),
        )
        self.serves.set()
        facts["pid"] = os.getpid()
        print("ready", *(f"{name}={value}" for name, value in facts.items()), flush=True)
        self.facts.update(version=__version__, **{name: str(value) for name, value in facts.items()})
        self.log.info("started", **self.facts)


@asynccontextmanager
async def open_daemon(
    settings: Settings,
    admin_host: str,
    admin_port: int,
    *,
    node: str,
    stores: DirectoryKind | None = None,
    listens: Sequence[tuple[str, int]] = (),
) -> AsyncIterator[DaemonProcess]:
    """Binds the admin port, which is served once the daemon is `ready`.

    The directory and the addresses that the daemon takes later are tried first: two daemons of one directory often
    share their ports, and a daemon that finds its ports taken must not mark a directory.

    Args:
        node: the name of the node in each line of its log.
        stores: the kind of the data directory; None for a daemon without one.
        listens: host and port of each address.

    Raises:
        DirectoryTaken, OtherFormat, OtherKind: the directory cannot be used.
        AddressTaken: a port is in use.
    """
    log = configure_logs(settings.log.level, settings.log.format, sys.stderr).bind(node=node)
    stop = trio.Event()
    turns = TurnWatch(log)
    with short_collections():
        async with (
            open_trio_world(lambda text: log.warning("sockets", problem=text), poller=settings.network.poller) as world,
            trio.open_nursery() as nursery,
        ):
            os.umask(PRIVATE_UMASK)  # for the directory of a broker, which is taken later
            if stores is not None:
                check_directory(world.disk, settings.data_dir, stores)
                _warn_if_open_to_others(settings.data_dir, log)
            for host, port in listens:
                await check_address(host, port)
            admin = HttpSocket(admin_host, admin_port)
            try:
                await nursery.start(stop_on_signal, stop)
                directory = None if stores is None else settings.data_dir
                daemon = DaemonProcess(world, log, stop, trio.Event(), admin, nursery, turns, directory, {})
                nursery.start_soon(_end_unless_it_serves, daemon)
                yield daemon
                if daemon.facts:
                    log.info("stopped", **daemon.facts)
            finally:
                admin.close()
                nursery.cancel_scope.cancel()


def _warn_if_open_to_others(directory: Path, log: StreamLogger) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & PRIVATE_UMASK:
        advice = f"other users of this machine may read or change the records: chmod -R go= {directory}"
        log.warning("data_directory_open", path=str(directory), mode=f"{mode:04o}", next=advice)


async def _end_unless_it_serves(daemon: DaemonProcess) -> None:
    """Ends at once a daemon that is stopped while it waits for other processes."""
    await daemon.stop.wait()
    if not daemon.serves.is_set():
        daemon.nursery.cancel_scope.cancel()


def listener_facts(listeners: Sequence[KafkaListener]) -> dict[str, str]:
    """The addresses for Kafka clients in a `ready` line: that of the first listener, and all if there are several."""
    facts = {"kafka": address(listeners[0].host, listeners[0].port)}
    if len(listeners) > 1:
        facts["listeners"] = ",".join(one.address for one in listeners)
    return facts


def address(host: str, port: int) -> str:
    """`host:port` in its written form."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
