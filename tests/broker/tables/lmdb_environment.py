"""An environment on real LMDB that commits at once, for the tests of the store of tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from gnomon.broker.tables.stored.store_forms import DATABASES
from gnomon.runtime.world import CommitCounts, DiskFull, WorldError

T = TypeVar("T")


class LmdbEnvironment:
    def __init__(self, path: Path) -> None:
        self.counts = CommitCounts()
        self.lmdb = lmdb.open(str(path), map_size=1 << 28, max_dbs=len(DATABASES), sync=False)
        self.databases = {name: self.lmdb.open_db(name.encode()) for name in DATABASES}
        self.full = False

    def read(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self.lmdb.begin(buffers=True)
        return found

    def submit(self, operation: Callable[[Any], T], done: Callable[[T | None, WorldError | None], None]) -> None:
        raise NotImplementedError

    async def commit(self, operation: Callable[[Any], T]) -> T:
        if self.full:
            raise DiskFull("no room (by the test)")
        with self.lmdb.begin(write=True) as transaction:
            return operation(transaction)

    def read_bytes(self, at: int, count: int) -> bytes:
        raise NotImplementedError

    def file_bytes(self) -> int:
        raise NotImplementedError

    def room_bytes(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        self.lmdb.close()


def run(steps: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        steps.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("it waits for something")
