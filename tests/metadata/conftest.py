"""The backends under test, and how a scenario runs on each."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gnomon.metadata.client import Revision, WatchBatch
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.metadata.remote import RemoteMetadata
from gnomon.metadata.service import serve_metadata
from gnomon.runtime.world import Durability
from gnomon.testing.etcd_server import EtcdServer
from gnomon.testing.simulation.simulation import Simulation, simulate

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

from etcd_backend import EtcdBackend, EtcdWorld
from etcd_needed import etcd_or_skip
from store_machine import Machine, Scenario


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose disk the test controls."""
    return Machine(tmp_path / "metadata")


async def open_store(world: Any) -> EmbeddedMetadata:
    """The store on the disk of a simulated machine."""
    environment = world.disk.open_environment(
        Path("/data/metadata"), databases=DATABASES, map_bytes=1 << 26, durability=Durability.SYNCED
    )
    return await EmbeddedMetadata.open(world, environment)


def run_simulated(scenario: Scenario) -> None:
    """Runs a scenario on the embedded store in the simulated world, whose commits take time."""
    finished: list[bool] = []

    async def node(world: Any) -> None:
        metadata = await open_store(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metadata.run)
            await scenario(metadata)
            finished.append(True)
            nursery.cancel_scope.cancel()

    async def cluster(simulation: Simulation) -> None:
        machine = simulation.machine("store")
        machine.start(node)
        assert machine.process is not None
        await machine.process.ended.wait()

    simulate(0, cluster)
    assert finished


@pytest.fixture(scope="session")
def etcd_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdBackend]:
    """The etcd of all scenarios; the first one starts it."""
    backend = EtcdBackend(lambda: tmp_path_factory.mktemp("etcd"))
    yield backend
    backend.close()


@pytest.fixture
def etcd_world() -> EtcdWorld:
    """The parts of a world that a connection to an etcd needs, on real time."""
    return EtcdWorld()


@pytest.fixture
def new_etcd(tmp_path: Path) -> Iterator[Callable[..., EtcdServer]]:
    """Starts one more etcd at each call, with the options of `EtcdServer`."""
    etcd_or_skip()
    servers: list[EtcdServer] = []

    def new(**options: Any) -> EtcdServer:
        servers.append(EtcdServer(tmp_path / f"etcd-{len(servers)}", **options))
        servers[-1].start()
        return servers[-1]

    yield new
    for server in servers:
        server.kill()


@pytest.fixture
def on_etcd(new_etcd: Callable[..., EtcdServer], etcd_world: EtcdWorld) -> Callable[..., None]:
    """Runs a test's body with an etcd of its own (see `run_on_etcd`)."""
    from real_etcd import run_on_etcd  # needs httpx2

    return partial(run_on_etcd, new_etcd, etcd_world)


def run_remote(machine: Machine, scenario: Scenario) -> None:
    """Runs a scenario on a remote store over real sockets; virtual time advances when all tasks wait."""

    async def main() -> None:
        with trio.fail_after(600):
            async with machine.serving() as served:
                await scenario(served.remote())

    trio.run(main, clock=MockClock(autojump_threshold=0.02))


async def serve_store(world: Any) -> None:
    """A node that serves a metadata store on port 7."""
    metadata = await open_store(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.run)
        await serve_metadata(world, metadata, nursery, world.logger, "", 7, cluster="test")


@pytest.fixture
def store_node() -> Callable[[Any], Awaitable[None]]:
    """`serve_store`, for tests that start and kill it themselves."""
    return serve_store


class DisturbedMetadata:
    """A remote store whose connections are reset, or whose node is killed and starts again, before each operation."""

    def __init__(self, inner: RemoteMetadata, simulation: Simulation) -> None:
        self._inner = inner
        self._simulation = simulation
        self._faults = simulation.random("faults")
        self._disturbing = trio.Lock()
        self._under_way = 0

    async def _disturb(self) -> None:
        store = self._simulation.machine("store")
        match self._faults.randrange(4):
            case 0:
                for stream in self._simulation.network.streams():
                    self._simulation.network.reset(stream)
            case 1:
                store.kill()
                store.start(serve_store)
            case 2:
                store.power_off()
                await trio.sleep(0.01)
                store.start(serve_store)
        # A write sent before its client notices the fault has an unknown outcome, which the suite does not expect.
        await trio.sleep(0.02)
        await self._inner.get("")

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        return self._watch(prefix, from_revision)

    @asynccontextmanager
    async def _watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        async with self._inner.watch(prefix, from_revision) as batches:
            yield batches

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def disturbed(*args: Any) -> Any:
            async with self._disturbing:
                # A fault before one of several concurrent operations would leave the outcome of the others unknown.
                if not self._under_way:
                    await self._disturb()
                self._under_way += 1
            try:
                return await operation(*args)
            finally:
                self._under_way -= 1

        return disturbed


def run_remote_simulated(scenario: Scenario, disturbed: bool) -> None:
    """Runs a scenario on a remote store between two simulated machines."""
    finished: list[bool] = []

    async def cluster(simulation: Simulation) -> None:
        async def node(world: Any) -> None:
            remote = RemoteMetadata(world, [("store", 7)])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(remote.run)
                await scenario(DisturbedMetadata(remote, simulation) if disturbed else remote)
                finished.append(True)
                nursery.cancel_scope.cancel()

        simulation.machine("store").start(serve_store)
        client = simulation.machine("client")
        client.start(node)
        assert client.process is not None
        await client.process.ended.wait()

    for seed in range(5 if disturbed else 1):
        finished.clear()
        simulate(seed, cluster)
        assert finished


@pytest.fixture(
    params=[
        "embedded",
        "embedded, simulated",
        "remote",
        "remote, simulated",
        "remote, simulated, disturbed",
        "etcd",
    ]
)
def metadata_backend(request: pytest.FixtureRequest, machine: Machine) -> Callable[[Scenario], None]:
    """Runs a scenario on a fresh, empty store of each backend; `trio.sleep` advances the store's time."""
    if request.param == "etcd":
        etcd_or_skip()
        backend: EtcdBackend = request.getfixturevalue("etcd_backend")
        return backend.run_scenario
    return {
        "embedded": machine.run_scenario,
        "embedded, simulated": run_simulated,
        "remote": partial(run_remote, machine),
        "remote, simulated": partial(run_remote_simulated, disturbed=False),
        "remote, simulated, disturbed": partial(run_remote_simulated, disturbed=True),
    }[request.param]


@pytest.fixture(scope="session")
def new_machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Machine]:
    """Creates one more machine at each call."""
    return lambda: Machine(tmp_path_factory.mktemp("machine") / "metadata")
