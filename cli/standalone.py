"""`gnomon standalone`: the whole broker in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path

import click
import trio

from gnomon.broker.admin.http import Check, admin_app
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.options import pairs
from gnomon.runtime.http import HttpSocket
from gnomon.runtime.logs import configure_logs
from gnomon.runtime.settings import Settings
from gnomon.runtime.trio_world import open_trio_world


@click.command()
@data_dir_option
@click.option("--kafka-port", type=int, help="Port for Kafka clients; 0 picks a free one.")
@click.option("--admin-port", type=int, help="Port for health, metrics and administration; 0 picks a free one.")
@click.option("--durability", type=click.Choice(["synced", "none"]), help="`none` may lose records in a power cut.")
@config_option
@click.option("--set", "given", metavar="NAME=VALUE", multiple=True, help="Any setting by its name; may be repeated.")
def standalone(
    data_dir: str | None,
    kafka_port: int | None,
    admin_port: int | None,
    durability: str | None,
    config_file: Path | None,
    given: tuple[str, ...],
) -> None:
    """Run metadata service, bookie and broker in one process.

    Writes one line to standard output once it serves. SIGTERM or SIGINT ends it: what was asked is answered first.
    """
    named = {
        "data_dir": data_dir,
        "broker.kafka_port": kafka_port,
        "broker.admin_port": admin_port,
        "bookie.durability": durability,
    }
    trio.run(_serve, read_settings(config_file, **{**pairs(given, "--set"), **named}).settings)


async def _serve(settings: Settings) -> None:
    log = configure_logs(settings.log.level, settings.log.format, sys.stderr)
    stop = trio.Event()
    async with (
        open_trio_world(lambda text: log.warning("sockets", problem=text)) as world,
        trio.open_nursery() as nursery,
    ):
        admin = HttpSocket(settings.broker.admin_host, settings.broker.admin_port)

        def ready(serving: Serving) -> None:
            make_app = partial(admin_app, serving.metrics, partial(checks, serving))
            nursery.start_soon(admin.serve, make_app, stop.wait)
            kafka = _address(serving.kafka_host, serving.kafka_port)
            print(f"ready kafka={kafka} admin={_address(admin.host, admin.port)} data={settings.data_dir}", flush=True)

        try:
            await nursery.start(_stop_on_signal, stop)
            await run_standalone(world, settings, log, ready=ready, stop=stop)
        finally:
            admin.close()
            nursery.cancel_scope.cancel()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
