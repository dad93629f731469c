"""The applied entries of one partition's table on disk: those in the store, and over them the unflushed changes.

1. Changes since the last flush are in memory. A flush writes them to the store with the applied position, in one
   synced transaction. So the store has a prefix of the log at all times.
2. Changes that come while a flush is under way are in a layer of their own, over those that are being flushed.
3. A flush that failed for want of space is tried again with the same changes.
4. Entries that are kept for an image go to the store with the changes, so that an image takes no more memory than they
   do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from gnomon.broker.tables.engines.layers import Layer, newest_of
from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.engines.table_image import NotedEntries, TableImage
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.recent_operations import OperationChange
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.broker.tables.stored.removal import remove_rows
from gnomon.broker.tables.stored.store_forms import PageDamaged, TablePosition
from gnomon.broker.tables.stored.unflushed import DELETED, Unflushed, write_entries, write_operations
from gnomon.log.entry import Offset
from gnomon.runtime.disk.commit import PAGE_ERRORS
from gnomon.runtime.world import Environment

COUNTED_AT_ONCE: Final = 500
"""Keys that are counted in one turn: some 40 pages, which may not be in memory."""
EXPIRIES_AHEAD: Final = 500
"""The stored expiries that are known in memory."""


class DiskEngine:
    """A sorted map from keys to stored entries, of the table with a number in a store."""

    def __init__(
        self,
        environment: Environment,
        record_key: bytes,
        number: int,
        memory: TablesMemory,
        position: TablePosition | None,
    ) -> None:
        """The map as it was flushed.

        Args:
            record_key: the key of its record in the store.
            memory: counts the unflushed changes of all tables.
            position: the one in the store; None for a table without rows.
        """
        self._environment = environment
        self._record_key = record_key
        self._number = number
        self._memory = memory
        self._begin = forms.number_key(number)
        self._keys = 0 if position is None else position.keys
        self._bytes_used = 0 if position is None else position.bytes_used
        self._fresh = Unflushed(memory)
        self._flushing: Unflushed | None = None
        self._image: TableImage | None = None
        self._expiries_ahead: deque[tuple[int, bytes]] = deque()
        """The stored expiries after those that are known to be over; `_expiries_from` is the row after them."""
        self._expiries_from: bytes | None = self._begin
        self._transaction: Any = None
        """The one that gets use within `looking_up`."""
        self._flushed = (self._keys, self._bytes_used)
        """Keys and bytes as of the flush that is under way."""

    def __len__(self) -> int:
        """The number of keys."""
        return self._keys

    @property
    def bytes_used(self) -> int:
        """See `TableEngine`."""
        return self._bytes_used

    @property
    def unflushed_bytes(self) -> int:
        """The memory of the changes that are not in the store."""
        return self._fresh.bytes_used + (0 if self._flushing is None else self._flushing.bytes_used)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way, or has failed and was not tried again."""
        return self._flushing is not None

    # --- entries ---------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """See `TableEngine`.

        Raises:
            RowDamaged: the stored entry is damaged.
        """
        packed = self._fresh.get(key)
        if packed is None:
            packed = self._below_fresh(key)
        return None if packed is DELETED else packed

    def _below_fresh(self, key: bytes) -> bytes | None:
        packed = None if self._flushing is None else self._flushing.get(key)
        return self._stored(key) if packed is None else packed

    def _stored(self, key: bytes) -> bytes | None:
        if self._transaction is not None:
            return self._row(self._transaction, key)
        with self._environment.read() as transaction:
            return self._row(transaction, key)

    def _row(self, transaction: Any, key: bytes) -> bytes | None:
        try:
            stored = transaction.get(self._begin + key, db=self._environment.databases[forms.ENTRIES])
        except PAGE_ERRORS as error:
            raise PageDamaged(f"a page of the store of tables is damaged: {error}") from error
        return None if stored is None else forms.unseal(key, stored)

    @contextmanager
    def looking_up(self) -> Iterator[None]:
        """See `TableEngine`: the gets share a transaction, which saves a third of their time."""
        with self._environment.read() as self._transaction:
            try:
                yield
            finally:
                self._transaction = None

    def put(self, key: bytes, packed: bytes, before: bytes | None) -> None:
        """See `TableEngine`."""
        self._replace(key, packed, before)

    def delete(self, key: bytes, before: bytes | None) -> None:
        """See `TableEngine`."""
        if before is not None:
            self._replace(key, DELETED, before)

    def _replace(self, key: bytes, packed: bytes, before: bytes | None) -> None:
        fresh = self._fresh
        if self._image is not None and self._image.wants(key):
            fresh.noted.note(key, before)
        changed = fresh.get(key)
        if changed is None:
            fresh.end_expiry(key, before)
            if self._flushing is not None:
                self._flushing.entries.end_expiry(key)
        fresh.entries.put(key, packed, changed)
        if before is not None:
            self._keys -= 1
            self._bytes_used -= len(key) + len(before)
        if packed is not DELETED:
            self._count(key, packed)

    def _count(self, key: bytes, packed: bytes) -> None:
        self._keys += 1
        self._bytes_used += len(key) + len(packed)

    def scan(self, first: bytes, end: bytes | None) -> Generator[tuple[bytes, bytes]]:
        """See `TableEngine`.

        Raises:
            RowDamaged: a stored entry is damaged.
        """
        with ExitStack() as opened:
            layers = [opened.enter_context(closing(layer)) for layer in self._layers(first, end)]
            for key, packed in newest_of(layers):
                if packed is not None:
                    yield key, packed

    def _layers(self, first: bytes, end: bytes | None) -> list[Layer]:
        layers = [layer.scan(first, end) for layer in (self._fresh, self._flushing) if layer is not None]
        return [*layers, self._stored_rows(first, end)]

    def _stored_rows(self, first: bytes, end: bytes | None) -> Layer:
        stop = None if end is None else self._begin + end
        with closing(self._rows(forms.ENTRIES, self._begin + first)) as rows:
            for row, stored in rows:
                if stop is not None and row >= stop:
                    return
                key = row[forms.NUMBER_BYTES :]
                yield key, forms.unseal(key, stored)

    def _rows(self, database: str, first: bytes) -> Generator[tuple[bytes, memoryview]]:
        """The rows of this table from one on, in order."""
        with self._environment.read() as transaction:
            try:
                cursor = transaction.cursor(self._environment.databases[database])
                if cursor.set_range(first):
                    for row, value in cursor:
                        if row[: forms.NUMBER_BYTES] != self._begin:
                            return
                        yield bytes(row), value
            except PAGE_ERRORS as error:
                raise PageDamaged(f"a page of the store of tables is damaged: {error}") from error

    def count(self, first: bytes, end: bytes | None) -> tuple[int, bytes | None]:
        """See `TableEngine`: COUNTED_AT_ONCE in a turn, unless all are asked for."""
        if not first and end is None:
            return self._keys, None
        number = 0
        with closing(self.scan(first, end)) as found:
            for key, _ in found:
                if number == COUNTED_AT_ONCE:
                    return number, key
                number += 1
        return number, None

    def refusal(self, more_bytes: int) -> str | None:
        """See `TableEngine`: a table on disk has no bound of its own."""
        return None

    def close(self) -> Iterator[None]:
        """See `TableEngine`: the store keeps what was flushed."""
        if self._image is not None:
            self._image.close()
        return self._fresh.entries.close()

    # --- expiry -----------------------------------------------------------------------------------------------------

    @property
    def next_expiry_ms(self) -> int | None:
        """See `TableEngine`."""
        self._pass_changed()
        earliest = [each for layer in self._changed_layers() if (each := layer.next_expiry_ms) is not None]
        earliest += [expires_ms for expires_ms, _ in [*self._expiries_ahead][:1]]
        return min(earliest, default=None)

    def expiring(self, until_ms: int, count: int) -> list[bytes]:
        """See `TableEngine`."""
        self._pass_changed()
        stored = [pair for pair in self._expiries_ahead if not self._is_changed(pair[1])]
        changed = [pair for layer in self._changed_layers() for pair in layer.earliest_expiries(count)]
        earliest = heapq.nsmallest(count, [*changed, *stored])
        return [key for expires_ms, key in earliest if expires_ms <= until_ms]

    def _changed_layers(self) -> list[MemoryEngine]:
        return [layer.entries for layer in (self._fresh, self._flushing) if layer is not None]

    def _pass_changed(self) -> None:
        """Finds the earliest stored expiry of a key that is not changed: the first in `_expiries_ahead`, if any."""
        ahead = self._expiries_ahead
        while True:
            while ahead and self._is_changed(ahead[0][1]):
                ahead.popleft()
            if ahead or self._expiries_from is None:
                return
            self._look_ahead(self._expiries_from)

    def _look_ahead(self, first: bytes) -> None:
        self._expiries_from = None
        with closing(self._rows(forms.EXPIRIES, first)) as rows:
            for row, _ in rows:
                if len(self._expiries_ahead) == EXPIRIES_AHEAD:
                    self._expiries_from = row
                    return
                self._expiries_ahead.append(forms.expiry_of(row))

    def _is_changed(self, key: bytes) -> bool:
        return self._fresh.get(key) is not None or (self._flushing is not None and self._flushing.get(key) is not None)

    # --- images -----------------------------------------------------------------------------------------------------

    def begin_image(self) -> TableImage:
        """See `TableEngine`; `clear_noted` must have removed what an earlier one has noted."""
        assert self._image is None, "there is one image at a time"
        self._image = TableImage(self._image_layers, self._forget_noted, self._end_image)
        return self._image

    def _image_layers(self, first: bytes) -> Sequence[Layer]:
        noted = [layer.noted.scan(first) for layer in (self._flushing, self._fresh) if layer is not None]
        return [self._noted_rows(first), *noted, self._present(first)]

    def _noted_rows(self, first: bytes) -> Layer:
        with closing(self._rows(forms.NOTED, self._begin + first)) as rows:
            for row, before in rows:
                yield row[forms.NUMBER_BYTES :], bytes(before) or None

    def _present(self, first: bytes) -> Layer:
        with closing(self.scan(first, None)) as found:
            yield from found

    def _forget_noted(self, first: bytes) -> None:
        self._fresh.noted.forget_below(first)

    def _end_image(self) -> None:
        self._image = None
        for layer in (self._fresh, self._flushing):
            if layer is not None:
                layer.noted = NotedEntries()  # a thread may read the former ones

    async def prepare_image(self) -> None:
        """See `TableEngine`: removes the rows that the last image has noted.

        Raises:
            DiskFull, DiskFailed: they could not be removed.
        """
        await remove_rows(self._environment, (forms.NOTED,), self._number)

    # --- restoring --------------------------------------------------------------------------------------------------

    async def restore(
        self, entries: Sequence[tuple[bytes, bytes]], operations: Mapping[tuple[bytes, int], OperationChange]
    ) -> None:
        """Writes entries of a snapshot into an empty table, which has no position before `restored`.

        Raises:
            DiskFull, DiskFailed: they could not be written.
        """
        databases, number = self._environment.databases, self._number

        def write(transaction: Any) -> None:
            write_entries(transaction, databases, number, entries)
            write_operations(transaction, databases, number, operations)

        await self._environment.commit(write)
        for key, packed in entries:
            self._count(key, packed)

    async def restored(self, applied: Offset, record: bytes | None) -> None:
        """The table has all entries of the snapshot.

        Args:
            applied, record: as for `flush`.

        Raises:
            DiskFull, DiskFailed: that could not be written.
        """
        self.begin_flush({})
        for _ in await self.flush(applied, record):
            pass

    # --- flushes ----------------------------------------------------------------------------------------------------

    def begin_flush(self, operations: Mapping[tuple[bytes, int], OperationChange]) -> None:
        """Sets the present changes aside for a flush; no batch may be half applied.

        Args:
            operations: the numbered operations that became durable or were forgotten since the last flush.
        """
        assert self._flushing is None, "there is one flush at a time"
        self._flushing, self._fresh = self._fresh, Unflushed(self._memory)
        self._flushing.operations = operations
        self._flushed = (self._keys, self._bytes_used)

    async def flush(self, applied: Offset, record: bytes | None) -> Iterator[None]:
        """Writes the changes that `begin_flush` has set aside; to be called again if there was no space.

        Args:
            applied: the position of the table at `begin_flush`.
            record: the identity of the last batch before it.

        Returns:
            Frees the memory of the changes, a part in each step.

        Raises:
            DiskFull: there is no space; nothing was written.
            DiskFailed: the device failed.
        """
        changes, number, record_key = self._flushing, self._number, self._record_key
        assert changes is not None, "begin_flush comes before"
        databases = self._environment.databases
        table = forms.encode_table(number, TablePosition(applied, record, *self._flushed))

        def write(transaction: Any) -> None:
            changes.write(transaction, databases, number)
            transaction.put(record_key, forms.seal(record_key, table), db=databases[forms.TABLES])

        await self._environment.commit(write)
        self._expiries_ahead.clear()
        self._expiries_from = self._begin
        return self.end_flush()

    def end_flush(self) -> Iterator[None]:
        """The changes that were set aside are in the store, or not needed any more; frees their memory in steps."""
        changes, self._flushing = self._flushing, None
        assert changes is not None, "begin_flush comes before"
        return changes.entries.close()
