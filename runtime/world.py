"""The interfaces between a node and its environment: the only access to time, sockets, disk, randomness and threads.

Two worlds implement these interfaces: `runtime.trio_world` (production) and `gnomon.testing` (simulated, on virtual
time). A node is built from a world and settings alone, so the same code runs in both.

1. Every callback from a world into a node is synchronous, runs in the Trio thread, and must not raise: an exception
   there is a broken invariant and stops the node.
2. A world keeps no reference to a given buffer after the call returns.
3. A commit is reported done only when it is durable; reports come in the order of the submits.
4. Deadlines are monotonic seconds; wall-clock milliseconds appear in records only.
"""

from __future__ import annotations

import random  # noqa: TID251 - only the type, for all modules that receive a stream
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview
OUT_OF_MEMORY: Final = "out of memory"
"""The reason that a peer and the log get if an allocation for the peer failed."""
RandomStream: TypeAlias = random.Random
"""The type of `World.random`; only worlds create one."""


class WorldError(Exception):
    """Something outside the node went wrong; the text says what and what to do."""


class DiskFull(WorldError):
    """The device or the LMDB map has no space: nothing of the commit was kept, reads continue."""


class StoreReadOnly(DiskFull):
    """A damaged page would have to be written: nothing of the commit was kept, reads continue."""


class DiskFailed(WorldError):
    """The device failed a write or sync (EIO): the environment commits nothing more; the node must stop itself."""


class StoreDamaged(DiskFailed):
    """The file of an environment is damaged, or cut short: it was not opened."""


class DirectoryTaken(WorldError):
    """Another process holds the data directory."""


class AddressTaken(WorldError):
    """The address to listen on is in use, or not one of this machine."""


class Unreachable(WorldError):
    """The peer could not be connected to, or the connection is gone."""


class Clock(Protocol):
    """Monotonic time for deadlines, wall time for records."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this node's clock; may jump."""

    async def sleep(self, seconds: float) -> None:
        """Waits at least `seconds`."""


class Connection(Protocol):
    """The world's end of one stream, as its handler uses it."""

    peer: str
    """`host:port` of the other side, for logs."""
    patient: bool
    """Whether received data may wait while other streams are served; set by the handler."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes written but not yet taken by the transport."""

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Sends the bytes that the transport accepts now and copies the rest; has no effect after `close`.

        The chunks may be reused or unmapped as soon as this returns.
        """

    def pause_reading(self) -> None:
        """No `received` until `resume_reading`: back-pressure on the peer."""

    def resume_reading(self) -> None:
        """Undoes `pause_reading`; may be called at any time, also twice."""

    def call_next_turn(self, call: Callable[[], None]) -> None:
        """Schedules `call` in the next turn of the event loop, after other streams are served; also after `closed`."""

    def close(self) -> None:
        """Sends the backlog, then closes; `closed` follows later. Idempotent."""

    def abort(self) -> None:
        """Closes at once and drops the backlog; `closed` follows later. Idempotent."""


class StreamHandler(Protocol):
    """A node's end of one stream: receives bytes, and is notified when it can write again."""

    def receive_buffer(self) -> memoryview:
        """The buffer for the next bytes; writable and not empty."""

    def received(self, count: int) -> None:
        """`count` bytes (at least 1) have been placed into the buffer asked for last."""

    def drained(self) -> None:
        """The backlog is empty again."""

    def closed(self) -> None:
        """The stream is gone, whichever side ended it. Called once, last."""


AcceptStream: TypeAlias = Callable[[Connection], StreamHandler]


class Listener(Protocol):
    """A bound, listening address."""

    host: str
    port: int
    """The actual port, also if 0 was asked for."""

    def close(self) -> None:
        """Stops accepting; accepted streams continue. Idempotent."""


class Network(Protocol):
    """Stream connections."""

    async def listen(self, host: str, port: int, accept: AcceptStream) -> Listener:
        """Binds and accepts from now on; `accept` is called for each new stream.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """

    async def connect(self, host: str, port: int, accept: AcceptStream) -> Connection:
        """Opens one stream; `accept` makes its handler.

        Raises:
            Unreachable: nothing answers there.
        """

    def call_soon(self, call: Callable[[], None]) -> None:
        """Schedules `call` in the Trio thread, after the events at hand and after the calls scheduled before.

        The bytes that several handlers send to one stream can thus leave in one write.
        """


