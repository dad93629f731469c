"""The simulated disk: real LMDB on a file system in memory, synced by the virtual clock, with faults.

1. Groups of operations commit one after another, as in production: operations that are queued during a commit form the
   next group, up to GROUP_OPERATIONS_MAX. `done` is called after the virtual sync, in the order of the submits.
2. A group becomes visible to readers when it starts or when its sync ends, at random.
3. A killed process leaves everything that LMDB has written (the page cache survives). Queued operations are lost. A
   group whose sync is under way is kept if it was visible; otherwise it is kept or lost, at random.
4. After a loss of power the group whose sync was under way is kept or lost, at random: so "durable but never
   acknowledged" happens as well as "lost". Everything before it is kept. An environment that is not synced (durability
   `none`) loses everything.
5. After a failed sync the environment commits nothing more. Its group is kept or lost, at random.

To undo the group under way, LMDB's two meta pages are restored as they were at the last sync. LMDB never overwrites a
page of the previous transaction, so this undoes exactly the one transaction that was not synced.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import trio

from gnomon.runtime.disk.commit import GROUP_OPERATIONS_MAX, commit_group, open_lmdb
from gnomon.runtime.outcome import committed
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import CommitCounts, DirectoryTaken, DiskFailed, DiskFull, DiskSpace, Durability, WorldError
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.trace import Trace

T = TypeVar("T")
Submitted: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any, WorldError | None], None]]

MAP_BYTES_MAX = 256 * 1024 * 1024
CAPACITY_BYTES = 1 << 40


@dataclass(slots=True)
class DiskConditions:
    """The behaviour of a machine's disk; faults change it while the simulation runs."""

    sync_seconds_min: float = 0.0002
    """Seconds that each sync takes at least."""
    sync_seconds_mean: float = 0.001
    """Mean of the exponential distribution that is added to the minimum."""
    slowness: float = 1.0
    """Factor on every sync."""
    still_until: float = 0.0
    """No sync that begins before this virtual second ends before it."""
    full: bool = False
    """Commits fail with DiskFull."""
    fail_next: bool = False
    """The next commit fails with DiskFailed (EIO), and its environment is closed for writing."""
    visible_early_rate: float = 0.5
    """Share of transactions that readers see before they are durable."""


@dataclass(slots=True)
class _CommitGroup:
    """Operations that commit together; `results` are set once LMDB has them."""

    submitted: list[Submitted]
    started: float
    results: list[Any] | None = None
    error: WorldError | None = None


class MachineDisk:
    """A machine's disk: survives its processes, and its loss of power. Made with its machine.

    Args:
        name: of the machine.
        root: a folder of its own on the real machine; nodes see it as `/`.
        timers: the simulation's.
        stream: the random stream of this disk.
        trace: the simulation's.

    Attributes:
        conditions: its behaviour; may be changed at any time.
        environments: the LMDB environments that are open, by path.
        flipped: the values in which `flip_bit` has flipped a bit: path of the environment, and key.
    """

    def __init__(self, name: str, root: Path, timers: Timers, stream: random.Random, trace: Trace) -> None:
        self.name = name
        self.root = root
        self.timers = timers
        self.random = stream
        self.trace = trace
        self.conditions = DiskConditions()
        self.environments: dict[Path, SimulatedEnvironment] = {}
        self.flipped: set[tuple[Path, bytes]] = set()
        root.mkdir(parents=True, exist_ok=True)

    def real(self, path: Path) -> Path:
        """The place of a node's path on the real machine.

        Raises:
            ValueError: a relative path: a node does not know its working directory.
        """
        if not path.is_absolute():
            raise ValueError(f"simulated paths are absolute (the machine's disk is /), got {path}")
        return self.root / path.relative_to("/")

    def stop(self, power_lost: bool) -> None:
        """Ends every environment in the state that a killed process or lost power leaves."""
        for environment in list(self.environments.values()):
            environment.stop(power_lost)
        self.environments.clear()

    def flip_bit(self, path: Path, database: str, key: bytes | None = None) -> bytes | None:
        """Flips a bit of a value stored in an open environment, once no commit is under way.

        Args:
            path: of the environment, as the node opened it.
            database: the name of one of its databases.
            key: the key of the value; None draws one.

        Returns:
            The key, None when nothing is stored there.

        Raises:
            KeyError: the environment is not open.
        """
        environment = self.environments[path]
        if key is None:
            key = environment.draw_key(database)
        if key is not None:
            self.flipped.add((path, key))
            environment.flip_bit(database, key)
        return key

    def image(self, path: Path) -> bytes:
        """A copy of an environment's file, for `put_back`; no process may have it open."""
        assert path not in self.environments, f"{path} is in use"
        return (self.real(path) / "data.mdb").read_bytes()

    def put_back(self, path: Path, image: bytes) -> None:
        """Replaces an environment's file by an older copy of it; no process may have it open."""
        assert path not in self.environments, f"{path} is in use"
        self.trace.add(f"{self.name}  {path} is replaced by a copy of {len(image)} bytes")
        (self.real(path) / "data.mdb").write_bytes(image)


