"""`Table` for programs without Trio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from os import PathLike

from gnomon.client.tables.compared import Compared
from gnomon.client.tables.table import Table
from gnomon.client.tables.table_export import TableExport
from gnomon.client.tables.table_import import TableImport
from gnomon.client.tables.table_watch import TableEvent, TableWatch
from gnomon.log.tables.operations import Comparison, KeyOperation
from gnomon.log.tables.table_entry import Page, TableEntry, TxnResult
from gnomon.log.tables.table_status import TableStatus
from gnomon.runtime.trio_thread import TrioThread


class BlockingTable:
    """A blocking `Table`; see there for the guarantees and errors of each method."""

    def __init__(self, thread: TrioThread, table: Table) -> None:
        self._thread = thread
        self._table = table

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._table.topic

    def put(self, key: bytes, value: bytes, *, ttl_seconds: float | None = None, revision: int | None = None) -> int:
        """See `Table.put`."""
        return self._thread.call(partial(self._table.put, key, value, ttl_seconds=ttl_seconds, revision=revision))

    def delete(self, key: bytes, *, revision: int | None = None) -> int:
        """See `Table.delete`."""
        return self._thread.call(partial(self._table.delete, key, revision=revision))

    def compare_and_set(
        self, key: bytes, *, expected: bytes | None, value: bytes, ttl_seconds: float | None = None
    ) -> int:
        """See `Table.compare_and_set`."""
        work = partial(self._table.compare_and_set, key, expected=expected, value=value, ttl_seconds=ttl_seconds)
        return self._thread.call(work)

    def increment(self, key: bytes, by: int = 1) -> int:
        """See `Table.increment`."""
        return self._thread.call(self._table.increment, key, by)

    def txn(
        self,
        *,
        compare: Sequence[Comparison] = (),
        then: Sequence[KeyOperation] = (),
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnResult:
        """See `Table.txn`."""
        return self._thread.call(partial(self._table.txn, compare=compare, then=then, otherwise=otherwise))

    def value(self, key: bytes) -> Compared:
        """See `Table.value`."""
        return self._table.value(key)

    def version(self, key: bytes) -> Compared:
        """See `Table.version`."""
        return self._table.version(key)

    def revision(self, key: bytes) -> Compared:
        """See `Table.revision`."""
        return self._table.revision(key)

    def create_revision(self, key: bytes) -> Compared:
        """See `Table.create_revision`."""
        return self._table.create_revision(key)

    def get(self, key: bytes, *, stale: bool = False) -> TableEntry | None:
        """See `Table.get`."""
        return self._thread.call(partial(self._table.get, key, stale=stale))

    def scan(
        self,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        limit: int = 1_000,
        keys_only: bool = False,
        stale: bool = False,
    ) -> Page:
        """See `Table.scan`."""
        work = partial(self._table.scan, prefix, after=after, limit=limit, keys_only=keys_only, stale=stale)
        return self._thread.call(work)

    def count(self, prefix: bytes = b"", *, stale: bool = False) -> int:
        """See `Table.count`."""
        return self._thread.call(partial(self._table.count, prefix, stale=stale))

    def snapshot(self) -> None:
        """See `Table.snapshot`."""
        self._thread.call(self._table.snapshot)

    def status(self, *, digest: bool = False) -> list[TableStatus]:
        """See `Table.status`."""
        return self._thread.call(partial(self._table.status, digest=digest))

    def export_to(self, path: str | PathLike[str], *, overwrite: bool = False) -> TableExport:
        """See `Table.export_to`."""
        return self._thread.call(partial(self._table.export_to, path, overwrite=overwrite))

    def import_from(self, path: str | PathLike[str]) -> TableImport:
        """See `Table.import_from`."""
        return self._thread.call(self._table.import_from, path)

    def watch(
        self, prefix: bytes = b"", *, revision: int | Mapping[int, int] | None = None, initial: bool = True
    ) -> Iterator[TableEvent]:
        """See `Table.watch`; the watch ends with the iterator."""

        async def begin() -> TableWatch:
            return self._table.watch(prefix, revision=revision, initial=initial)

        async def close() -> None:
            watch.close()

        async def following() -> TableEvent | None:
            try:
                return await watch.__anext__()
            except StopAsyncIteration:
                return None

        watch = self._thread.call(begin)
        try:
            while (event := self._thread.call(following)) is not None:
                yield event
        finally:
            self._thread.call(close)
