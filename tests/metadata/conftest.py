"""Metadata backends under test, on an LMDB environment that commits inline, on virtual time."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gnomon.metadata.client import LeaseId, Metadata, Revision, WatchBatch
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.metadata.remote import RemoteMetadata
from gnomon.metadata.service import serve_metadata
from gnomon.runtime.commit import commit_group, open_lmdb
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.trio_world import TrioClock, open_trio_world
from gnomon.runtime.world import CommitCounts, Durability, WorldError
from gnomon.testing.etcd_server import EtcdServer, etcd_missing
from gnomon.testing.simulation import Simulation, simulate

sys.path.insert(0, str(Path(__file__).parent))  # for `real_etcd`: test folders are no packages

Scenario = Callable[[Metadata], Awaitable[None]]


class InlineEnvironment:
    """An `Environment` that commits within `submit`, unless it is held: then when the test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts = CommitCounts()
        self.held = False
        self.failing: WorldError | None = None
        self.waiting: list[tuple[Callable[[Any], Any], Callable[[Any, WorldError | None], None]]] = []
        self.lmdb, self.databases = open_lmdb(path, databases=DATABASES, map_bytes=1 << 26, durability=Durability.NONE)

    def read(self) -> AbstractContextManager[Any]:
        return self.lmdb.begin(buffers=True)

    def submit(self, operation: Callable[[Any], Any], done: Callable[[Any, WorldError | None], None]) -> None:
        self.waiting.append((operation, done))
        if not self.held:
            self.release()

    def release(self) -> None:
        """Commits what has been submitted, or fails it with `failing`."""
        waiting, self.waiting = self.waiting, []
        for operation, done in waiting:
            if self.failing is not None:
                done(None, self.failing)
                continue
            self.counts.groups += 1
            (result,) = commit_group(self.lmdb, self.path, [operation])
            done(result, None)

    def commit_untold(self) -> None:
        """Commits what has been submitted, but the process dies before it hears of it."""
        for operation, _ in self.waiting:
            commit_group(self.lmdb, self.path, [operation])

    async def commit(self, operation: Callable[[Any], Any]) -> Any:
        assert not self.held
        await trio.lowlevel.checkpoint()
        (result,) = commit_group(self.lmdb, self.path, [operation])
        return result

    def file_bytes(self) -> int:
        return (self.path / "data.mdb").stat().st_size

    def close(self) -> None:
        self.lmdb.close()


class ClockOnlyWorld:
    """A `World` of which the metadata store needs the clock alone."""

    network: Any = None
    disk: Any = None

    def __init__(self) -> None:
        self.clock = TrioClock()

    def random(self, name: str) -> random.Random:
        raise AssertionError("the metadata store draws no random numbers")

    def blocking(self, call: Callable[..., Any], *args: object) -> Awaitable[Any]:
        raise AssertionError("the metadata store makes no blocking calls")


class Machine:
    """One data directory, and the store in it as often as it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = ClockOnlyWorld()

    @contextmanager
    def environment(self) -> Iterator[InlineEnvironment]:
        environment = InlineEnvironment(self.path)
        try:
            yield environment
        finally:
            environment.close()

    async def open(self, environment: InlineEnvironment, history_revisions: int = 10_000) -> EmbeddedMetadata:
        return await EmbeddedMetadata.open(self.world, environment, history_revisions=history_revisions)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Runs an async test on virtual time: a test that hangs fails after ten virtual minutes."""

        async def bounded() -> None:
            with trio.fail_after(600):
                await main()

        trio.run(bounded, clock=MockClock(autojump_threshold=0))

    def run_scenario(self, scenario: Scenario) -> None:
        """Runs what is written against the interface alone."""

        async def main() -> None:
            with self.environment() as environment:
                metadata = await self.open(environment)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(metadata.run)
                    await scenario(metadata)
                    nursery.cancel_scope.cancel()

        self.run(main)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose disk the test controls."""
    return Machine(tmp_path / "metadata")


def run_simulated(scenario: Scenario) -> None:
    """Runs what is written against the interface alone on the simulated world, whose commits take time."""
    finished: list[bool] = []

    async def node(world: Any) -> None:
        environment = world.disk.open_environment(
            Path("/data/metadata"), databases=DATABASES, map_bytes=1 << 26, durability=Durability.SYNCED
        )
        metadata = await EmbeddedMetadata.open(world, environment)
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


ETCD_HASTE = 8.0
"""How many seconds of a scenario with leases pass in one of the machine's: etcd knows no virtual time."""


