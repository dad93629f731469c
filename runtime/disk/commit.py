"""Group commit: one thread per LMDB environment puts the waiting operations, a group, into one synced transaction.

1. Operations run in the order of their submits, and their results are handed back in that order.
2. The result of an operation is handed back only after the operation's transaction has been committed: synced, unless
   the environment was opened with Durability.NONE.
3. A group is kept whole or not at all. On a full disk all of the group fails with DiskFull, and reads continue. Space
   is allocated ahead of LMDB (`room`), because LMDB itself reports a full file system as a failed device. Operations
   that free space (`Freeing`) still run when there is no space for other operations.
4. After a failed write or sync nothing is ever committed again: LMDB would accept it, and the kernel may have dropped
   the pages that it could not write (measured: RELIABILITY, DESIGN §7).
5. An operation or callback that raises is a bug: its error goes to `crash` and stops the node.
"""

from __future__ import annotations

import mmap
import os
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import lmdb

from gnomon.runtime.disk.page import DamagedPage
from gnomon.runtime.disk.pages import check_pages
from gnomon.runtime.disk.room import Room
from gnomon.runtime.outcome import committed
from gnomon.runtime.world import CommitCounts, DiskFailed, DiskFull, Durability, Freeing, StoreDamaged, WorldError

T = TypeVar("T")
Operation: TypeAlias = Callable[[Any], Any]
Done: TypeAlias = Callable[[Any, WorldError | None], None]
Submitted: TypeAlias = tuple[Operation, Done]

GROUP_OPERATIONS_MAX = 4096
# Bounds the dirty pages of a transaction (tens of MiB at the speed of memory), and the time that the first operation of
# a group waits.
GROUP_SECONDS_MAX = 0.02

PAGE_ERRORS = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.BadTxnError)
"""Errors of a read that meets a damaged page, and of later reads in the same transaction."""
START_PAGES_MAX = 4_000
"""Pages that a start checks at most: in some 0.2 s, all pages of a small store."""
RESTORE = (
    "restore the data directory from a copy; give a bookie of a cluster up with `gnomon bookie decommission` instead"
)
_FULL = (lmdb.MapFullError, lmdb.DiskError)
# Errors of an operation on a damaged file; any other error is a bug of the operation.
_BROKEN = (lmdb.PanicError, lmdb.CorruptedError, lmdb.PageNotFoundError, OSError)


