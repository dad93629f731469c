"""What every daemon has: logs, the world, an admin port, and a stop that SIGTERM or SIGINT sets."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from gnomon.broker.admin.http import Check, admin_app
from gnomon.broker.broker import Broker
from gnomon.cli.signals import stop_on_signal
from gnomon.runtime.collector import short_collections
from gnomon.runtime.data_directory import DirectoryKind, check_directory
from gnomon.runtime.http import HttpSocket
from gnomon.runtime.logs import StreamLogger, configure_logs
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings import Settings
from gnomon.runtime.sockets import check_address
from gnomon.runtime.trio_world import TrioWorld, open_trio_world


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process that serves until `stop` is set."""

    world: TrioWorld
    log: StreamLogger
    stop: trio.Event
    serves: trio.Event
    admin: HttpSocket
    nursery: trio.Nursery

    @property
    def admin_address(self) -> str:
        """`host:port` of health and metrics."""
        return address(self.admin.host, self.admin.port)

    def waits(self, reason: str) -> None:
        """Says why it does not serve yet."""
        self.log.warning("waiting", reason=reason)

    def ready(
        self,
        metrics: Metrics,
        checks: Callable[[], list[Check]],
        *,
        administered: Broker | None = None,
        **facts: object,
    ) -> None:
        """Serves the admin port from now on, and writes the one line of standard output: `ready` and the facts.

        Args:
            administered: the broker whose admin API is served beside health and metrics.
        """
        dropped = "Lines of the log that could not be written when they were due"
        metrics.watch("log_lines_dropped", dropped, lambda: self.log.lines_dropped)
        self.nursery.start_soon(self.admin.serve, partial(admin_app, metrics, checks, administered), self.stop.wait)
        self.serves.set()
        print("ready", *(f"{name}={value}" for name, value in facts.items()), flush=True)


@asynccontextmanager
async def open_daemon(
    settings: Settings,
    admin_host: str,
    admin_port: int,
    *,
    stores: DirectoryKind | None = None,
    listens: Sequence[tuple[str, int]] = (),
) -> AsyncIterator[Daemon]:
    """Binds the admin port, which is served once the daemon is `ready`.

    The directory and the addresses that it takes later on are tried before: two daemons of one directory often have
    their ports in common, and one that finds its ports taken is not to mark a directory.

    Args:
        stores: what the data directory is to be; None of a daemon that has none.
        listens: host and port of each address.

    Raises:
        DirectoryTaken, NewerFormat, OtherKind: it cannot have the directory.
        AddressTaken: a port is in use.
    """
    log = configure_logs(settings.log.level, settings.log.format, sys.stderr)
    stop = trio.Event()
    with short_collections():
        async with (
            open_trio_world(lambda text: log.warning("sockets", problem=text)) as world,
            trio.open_nursery() as nursery,
        ):
            if stores is not None:
                check_directory(world.disk, settings.data_dir, stores)
            for host, port in listens:
                await check_address(host, port)
            admin = HttpSocket(admin_host, admin_port)
            try:
                await nursery.start(stop_on_signal, stop)
                daemon = Daemon(world, log, stop, trio.Event(), admin, nursery)
                nursery.start_soon(_end_unless_it_serves, daemon)
                yield daemon
            finally:
                admin.close()
                nursery.cancel_scope.cancel()


async def _end_unless_it_serves(daemon: Daemon) -> None:
    """Ends at once what is told to stop while it waits for others."""
    await daemon.stop.wait()
    if not daemon.serves.is_set():
        daemon.nursery.cancel_scope.cancel()


def address(host: str, port: int) -> str:
    """`host:port` as it is written."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
