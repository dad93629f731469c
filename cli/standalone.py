"""`gnomon standalone`: the whole broker in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys

import trio

from gnomon.broker.admin.http import Check, admin_app
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.broker.stores import NewerFormat
from gnomon.runtime.http import HttpSocket
from gnomon.runtime.logs import configure_logs
from gnomon.runtime.settings import Settings
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import AddressTaken, DirectoryTaken, DiskFailed, DiskFull

STARTING_ERRORS = (AddressTaken, DirectoryTaken, NewerFormat, DiskFull)


class NotStarted(Exception):
    """The broker could not start; the text says why and what to do."""


class DeviceFailed(Exception):
    """The broker stopped itself because a write failed."""


def serve(settings: Settings) -> None:
    """Runs a standalone broker; returns when it was asked to stop and has answered what was in flight.

    Raises:
        NotStarted, DeviceFailed: see there.
    """
    try:
        trio.run(_serve, settings)
    except BaseExceptionGroup as group:
        if (found := _first(group, STARTING_ERRORS)) is not None:
            raise NotStarted(str(found)) from None
        if (found := _first(group, (DiskFailed,))) is not None:
            raise DeviceFailed(f"{found}: stopped, nothing is acknowledged any more") from None
        raise


def _first(group: BaseExceptionGroup[BaseException], kinds: tuple[type[Exception], ...]) -> Exception | None:
    for error in group.exceptions:
        found = _first(error, kinds) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, kinds):
            return found
    return None


async def _serve(settings: Settings) -> None:
    log = configure_logs(settings.log.level, settings.log.format, sys.stderr)
    stop = trio.Event()
    async with (
        open_trio_world(lambda text: log.warning("sockets", problem=text)) as world,
        trio.open_nursery() as nursery,
    ):
        admin = HttpSocket(settings.broker.admin_host, settings.broker.admin_port)

        def ready(serving: Serving) -> None:
            app = lambda: admin_app(serving.metrics, lambda: checks(serving))  # noqa: E731 - built on first use
            nursery.start_soon(admin.serve, app, stop.wait)
            kafka = f"{serving.kafka_host}:{serving.kafka_port}"
            print(
                f"ready kafka={kafka} admin={admin.host}:{admin.port} data={settings.data_dir}",
                flush=True,
            )

        try:
            await nursery.start(_stop_on_signal, stop)
            await run_standalone(world, settings, log, ready=ready, stop=stop)
        finally:
            admin.close()
            nursery.cancel_scope.cancel()


async def _stop_on_signal(stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()


def checks(serving: Serving) -> list[Check]:
    """What has to hold for a broker to be sent clients."""
    return [
        Check("metadata", serving.image_problem()),
        Check("bookie", serving.bookie_problem()),
    ]
