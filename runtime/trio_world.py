"""The production world: gives a node Trio's clock and threads, real sockets, LMDB on disk and the system's entropy."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeVar

import trio

from gnomon.runtime.background import background
from gnomon.runtime.disk.commit import CommitQueue, sync_directory
from gnomon.runtime.disk.salvage import salvage
from gnomon.runtime.loop.poller import AUTO, make_poller
from gnomon.runtime.loop.sockets import SocketLoop
from gnomon.runtime.world import Clock, DirectoryTaken, Disk, DiskSpace, Durability, Network, WorldError

T = TypeVar("T")


class TrioClock:
    """`Clock` of the current Trio run: `monotonic` agrees with Trio's own deadlines."""

    def __init__(self) -> None:
        self.monotonic = trio.lowlevel.current_clock().current_time  # `trio.current_time` costs two more calls
        """See `Clock.monotonic`."""

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await trio.sleep(seconds)


class TrioDisk:
    """`Disk` on the file system."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], crash: Callable[[BaseException], None]) -> None:
        self._call_soon = call_soon
        self._crash = crash
        self._environments: list[CommitQueue] = []

    @contextmanager
    def lock(self, directory: Path) -> Iterator[None]:
        """See `Disk.lock`: an flock on `LOCK`, which the kernel releases however the process ends."""
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "LOCK", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise DirectoryTaken(
                    f"data directory {directory} is in use by process {holder}: stop it or choose another --data-dir"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def open_environment(
        self, path: Path, *, databases: Sequence[str], map_bytes: int, durability: Durability, readahead: bool = True
    ) -> CommitQueue:
        """See `Disk.open_environment`; an environment that its node leaves open is closed with the world."""
        environment = CommitQueue(
            path,
            databases=databases,
            map_bytes=map_bytes,
            durability=durability,
            readahead=readahead,
            call_soon=self._call_soon,
            crash=self._crash,
        )
        self._environments.append(environment)
        return environment

    def salvage(self, path: Path, *, databases: Sequence[str], omit: Collection[bytes]) -> bool:
        """See `Disk.salvage`."""
        return salvage(path, databases=databases, omit=omit)

    def set_aside(self, path: Path) -> None:
        """See `Disk.set_aside`."""
        damaged = path.with_name(f"{path.name}.damaged")
        shutil.rmtree(damaged, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(damaged)
        sync_directory(path.parent)

    def read_file(self, path: Path) -> bytes | None:
        """See `Disk.read_file`."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write_file(self, path: Path, content: bytes) -> None:
        """See `Disk.write_file`."""
        temporary = path.with_name(path.name + ".new")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)

    def space(self, path: Path) -> DiskSpace:
        """See `Disk.space`."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise WorldError(f"the size of the file system of {path} cannot be read: {error}") from error
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def close(self) -> None:
        """Closes every environment that is still open."""
        for environment in self._environments:
            environment.close()


class TrioWorld:
    """The production `World`; made by `open_trio_world`."""

    def __init__(self, network: Network, disk: Disk, clock: Clock) -> None:
        self.network = network
        self.disk = disk
        self.clock = clock

    def random(self, name: str) -> random.Random:
        """See `World.random`: seeded from the system's entropy, whatever the name."""
        return random.Random()

    def blocking(self, call: Callable[..., T], *args: object) -> Awaitable[T]:
        """See `World.blocking`."""
        return trio.to_thread.run_sync(call, *args)


async def _stop_with(error: BaseException) -> NoReturn:
    raise error


def _warn_on_stderr(text: str) -> None:
    if sys.stderr is not None:  # if it is closed, `print` would use standard output
        print(text, file=sys.stderr)


@asynccontextmanager
async def open_trio_world(
    warn: Callable[[str], None] = _warn_on_stderr, *, poller: str = AUTO
) -> AsyncIterator[TrioWorld]:
    """The world of one process: sockets are served while the block lasts.

    A bug in a node's callback cancels the block and is raised from it, as Trio does for a task (in an ExceptionGroup);
    an exception of the block leaves it unchanged.

    Args:
        warn: writes warnings of the world to the log, for example that file descriptors ran out.
        poller: the value of `network.poller`.
    """
    async with background() as nursery:
        clock = TrioClock()
        loop = SocketLoop(clock, warn, make_poller(poller))
        disk = TrioDisk(loop.call_soon, crash=lambda error: nursery.start_soon(_stop_with, error))
        nursery.start_soon(loop.run)
        try:
            yield TrioWorld(loop, disk, clock)
        finally:
            disk.close()
