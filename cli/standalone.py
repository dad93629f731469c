"""`gnomon standalone`: runs metadata service, bookie and broker in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from gnomon.broker.admin.http import admin_app
from gnomon.broker.configs.broker_configs import BrokerConfigs, check_factor
from gnomon.broker.standalone import Serving, run_standalone
from gnomon.cli.daemon import address, listener_facts, open_daemon
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.options import PORT, durability_option, set_option
from gnomon.runtime.disk.data_directory import DirectoryKind
from gnomon.runtime.health import HealthCheck
from gnomon.runtime.settings.listeners import kafka_listeners
from gnomon.runtime.settings.settings import Settings

if TYPE_CHECKING:
    from gnomon.cli.child import ControlChannel


@click.command()
@data_dir_option
@click.option("--kafka-port", type=PORT, help="Port for Kafka clients; 0 picks a free one.")
@click.option("--native-port", type=PORT, help="Port for native clients; 0 picks a free one.")
@click.option("--admin-port", type=PORT, help="Port for health, metrics and administration; 0 picks a free one.")
@durability_option
@config_option
@set_option
@click.pass_obj
def standalone(
    control: ControlChannel | None,
    data_dir: str | None,
    kafka_port: int | None,
    native_port: int | None,
    admin_port: int | None,
    durability: str | None,
    config_file: Path | None,
    given: tuple[str, ...],
) -> None:
    """Run metadata service, bookie and broker in one process.

    Writes one line to standard output once it serves. SIGTERM or SIGINT ends it: pending requests are answered first.
    """
    named = {
        "data_dir": data_dir,
        "broker.kafka_port": kafka_port,
        "broker.native_port": native_port,
        "broker.admin_port": admin_port,
        "bookie.durability": durability,
    }
    settings = read_settings(config_file, given, **named).settings
    try:
        check_factor(settings.kafka, copies=1)
    except ValueError as problem:
        raise Failure(str(problem), Exit.USAGE) from None
    trio.run(_serve, settings, control)


async def _serve(settings: Settings, control: ControlChannel | None) -> None:
    at = settings.broker
    kafka = kafka_listeners(at, settings.kafka)
    listens = (*((one.host, one.port) for one in kafka), (at.native_host, at.native_port))
    node = f"broker-{BrokerConfigs(settings.kafka).number('broker.id')}"
    async with open_daemon(
        settings, at.admin_host, at.admin_port, node=node, stores=DirectoryKind.STANDALONE, listens=listens
    ) as daemon:

        def ready(serving: Serving) -> None:
            if control is not None:
                control.open(serving.broker, serving.server, daemon.world.clock)
            daemon.ready(
                serving.metrics,
                partial(checks, serving),
                make_app=partial(admin_app, administered=serving.administered),
                **listener_facts(serving.listeners),
                admin=daemon.admin_address,
                data=settings.data_dir,
                native=address(serving.native_host, serving.native_port),
            )

        await run_standalone(daemon.world, settings, daemon.log, ready=ready, stop=daemon.stop)


def checks(serving: Serving) -> list[HealthCheck]:
    """The conditions for clients to be sent to this node, and warnings."""
    return [
        HealthCheck("metadata", serving.broker.topics.problem()),
        HealthCheck("bookie", serving.bookie_problem()),
        HealthCheck("pages", None, serving.damaged_pages()),
        HealthCheck("tables", None, serving.broker.tables.warning()),
        *serving.native.watch.warnings(),
    ]
