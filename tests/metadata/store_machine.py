"""A machine whose disk the test controls, and the embedded store on it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from gnomon.metadata.client import Metadata
from gnomon.metadata.embedded import DATABASES, EmbeddedMetadata
from gnomon.metadata.remote import RemoteMetadata
from gnomon.metadata.service import serve_metadata
from gnomon.runtime.disk.commit import commit_group, open_lmdb
from gnomon.runtime.logs import SilentLogger
from gnomon.runtime.trio_world import TrioWorld, open_trio_world
from gnomon.runtime.world import CommitCounts, Durability, WorldError
from gnomon.testing.simulation.simulated_clock import VirtualClock

Scenario = Callable[[Metadata], Awaitable[None]]


class InlineEnvironment:
    """An `Environment` that commits within `submit`; while it is `held`, only `release` commits."""

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
        """Commits the submitted operations, or fails them with `failing`."""
        waiting, self.waiting = self.waiting, []
        for operation, done in waiting:
            if self.failing is not None:
                done(None, self.failing)
                continue
            self.counts.groups += 1
            (result,) = commit_group(self.lmdb, self.path, [operation])
            done(result, None)

    def commit_untold(self) -> None:
        """Commits the submitted operations without an answer, as if the process dies after the commit."""
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
    """A `World` with a clock only: the metadata store needs nothing else."""

    network: Any = None
    disk: Any = None

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def random(self, name: str) -> random.Random:
        raise AssertionError("the metadata store draws no random numbers")

    def blocking(self, call: Callable[..., Any], *args: object) -> Awaitable[Any]:
        raise AssertionError("the metadata store makes no blocking calls")


@dataclass(frozen=True, slots=True)
class Served:
    """A store with its service, for clients in `world` that run in `nursery`."""

    world: TrioWorld
    environment: InlineEnvironment
    nursery: trio.Nursery
    port: int

    def remote(self, **options: Any) -> RemoteMetadata:
        """A running client of the store."""
        remote = RemoteMetadata(self.world, [("127.0.0.1", self.port)], **options)
        self.nursery.start_soon(remote.run)
        return remote


class Machine:
    """One data directory; the store in it can be opened several times."""

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

    def run_opened(
        self, main: Callable[[InlineEnvironment, EmbeddedMetadata], Awaitable[None]], **options: Any
    ) -> None:
        """Runs an async test with the store, opened once; only the test acts on the store."""

        async def opened() -> None:
            with self.environment() as environment:
                await main(environment, await self.open(environment, **options))

        self.run(opened)

    def run_scenario(self, scenario: Scenario) -> None:
        """Runs a scenario on the embedded store, opened once and running."""

        async def main(environment: InlineEnvironment, metadata: EmbeddedMetadata) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(metadata.run)
                await scenario(metadata)
                nursery.cancel_scope.cancel()

        self.run_opened(main)

    @asynccontextmanager
    async def serving(self, cluster: str = "test", port: int = 0) -> AsyncIterator[Served]:
        """The store on a port of this machine until the end of the block."""
        with self.environment() as environment:
            metadata = await self.open(environment)
            async with open_trio_world() as world, trio.open_nursery() as nursery:
                nursery.start_soon(metadata.run)
                listener = await serve_metadata(
                    world, metadata, nursery, SilentLogger(), "127.0.0.1", port, cluster=cluster
                )
                yield Served(world, environment, nursery, listener.port)
                nursery.cancel_scope.cancel()