class EtcdWorld(ClockOnlyWorld):
    """A `World` of which the connection to etcd needs the clock, and random numbers for its pauses."""

    def random(self, name: str) -> random.Random:
        return random.Random(name)


class HastenedMetadata:
    """An etcd's metadata whose leases are shorter than asked for, and time, from the first of them on, faster."""

    def __init__(self, inner: Any, clock: MockClock) -> None:
        self._inner = inner
        self._clock = clock
        self.leases: list[LeaseId] = []
        self.compacted = False

    async def lease(self, ttl_seconds: float) -> LeaseId:
        self._clock.rate = ETCD_HASTE
        self.leases.append(await self._inner.lease(ttl_seconds / ETCD_HASTE))
        return self.leases[-1]

    async def compact(self, revision: Revision) -> None:
        self.compacted = True
        await self._inner.compact(revision)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class EtcdBackend:
    """An etcd that many scenarios share, each below a prefix of its own, until one compacts its history."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        self._new_directory = new_directory
        self._server: EtcdServer | None = None
        self._scenarios = 0

    def run_scenario(self, scenario: Scenario) -> None:
        """Runs what is written against the interface alone, on real or hastened time."""
        from gnomon.metadata.etcd import EtcdMetadata  # needs httpx2

        if self._server is None:
            self._server = EtcdServer(self._new_directory())
            self._server.start()
            self._server.wait_ready()
        self._scenarios += 1
        endpoints, prefix = [self._server.endpoint], f"gnomon/scenario-{self._scenarios}/"
        clock = MockClock(rate=1.0)

        async def main() -> bool:
            async with EtcdMetadata(EtcdWorld(), endpoints, prefix=prefix, call_seconds=10 * ETCD_HASTE) as inner:
                metadata = HastenedMetadata(inner, clock)
                with trio.fail_after(600):
                    await scenario(metadata)
                for lease in metadata.leases:  # the end of one would be a revision of the next scenario
                    await metadata.revoke(lease)
                return metadata.compacted

        compacted = True
        try:
            compacted = trio.run(main, clock=clock)
        finally:
            if compacted:
                self.close()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.kill()


@pytest.fixture(scope="session")
def etcd_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdBackend]:
    """The etcd of all scenarios, started by the first."""
    backend = EtcdBackend(lambda: tmp_path_factory.mktemp("etcd"))
    yield backend
    backend.close()


def etcd_or_skip() -> None:
    """Skips the test, loudly, where no etcd can be started."""
    missing = etcd_missing()
    if missing is not None:
        pytest.skip(f"NOT TESTED ON ETCD: {missing}")


@pytest.fixture
def etcd_world() -> EtcdWorld:
    """What the connection to an etcd needs of a world, on real time."""
    return EtcdWorld()


@pytest.fixture
def new_etcd(tmp_path: Path) -> Iterator[Callable[..., EtcdServer]]:
    """As many etcds as a test asks for, started, with the options of `EtcdServer`."""
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
    """Runs what is written against the interface alone over real sockets; virtual time passes when nothing moves."""

    async def main() -> None:
        with machine.environment() as environment, trio.fail_after(600):
            metadata = await machine.open(environment)
            async with open_trio_world() as world, trio.open_nursery() as nursery:
                nursery.start_soon(metadata.run)
                listener = await serve_metadata(world, metadata, nursery, SilentLogger(), "127.0.0.1", 0)
                remote = RemoteMetadata(world, [("127.0.0.1", listener.port)])
                nursery.start_soon(remote.run)
                await scenario(remote)
                nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0.02))


async def serve_store(world: Any) -> None:
    """A node with a metadata store that others may ask, on port 7."""
    environment = world.disk.open_environment(
        Path("/data/metadata"), databases=DATABASES, map_bytes=1 << 26, durability=Durability.SYNCED
    )
    metadata = await EmbeddedMetadata.open(world, environment)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.run)
        await serve_metadata(world, metadata, nursery, world.logger, "", 7)


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
        # A write that sets out before its client knows has an unknown outcome, which the suite does not expect.
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
                # Of operations at once, a fault for one would leave the outcome of another unknown.
                if not self._under_way:
                    await self._disturb()
                self._under_way += 1
            try:
                return await operation(*args)
            finally:
                self._under_way -= 1

        return disturbed


def run_remote_simulated(scenario: Scenario, disturbed: bool) -> None:
    """Runs what is written against the interface alone between two simulated machines."""
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
    """Runs a scenario on a fresh, empty store of each backend; `trio.sleep` passes the store's time."""
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
    """As many machines as a test asks for."""
    return lambda: Machine(tmp_path_factory.mktemp("machine") / "metadata")
