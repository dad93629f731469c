"""`gnomon broker`: runs one broker of a cluster in this process, until SIGTERM or SIGINT; lists brokers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.ledgers.ledgers import connect_ledgers
from gnomon.broker.admin.http import admin_app
from gnomon.broker.clustered import BrokerNodeSettings, run_broker
from gnomon.broker.configs.broker_configs import BrokerConfigs, check_factor
from gnomon.broker.limits import BrokerLimits
from gnomon.broker.node import ServingBroker, endpoints
from gnomon.cli.cluster.live_brokers import list_brokers
from gnomon.cli.cluster_metadata import awaited, metadata_address
from gnomon.cli.daemon import DaemonProcess, address, listener_facts, open_daemon
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.given_settings import config_option, data_dir_option, read_settings
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import BROKER_ID, PORT, check_no_options, metadata_option, set_option
from gnomon.runtime.health import HealthCheck
from gnomon.runtime.settings.loaded_settings import DEFAULT, Loaded
from gnomon.runtime.settings.settings import Settings

if TYPE_CHECKING:
    from gnomon.cli.child import ControlChannel


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--id", "number", type=BROKER_ID, help="The broker's number, unique in the cluster.")
@metadata_option
@click.option("--kafka-host", help="Address that Kafka clients connect to.")
@click.option("--kafka-port", type=PORT, help="Port for Kafka clients; 0 picks a free one.")
@click.option("--native-port", type=PORT, help="Port for native clients; 0 picks a free one.")
@click.option("--advertised-host", help="Host name that clients connect to; --kafka-host unless given.")
@click.option("--admin-port", type=PORT, help="Port for health and metrics; 0 picks a free one.")
@data_dir_option
@config_option
@set_option
@click.pass_context
def broker(
    ctx: click.Context,
    number: int | None,
    metadata_address: str | None,
    kafka_host: str | None,
    kafka_port: int | None,
    native_port: int | None,
    advertised_host: str | None,
    admin_port: int | None,
    data_dir: str | None,
    config_file: Path | None,
    given: tuple[str, ...],
) -> None:
    """Run a broker of a cluster, or list the brokers.

    Without a subcommand it serves clients. Its data directory holds the stores of tables on disk, which are caches, and
    is taken when the first such table is used. It writes one line to standard output once it serves. SIGTERM or SIGINT
    ends it: the other brokers take over first.
    """
    if ctx.invoked_subcommand is not None:
        check_no_options(ctx)
        return
    named = {
        "cluster.metadata": metadata_address,
        "broker.kafka_host": kafka_host,
        "broker.kafka_port": kafka_port,
        "broker.native_port": native_port,
        "broker.advertised_host": advertised_host,
        "broker.admin_port": admin_port,
        "broker.id": number,
        "data_dir": data_dir,
    }
    trio.run(_serve, read_settings(config_file, given, **named), ctx.obj)


broker.add_command(list_brokers)


def _told(loaded: Loaded) -> BrokerNodeSettings:
    settings = loaded.settings
    at, cluster = settings.broker, settings.broker_service
    quorum = Quorum(cluster.ensemble_size, cluster.write_quorum, cluster.ack_quorum)
    try:
        quorum.check()
        check_factor(settings.kafka, quorum.write_quorum)
    except ValueError as problem:
        raise Failure(f"settings of broker_service: {problem}", Exit.USAGE) from None
    return BrokerNodeSettings(
        endpoints(settings, cluster.rack),
        lease_seconds=cluster.lease_seconds,
        quorum=quorum,
        subscriptions=settings.subscriptions,
        shadow_replication=settings.shadow_replication,
        table=settings.table,
        data_dir=None if loaded.origins["data_dir"] == DEFAULT else settings.data_dir,
        limits=BrokerLimits.of(at),
        label_sets_max=settings.metrics.label_sets_max,
        kafka=settings.kafka,
    )


async def _serve(loaded: Loaded, control: ControlChannel | None) -> None:
    settings, told = loaded.settings, _told(loaded)
    where = metadata_address(settings)
    node = f"broker-{BrokerConfigs(settings.kafka).number('broker.id')}"
    async with (
        open_daemon(settings, settings.broker.admin_host, settings.broker.admin_port, node=node) as daemon,
        awaited(settings.cluster.metadata, daemon.waits, where.patience_seconds()) as answered,
        connect_ledgers(
            where,
            world=daemon.world,
            explicit_lac_seconds=settings.cluster.explicit_lac_seconds,
            log=daemon.log,
        ) as ledgers,
    ):
        answered()

        def ready(serving: ServingBroker) -> None:
            if control is not None:
                control.open(serving.broker, serving.server, daemon.world.clock)
            _ready(daemon, settings, serving)

        await run_broker(
            daemon.world, ledgers.metadata, ledgers.bookies, told, daemon.log, ready=ready, stop=daemon.stop
        )


def _ready(daemon: DaemonProcess, settings: Settings, serving: ServingBroker) -> None:
    topics, placement = serving.broker.topics, serving.broker.placement
    daemon.ready(
        serving.metrics,
        lambda: [
            HealthCheck("metadata", topics.problem()),
            HealthCheck("registration", placement.lease_problem()),
            HealthCheck("tables", None, serving.broker.tables.warning()),
            *serving.native.watch.warnings(),
        ],
        make_app=partial(admin_app, administered=serving.administered),
        **listener_facts(serving.listeners),
        id=placement.node_id,
        admin=daemon.admin_address,
        metadata=settings.cluster.metadata,
        native=address(serving.native_host, serving.native_port),
    )