def open_lmdb(
    path: Path, *, databases: Sequence[str], map_bytes: int, durability: Durability, readahead: bool = True
) -> tuple[lmdb.Environment, dict[str, Any]]:
    """Opens or creates the environment in the folder `path` and its named databases.

    LMDB's own lock file stays on: without it every reader would have to be kept apart from the writer by hand.

    Args:
        readahead: see `Disk.open_environment`.

    Raises:
        DiskFull: no space to create it.
        DiskFailed: the folder could not be read or written, or holds no valid LMDB environment.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        synced = durability is Durability.SYNCED
        if not (path / "data.mdb").exists():
            _make(path, databases, synced)
        environment = lmdb.open(str(path), map_size=map_bytes, max_dbs=len(databases), sync=synced, readahead=readahead)
        # A database that is missing was damaged: creating it would hide that.
        handles = {name: environment.open_db(name.encode(), create=False) for name in databases}
        # LMDB syncs its file, but not the directories on its path: without this a power cut may remove the whole store.
        if synced:
            sync_directory(path)
            sync_directory(path.parent)
    except _FULL as error:
        raise _full(path, error) from error
    except (lmdb.Error, OSError) as error:
        raise _unsound(path, error) from error
    return environment, handles


def check_file(path: Path, *, pages_max: float = START_PAGES_MAX) -> None:
    """Checks that the file of a store that `CommitQueue` wrote is complete, and pages of it; accepts a folder without
    one.

    LMDB maps its file and trusts it: a process that reads a page beyond the end is killed by SIGBUS, and a damaged page
    may end it as well. Opening and `info` read only the two meta pages. Only if `Room` keeps space ahead does a shorter
    file mean damage: LMDB omits pages at the end that a transaction allocated and freed.

    Raises:
        DiskFailed: the file was cut short, or is damaged.
    """
    file = path / "data.mdb"
    try:
        found_bytes, used_bytes = file.stat().st_size, 2 * mmap.PAGESIZE
        if found_bytes:  # LMDB would initialize an empty file again
            with lmdb.open(str(path), readonly=True, lock=False) as environment:
                used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    except FileNotFoundError:
        return
    except (lmdb.Error, OSError) as error:
        raise _unsound(path, error) from error
    if found_bytes < used_bytes:
        raise StoreDamaged(
            f"{file} was cut short: it has {found_bytes} bytes, and what was written ends at {used_bytes}: {RESTORE}"
        )
    _check_pages(file, pages_max)


def _check_pages(file: Path, pages_max: float) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        check_pages(lambda at, count: os.pread(descriptor, count, at), pages_max=pages_max)
    except DamagedPage as error:
        raise StoreDamaged(f"{file} is damaged: {error}: {RESTORE}") from None
    finally:
        os.close(descriptor)


def _make(path: Path, databases: Sequence[str], synced: bool) -> None:
    """Makes a data file beside its place: LMDB writes its first pages unsynced, and cannot open a file with half of
    them."""
    making = path / "making"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    environment = lmdb.open(str(making), max_dbs=len(databases), sync=synced)
    for name in databases:
        environment.open_db(name.encode())  # a commit, and so a sync of everything before it
    environment.close()
    (making / "data.mdb").rename(path / "data.mdb")
    shutil.rmtree(making)


def sync_directory(path: Path) -> None:
    """Makes the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def commit_group(environment: lmdb.Environment, path: Path, operations: Iterable[Operation]) -> list[Any]:
    """Runs operations in one write transaction and commits it.

    Returns:
        The operations' results, in order, once committed.

    Raises:
        DiskFull: no space; nothing was kept.
        DiskFailed: the device failed; the environment must not commit again.
        Exception: the error of an operation, which is a bug; nothing was kept.
    """
    try:
        transaction = environment.begin(write=True)
    except lmdb.Error as error:
        raise _failed(path, error) from error
    try:
        results = [operation(transaction) for operation in operations]
    except BaseException as error:
        transaction.abort()
        if isinstance(error, _FULL):
            raise _full(path, error) from error
        if isinstance(error, _BROKEN) or type(error) is lmdb.Error:
            raise _failed(path, error) from error
        raise
    try:
        transaction.commit()
    except _FULL as error:
        raise _full(path, error) from error
    except (lmdb.Error, OSError) as error:
        raise _failed(path, error) from error
    return results


def _unsound(path: Path, error: Exception) -> DiskFailed:
    if isinstance(error, lmdb.Error):
        return StoreDamaged(f"cannot open the store at {path}: {error}: {RESTORE}")
    return DiskFailed(f"cannot open the store at {path}: {error}")


def _full(path: Path, error: Exception) -> DiskFull:
    return DiskFull(f"no room to write to {path} ({error}): free disk space or enlarge the map; reading goes on")


def _failed(path: Path, error: BaseException) -> DiskFailed:
    return DiskFailed(f"writing to {path} failed ({error}): it takes no more writes; check the device, then restart")