class Durability(Enum):
    """The meaning of a finished commit."""

    SYNCED = "synced"
    """On the device: survives power loss."""
    NONE = "none"
    """In the page cache: survives the process only. For tests and disposable brokers."""


@dataclass(slots=True)
class CommitCounts:
    """Counts of an environment's commits since it was opened; for metrics."""

    groups: int = 0
    operations: int = 0
    seconds: float = 0.0


class Freeing(Generic[T]):
    """An operation of an `Environment` that needs next to no space, or frees some: a full disk has space reserved for
    it."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Callable[[Any], T]) -> None:
        """The same as `operation`."""
        self._operation = operation

    def __call__(self, transaction: Any) -> T:
        return self._operation(transaction)


class Environment(Protocol):
    """One LMDB environment with its commit queue.

    Transactions are py-lmdb's own (`lmdb.Transaction`); `database` handles come from `databases[name]`.
    """

    databases: dict[str, Any]
    """LMDB handles of the named databases that were asked for at opening."""
    counts: CommitCounts

    def read(self) -> AbstractContextManager[Any]:
        """A read transaction with `buffers=True`: memoryviews are valid inside the block only.

        Never hold one across an await: a long reader makes the file grow.
        """

    def submit(self, operation: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None]) -> None:
        """Queues `operation(write_transaction)` for the next group commit.

        Operations run in order of their submits, perhaps in another thread, several to a transaction; they must be
        quick, must not touch the node's state, and must not raise. `done(result, None)` is called in the Trio thread
        once the operation is durable. Otherwise `done(None, error)` is called: with DiskFull nothing of the operation
        was kept, with DiskFailed that is unknown. After DiskFailed every later submit fails with DiskFailed.
        """

    async def commit(self, operation: Callable[[Any], T]) -> T:
        """`submit` for callers that can wait.

        Raises:
            DiskFull: no space; nothing was kept.
            DiskFailed: the device failed; whether the operation was kept is unknown, and the environment is closed for
                writing.
        """

    def read_bytes(self, at: int, count: int) -> bytes:
        """Up to `count` bytes of the data file from the position `at`, as LMDB has written them; for any thread."""

    def file_bytes(self) -> int:
        """Size of the used part of the data file."""

    def room_bytes(self) -> int:
        """Bytes that the map has left: beyond the used part of the file, and free pages inside it."""

    def close(self) -> None:
        """Finishes submitted operations and closes. Idempotent."""


class DiskSpace(NamedTuple):
    """A file system's size, and the part that this process may still use, in bytes."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """Durable storage below a node's data directory."""

    def lock(self, directory: Path) -> AbstractContextManager[None]:
        """Creates the directory if needed and locks it for this process.

        Raises:
            DirectoryTaken: another process holds it.
        """

    def open_environment(
        self, path: Path, *, databases: Sequence[str], map_bytes: int, durability: Durability, readahead: bool = True
    ) -> Environment:
        """Opens or creates the LMDB environment at the folder `path` with these named databases.

        Args:
            readahead: whether the operating system reads further pages with one that is not in memory. That makes
                random reads of a store that is larger than the memory some seventy times slower.

        Raises:
            DiskFull: no space to create it.
            StoreDamaged: its file is damaged.
            DiskFailed: the device failed.
        """

    def salvage(self, path: Path, *, databases: Sequence[str], omit: Collection[bytes]) -> bool:
        """Replaces a damaged environment, which is not open, by one of the records that can be read.

        The new one may lack records, and may have older versions of records.

        Args:
            omit: keys of records that the new one does not get.

        Returns:
            Whether it was replaced.
        """

    def set_aside(self, path: Path) -> None:
        """Renames a folder, if it exists, to its name with `.damaged`, in the place of an earlier one.

        No environment in it is open.
        """

    def read_file(self, path: Path) -> bytes | None:
        """A small file's content, None when absent."""

    def write_file(self, path: Path, content: bytes) -> None:
        """Replaces a small file atomically and durably."""

    def space(self, path: Path) -> DiskSpace:
        """The space of the file system that holds the existing `path`.

        Raises:
            WorldError: it cannot be read.
        """


class World(Protocol):
    """Everything outside a node."""

    clock: Clock
    network: Network
    disk: Disk

    def random(self, name: str) -> RandomStream:
        """The random stream of one concern; in simulation seeded by `name`, so that streams do not shift each other."""

    def blocking(self, call: Callable[..., T], *args: object) -> Awaitable[T]:
        """Runs a blocking call outside the event loop (inline in simulation)."""