class SimulatedDisk:
    """`Disk` for one process."""

    def __init__(self, process: SimulatedProcess, machine: MachineDisk) -> None:
        self._process = process
        self._machine = machine
        self._held: set[Path] = set()

    @contextmanager
    def lock(self, directory: Path) -> Iterator[None]:
        """See `Disk.lock`; a machine runs one process at a time, so only that one can hold it."""
        self._process.check()
        if directory in self._held:
            raise DirectoryTaken(f"data directory {directory} is in use by {self._process.name}: choose another one")
        self._machine.real(directory).mkdir(parents=True, exist_ok=True)
        self._held.add(directory)
        try:
            yield
        finally:
            self._held.discard(directory)

    def open_environment(
        self, path: Path, *, databases: Sequence[str], map_bytes: int, durability: Durability, readahead: bool = True
    ) -> SimulatedEnvironment:
        """See `Disk.open_environment`; the map is limited to 256 MiB, and `readahead` has no effect."""
        self._process.check()
        assert path not in self._machine.environments, f"{path} is open already: LMDB allows it once per process"
        environment = SimulatedEnvironment(
            self._process, self._machine, path, databases, min(map_bytes, MAP_BYTES_MAX), durability
        )
        self._machine.environments[path] = environment
        return environment

    def salvage(self, path: Path, *, databases: Sequence[str], omit: Collection[bytes]) -> bool:
        """See `Disk.salvage`: no page of a simulated store is damaged."""
        self._process.check()
        return False

    def set_aside(self, path: Path) -> None:
        """See `Disk.set_aside`."""
        self._process.check()
        damaged = path.with_name(f"{path.name}.damaged")
        self.remove_folder(damaged)
        with suppress(FileNotFoundError):
            self._machine.real(path).rename(self._machine.real(damaged))

    def read_file(self, path: Path) -> bytes | None:
        """See `Disk.read_file`."""
        self._process.check()
        try:
            return self._machine.real(path).read_bytes()
        except FileNotFoundError:
            return None

    def remove_folder(self, path: Path) -> None:
        """Removes a folder with everything in it, as an operator does with a cache; no environment in it is open."""
        assert not any(each.is_relative_to(path) for each in self._machine.environments), f"{path} is in use"
        shutil.rmtree(self._machine.real(path), ignore_errors=True)

    def write_file(self, path: Path, content: bytes) -> None:
        """See `Disk.write_file`: durable when it returns."""
        self._process.check()
        self._machine.real(path).write_bytes(content)
        self._machine.trace.add(f"{self._process.name}  wrote {path}: {len(content)} bytes")

    def space(self, path: Path) -> DiskSpace:
        """See `Disk.space`: a full disk has nothing left."""
        self._process.check()
        return DiskSpace(CAPACITY_BYTES, 0 if self._machine.conditions.full else CAPACITY_BYTES // 2)


class SimulatedEnvironment:
    """`Environment` on virtual time."""

    def __init__(
        self,
        process: SimulatedProcess,
        machine: MachineDisk,
        path: Path,
        databases: Sequence[str],
        map_bytes: int,
        durability: Durability,
    ) -> None:
        self.counts = CommitCounts()
        self._process = process
        self._machine = machine
        self._path = path
        self._folder = machine.real(path)
        self._durability = durability
        # The virtual clock decides when a sync ends; a real one would only take time.
        self._lmdb, self.databases = open_lmdb(
            self._folder, databases=databases, map_bytes=map_bytes, durability=Durability.NONE
        )
        self._file = open(self._folder / "data.mdb", "rb")  # noqa: SIM115 - is closed with the environment
        self._image = self._meta_pages()
        self._queue: deque[Submitted] = deque()
        self._group: _CommitGroup | None = None
        self._waking = False
        self._doubtful: _CommitGroup | None = None
        self._failure: DiskFailed | None = None
        self._flips: list[tuple[str, bytes]] = []
        self._handed_back: deque[_CommitGroup] = deque()
        self._hand_back_at = 0.0
        self._closed = False

    def read(self) -> AbstractContextManager[Any]:
        """See `Environment.read`."""
        self._process.check()
        transaction: AbstractContextManager[Any] = self._lmdb.begin(buffers=True)
        return transaction

    def submit(self, operation: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None]) -> None:
        """See `Environment.submit`."""
        self._process.check()
        assert not self._closed, f"a commit was submitted to {self._path} after it was closed"
        self._queue.append((operation, done))
        if self._group is None and not self._waking:
            self._waking = True
            self._after(0.0, self._start)

    async def commit(self, operation: Callable[[Any], T]) -> T:
        """See `Environment.commit`."""
        return await committed(self, operation)

    def read_bytes(self, at: int, count: int) -> bytes:
        """See `Environment.read_bytes`."""
        self._process.check()
        return os.pread(self._file.fileno(), count, at)

    def file_bytes(self) -> int:
        """See `Environment.file_bytes`."""
        self._process.check()
        return (self._folder / "data.mdb").stat().st_size

    def room_bytes(self) -> int:
        """See `Environment.room_bytes`; pages that were freed are not counted."""
        return int(self._lmdb.info()["map_size"]) - self.file_bytes()

    def close(self) -> None:
        """See `Environment.close`."""
        self._process.check()
        if self._closed:
            return
        self._closed = True
        if self._group is not None:
            self._finish(self._group)
        while self._queue:
            self._finish(self._take())
        self._hand_back()
        self._keep_doubtful()
        self._lmdb.close()
        self._file.close()
        self._machine.environments.pop(self._path, None)

    def stop(self, power_lost: bool) -> None:
        """Leaves the state after the death of the process; for `MachineDisk`."""
        kept = self._machine.random.random() < 0.5
        group = self._group
        if group is not None and group.error is None:
            if group.results is None and kept:
                self._write(group)
            outcome = "kept" if group.results is not None and (kept or not power_lost) else "lost"
            self._machine.trace.add(f"{self._process.name}  commit under way in {self._path} is {outcome}")
        self._keep_doubtful()
        self._lmdb.close()
        self._file.close()
        if not power_lost:
            return
        if self._durability is Durability.NONE:
            shutil.rmtree(self._folder)
        elif group is not None and not kept:
            with open(self._folder / "data.mdb", "r+b") as file:
                file.write(self._image)

    def draw_key(self, database: str) -> bytes | None:
        """A random key, None if there is none."""
        handle = self.databases[database]
        with self._lmdb.begin(db=handle) as transaction:
            entries = transaction.stat(handle)["entries"]
            if not entries:
                return None
            keys = transaction.cursor(handle).iternext(keys=True, values=False)
            return bytes(next(islice(keys, self._machine.random.randrange(entries), None)))

    def flip_bit(self, database: str, key: bytes) -> None:
        """See `MachineDisk.flip_bit`."""
        self._flips.append((database, key))
        if self._group is None:
            self._flip()

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        timers = self._machine.timers
        timers.call_at(trio.current_time() + seconds, callback)

    def _take(self) -> _CommitGroup:
        count = min(len(self._queue), GROUP_OPERATIONS_MAX)
        return _CommitGroup([self._queue.popleft() for _ in range(count)], trio.current_time())

    def _start(self) -> None:
        self._waking = False
        if self._process.killed or self._closed or not self._queue:
            return
        conditions, stream = self._machine.conditions, self._machine.random
        self._group = group = self._take()
        seconds = conditions.sync_seconds_min + stream.expovariate(1 / conditions.sync_seconds_mean)
        early = stream.random() < conditions.visible_early_rate
        if self._failure is not None:
            group.error = self._failure
        elif conditions.fail_next:
            conditions.fail_next = False
            self._fail(group)
        elif conditions.full:
            group.error = DiskFull(f"no room to write to {self._path} (simulated): free disk space")
        elif early:
            self._write(group)
        self._machine.trace.add(
            f"{self._process.name}  commit {self._path}: {len(group.submitted)} operations"
            + (f" -> {type(group.error).__name__}" if group.error else " (visible early)" if early else "")
        )
        still_seconds = conditions.still_until - trio.current_time()
        self._after(max(seconds * conditions.slowness, still_seconds), self._synced)

    def _synced(self) -> None:
        group = self._group
        if self._process.killed or self._closed or group is None:
            return
        self._finish(group)
        self._machine.trace.add(f"{self._process.name}  synced {self._path}")
        # The thread continues with the next group; the results of this one reach the node's own thread a little later.
        delay = self._machine.random.uniform(0.0, 0.0001)
        self._hand_back_at = max(self._hand_back_at, trio.current_time() + delay)
        self._machine.timers.call_at(self._hand_back_at, self._hand_back_one)
        if self._queue:
            self._waking = True
            self._start()

    def _finish(self, group: _CommitGroup) -> None:
        """Makes a group durable."""
        if group.error is None and group.results is None:
            self._write(group)
        self._group = None
        if self._durability is Durability.SYNCED:
            self._image = self._meta_pages()
        self.counts.groups += 1
        self.counts.operations += len(group.submitted)
        self.counts.seconds += trio.current_time() - group.started
        self._handed_back.append(group)
        self._flip()

    def _write(self, group: _CommitGroup) -> None:
        """Puts a group into LMDB."""
        try:
            group.results = commit_group(self._lmdb, self._path, [operation for operation, _ in group.submitted])
        except DiskFailed as error:
            self._failure = group.error = error
        except WorldError as error:
            group.error = error
        except Exception as error:
            group.error = DiskFailed(f"an operation raised {error!r}")
            bug = error
            self._after(0.0, lambda: self._process.crash(bug))

    def _fail(self, group: _CommitGroup) -> None:
        self._failure = group.error = DiskFailed(
            f"writing to {self._path} failed (simulated EIO): it takes no more writes; check the device, then restart"
        )
        self._doubtful = _CommitGroup(group.submitted, group.started)

    def _keep_doubtful(self) -> None:
        """Keeps or drops a group whose sync failed: it may still be found on the device."""
        if self._doubtful is not None and self._machine.random.random() < 0.5:
            self._write(self._doubtful)
            self._image = self._meta_pages()

    def _hand_back_one(self) -> None:
        if self._handed_back:
            group = self._handed_back.popleft()
            for index, (_, done) in enumerate(group.submitted):
                if group.error is None:
                    assert group.results is not None
                    self._process.call(done, group.results[index], None)
                else:
                    self._process.call(done, None, group.error)

    def _hand_back(self) -> None:
        while self._handed_back:
            self._hand_back_one()

    def _flip(self) -> None:
        for database, key in self._flips:
            handle = self.databases[database]
            with self._lmdb.begin(write=True) as transaction:
                value = bytearray(transaction.get(key, db=handle) or b"")
                if value:
                    bit = self._machine.random.randrange(8 * len(value))
                    value[bit // 8] ^= 1 << bit % 8
                    transaction.put(key, bytes(value), db=handle)
                    self._machine.trace.add(f"{self._process.name}  bit {bit} flipped in {self._path} {key.hex()}")
            self._image = self._meta_pages()
        self._flips.clear()

    def _meta_pages(self) -> bytes:
        return os.pread(self._file.fileno(), 2 * self._lmdb.stat()["psize"], 0)
