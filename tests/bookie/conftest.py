"""A small world for bookie tests: real LMDB committed inline or a step later, faults on demand, metadata in a dict."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest
import trio

from gnomon.bookie.storage.entry_store import DATABASES
from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    KeyField,
    KeyValue,
    Put,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.runtime.world import CommitCounts, DiskFailed, DiskFull, WorldError

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

from ledger_house import House, Run


class FakeClock:
    """A clock that advances only when a test changes it, or by the time of a sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await trio.lowlevel.checkpoint()


class InlineEnvironment:
    """An environment on real LMDB: `flush` commits; if `automatic`, the event loop calls it after each submit."""

    def __init__(self, path: Path, map_bytes: int = 1 << 28, automatic: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.counts = CommitCounts()
        self.environment = lmdb.open(str(path), map_size=map_bytes, max_dbs=8, sync=False)
        self.databases = {name: self.environment.open_db(name.encode()) for name in DATABASES}
        self.queue: deque[tuple[Callable[[Any], Any], Callable[[Any, WorldError | None], None]]] = deque()
        self.automatic = automatic
        self.fault: WorldError | None = None
        self.failed: DiskFailed | None = None
        self.dead = False

    def read(self) -> AbstractContextManager[Any]:
        read: AbstractContextManager[Any] = self.environment.begin(buffers=True)
        return read

    def submit(self, operation: Callable[[Any], Any], done: Callable[[Any, WorldError | None], None]) -> None:
        if self.dead:
            return  # the operations of a dead process are lost
        self.queue.append((operation, done))
        if self.automatic and len(self.queue) == 1:
            trio.lowlevel.current_trio_token().run_sync_soon(self.flush)

    def flush(self, groups_max: int = 1_000_000) -> None:
        """Commits everything submitted so far in one transaction, and hands the results back."""
        taken = [self.queue.popleft() for _ in range(min(groups_max, len(self.queue)))]
        if not taken:
            return
        error: WorldError | None = self.failed or self.fault
        results: list[Any] = []
        transaction = self.environment.begin(write=True)
        try:
            results = [operation(transaction) for operation, _ in taken]
            if error is None:
                transaction.commit()
            else:
                transaction.abort()
        except lmdb.MapFullError as full:
            transaction.abort()
            error = DiskFull(f"the map is full: {full}")
        if isinstance(error, DiskFailed):
            self.failed = error
        for index, (_, done) in enumerate(taken):
            done(None if error is not None else results[index], error)
        if self.automatic and self.queue:
            trio.lowlevel.current_trio_token().run_sync_soon(self.flush)

    async def commit(self, operation: Callable[[Any], Any]) -> Any:
        answered = trio.Event()
        answer: list[tuple[Any, WorldError | None]] = []

        def done(result: Any, error: WorldError | None) -> None:
            answer.append((result, error))
            answered.set()

        self.submit(operation, done)
        await answered.wait()
        result, error = answer[0]
        if error is not None:
            raise error
        return result

    def read_bytes(self, at: int, count: int) -> bytes:
        with open(self.path / "data.mdb", "rb") as file:
            return os.pread(file.fileno(), count, at)

    def file_bytes(self) -> int:
        return (self.path / "data.mdb").stat().st_size

    def crash(self) -> None:
        """Kills the process: submitted operations are lost, committed ones are kept."""
        self.dead = True
        self.queue.clear()
        self.environment.close()

    def close(self) -> None:
        self.flush()
        self.environment.close()


class DictMetadata:
    """The part of `Metadata` that ledgers use, in a dict; counts reads and writes."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyValue] = {}
        self.revision = 0
        self.history: list[WatchBatch] = []
        self.changed = trio.Event()
        self.reads = self.writes = 0

    async def get(self, key: str) -> KeyValue | None:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        return self.keys.get(key)

    async def range(self, prefix: str) -> RangeResult:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        found = tuple(self.keys[key] for key in sorted(self.keys) if key.startswith(prefix))
        return RangeResult(Revision(self.revision), found)

    async def txn(self, compare: Sequence[Compare], then: Sequence[Any], otherwise: Sequence[Any] = ()) -> TxnOutcome:
        await trio.lowlevel.checkpoint()
        self.writes += 1
        succeeded = all(self._field(each) == each.value for each in compare)
        events: list[Event] = []
        before = dict(self.keys)
        results = [self._apply(operation, events) for operation in (then if succeeded else otherwise)]
        if self.keys != before:
            self.revision += 1
            self.history.append(WatchBatch(Revision(self.revision), tuple(events)))
            self.changed.set()
            self.changed = trio.Event()
        return TxnOutcome(succeeded, Revision(self.revision), tuple(results))

    def _field(self, compare: Compare) -> int | bytes:
        stored = self.keys.get(compare.key)
        if stored is None:
            return b"" if compare.field is KeyField.VALUE else 0
        value: int | bytes = getattr(stored, compare.field.value)
        return value

    def _apply(self, operation: Any, events: list[Event]) -> Any:
        revision = Revision(self.revision + 1)
        if isinstance(operation, Put):
            old = self.keys.get(operation.key)
            created, version = (revision, 1) if old is None else (old.create_revision, old.version + 1)
            put = KeyValue(operation.key, operation.value, created, revision, version)
            self.keys[operation.key] = put
            events.append(Event(operation.key, put))
            return put
        if isinstance(operation, Delete | DeletePrefix):
            gone = (
                [key for key in self.keys if key == operation.key]
                if isinstance(operation, Delete)
                else [key for key in sorted(self.keys) if key.startswith(operation.prefix)]
            )
            for key in gone:
                del self.keys[key]
                events.append(Event(key, None))
            return len(gone)
        return self.keys.get(operation.key)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        yield self._batches(prefix, from_revision)

    async def _batches(self, prefix: str, from_revision: Revision) -> AsyncIterator[WatchBatch]:
        seen = 0
        while True:
            changed = self.changed
            for batch in self.history[seen:]:
                seen += 1
                events = tuple(event for event in batch.events if event.key.startswith(prefix))
                if batch.revision >= from_revision and events:
                    yield WatchBatch(batch.revision, events)
            await changed.wait()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[InlineEnvironment]:
    made = InlineEnvironment(tmp_path / "bookie")
    yield made
    made.environment.close()


@pytest.fixture
def manual(environment: InlineEnvironment) -> InlineEnvironment:
    """An environment that commits only when the test calls `flush`."""
    environment.automatic = False
    return environment


@pytest.fixture
def make_environment() -> type[InlineEnvironment]:
    """The class, for tests that open several or reopen one."""
    return InlineEnvironment


@pytest.fixture
def make_metadata() -> type[DictMetadata]:
    """The class, for tests that need it inside a Trio run."""
    return DictMetadata


@pytest.fixture
def run(environment: InlineEnvironment, clock: FakeClock, make_metadata: type[DictMetadata]) -> Run:
    """Runs a scenario in a house of its own."""

    def in_house(scenario: Callable[[House], Awaitable[None]]) -> None:
        async def main() -> None:
            await scenario(House(environment, clock, make_metadata()))

        trio.run(main)

    return in_house