class CommitQueue:
    """The production `Environment`: an LMDB environment and the one thread that writes to it."""

    def __init__(
        self,
        path: Path,
        *,
        databases: Sequence[str],
        map_bytes: int,
        durability: Durability,
        readahead: bool = True,
        call_soon: Callable[[Callable[[], None]], None],
        crash: Callable[[BaseException], None],
    ) -> None:
        """Opens the environment and starts its thread.

        Args:
            readahead: see `Disk.open_environment`.
            call_soon: schedules a function in the Trio thread, from any thread; it hands results back.
            crash: called in the Trio thread with an error that must stop the node.

        Raises:
            DiskFull, DiskFailed: as `open_lmdb`, and `check_file`.
        """
        self.path = path
        self.counts = CommitCounts()
        check_file(path)
        self._environment, self.databases = open_lmdb(
            path, databases=databases, map_bytes=map_bytes, durability=durability, readahead=readahead
        )
        self._room = Room(path / "data.mdb")
        self._descriptor = os.open(path / "data.mdb", os.O_RDONLY)
        self._page_bytes: int = self._environment.stat()["psize"]
        self._call_soon = call_soon
        self._crash = crash
        # A SimpleQueue wakes its reader only if it sleeps: a submit costs 0.1–0.2 µs while the thread is busy.
        self._submitted: queue.SimpleQueue[Submitted | None] = queue.SimpleQueue()
        self._finished: deque[tuple[list[Submitted], list[Any], BaseException | None]] = deque()
        self._failure: DiskFailed | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"commit {path.name}", daemon=True)
        self._thread.start()

    def read(self) -> AbstractContextManager[Any]:
        """See `Environment.read`; py-lmdb keeps a spare reader, so one costs about 0.4 µs."""
        transaction: AbstractContextManager[Any] = self._environment.begin(buffers=True)
        return transaction

    def submit(self, operation: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None]) -> None:
        """See `Environment.submit`. Submitting after `close` is a bug."""
        assert not self._closing, f"a commit was submitted to {self.path} after it was closed"
        self._submitted.put((operation, done))

    async def commit(self, operation: Callable[[Any], T]) -> T:
        """See `Environment.commit`; after a cancellation the outcome is unknown."""
        return await committed(self, operation)

    def read_bytes(self, at: int, count: int) -> bytes:
        """See `Environment.read_bytes`."""
        return os.pread(self._descriptor, count, at)

    def file_bytes(self) -> int:
        """See `Environment.file_bytes`; without the space that `room` allocated ahead."""
        return int((self._environment.info()["last_pgno"] + 1) * self._page_bytes)

    def room_bytes(self) -> int:
        """See `Environment.room_bytes`."""
        return int(self._environment.info()["map_size"]) - self.file_bytes() + self._free_bytes()

    def close(self) -> None:
        """See `Environment.close`; blocks until the last groups are committed, and hands back their results before it
        returns."""
        if self._closing:
            return
        self._closing = True
        self._submitted.put(None)
        self._thread.join()
        self._hand_back()
        self._room.close()
        self._environment.close()
        os.close(self._descriptor)

    def _run(self) -> None:
        while (first := self._submitted.get()) is not None:
            group = [first]
            results: list[Any] = []
            error: BaseException | None = self._failure
            if error is None:
                started = time.perf_counter()
                try:
                    roomy = self._room.ensure(
                        self.file_bytes(), self._free_bytes, freeing=isinstance(first[0], Freeing)
                    )
                    operations = self._take(group, started) if roomy else [first[0]]
                    results = commit_group(self._environment, self.path, operations)
                except DiskFailed as failure:
                    self._failure = error = failure
                except BaseException as failure:
                    error = failure
                self.counts.groups += 1
                self.counts.operations += len(group)
                self.counts.seconds += time.perf_counter() - started
            self._finished.append((group, results, error))
            self._call_soon(self._hand_back)

    def _free_bytes(self) -> int:
        """Free bytes inside the used part of the file."""
        with self._environment.begin() as transaction:
            stats = [transaction.stat(database) for database in self.databases.values()]
        in_use = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return self.file_bytes() - in_use * self._page_bytes

    def _take(self, group: list[Submitted], started: float) -> Iterator[Operation]:
        """Yields the operations of one group, including those that arrive meanwhile, and lists them in `group`."""
        yield group[0][0]
        while len(group) < GROUP_OPERATIONS_MAX and self._submitted.qsize():
            if time.perf_counter() - started > GROUP_SECONDS_MAX:
                return
            submitted = self._submitted.get()
            if submitted is None:
                self._submitted.put(None)  # the marker of `close` is the last item, so it may be queued again
                return
            group.append(submitted)
            yield submitted[0]

    def _hand_back(self) -> None:
        try:
            while self._finished:
                group, results, error = self._finished.popleft()
                if error is None:
                    for (_, done), result in zip(group, results, strict=True):
                        done(result, None)
                elif isinstance(error, WorldError):
                    for _, done in group:
                        done(None, error)
                else:
                    raise error
        except Exception as error:
            self._crash(error)
