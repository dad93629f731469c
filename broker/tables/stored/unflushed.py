"""The changes of a table that are not in its store yet, and the operation that writes them.

1. A deleted key has an entry of version 0, which hides the one in the store.
2. A change of a key whose stored value expires also removes the row of that expiry.
3. Once it is being flushed it is not changed, since the thread that commits reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gnomon.broker.tables.engines.layers import Layer
from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.engines.table_image import NotedEntries
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.recent_operations import OperationChange
from gnomon.broker.tables.stored import store_forms as forms
from gnomon.log.tables.key_entry import NEVER, expires, numbers_of, pack_entry

DELETED: Final = pack_entry(b"", -1, -1, 0, NEVER)
OPERATION_BYTES: Final = 300
"""The memory of a numbered operation that was done or forgotten."""


class Unflushed:
    """The changes from one flush to the next."""

    def __init__(self, memory: TablesMemory) -> None:
        """No change; `memory` counts those of all tables."""
        self.entries = MemoryEngine(memory)
        self.noted = NotedEntries()
        self.operations: Mapping[tuple[bytes, int], OperationChange] = {}
        self._ended: dict[tuple[int, bytes], None] = {}
        """The expiries of values in the store that are replaced or deleted."""

    @property
    def bytes_used(self) -> int:
        """The memory of the changes."""
        return self.entries.bytes_used + self.noted.bytes_used + OPERATION_BYTES * len(self.operations)

    def get(self, key: bytes) -> bytes | None:
        """The entry of a key, `DELETED` if it was deleted; None if it is not changed."""
        return self.entries.get(key)

    def scan(self, first: bytes, end: bytes | None) -> Layer:
        """The changed keys in a range."""
        for key, packed in self.entries.scan(first, end):
            yield key, None if packed is DELETED else packed

    def end_expiry(self, key: bytes, before: bytes | None) -> None:
        """The key, whose stored entry is `before`, is changed here for the first time."""
        if before is not None and expires(before):
            self._ended[numbers_of(before)[3], key] = None

    def write(self, transaction: Any, databases: Mapping[str, Any], number: int) -> None:
        """Writes the changes of table `number`."""
        for row in self._ended_rows(number):
            transaction.delete(row, db=databases[forms.EXPIRIES])
        write_entries(transaction, databases, number, self.entries.scan(b"", None))
        begin = forms.number_key(number)
        for key, before in self.noted.scan(b""):
            transaction.put(begin + key, before or b"", overwrite=False, db=databases[forms.NOTED])
        write_operations(transaction, databases, number, self.operations)

    def _ended_rows(self, number: int) -> Iterator[bytes]:
        return (forms.expiry_row(number, expires_ms, key) for expires_ms, key in self._ended)


def write_entries(
    transaction: Any, databases: Mapping[str, Any], number: int, changed: Iterable[tuple[bytes, bytes]]
) -> None:
    """Writes the entries of table `number`, and the rows of their expiries."""
    begin = forms.number_key(number)
    deleted, expiries = list[bytes](), list[tuple[bytes, bytes]]()

    def rows() -> Iterator[tuple[bytes, bytes]]:
        for key, packed in changed:
            if packed is DELETED:
                deleted.append(begin + key)
                continue
            if expires(packed):
                expiries.append((forms.expiry_row(number, numbers_of(packed)[3], key), b""))
            yield begin + key, forms.seal(key, packed)

    # One call for all rows: 0.7 us a row, where a call for each takes 1.2 us.
    transaction.cursor(databases[forms.ENTRIES]).putmulti(rows())
    for row in deleted:
        transaction.delete(row, db=databases[forms.ENTRIES])
    transaction.cursor(databases[forms.EXPIRIES]).putmulti(expiries)


def write_operations(
    transaction: Any,
    databases: Mapping[str, Any],
    number: int,
    changed: Mapping[tuple[bytes, int], OperationChange],
) -> None:
    """Writes the numbered operations of table `number`."""
    database = databases[forms.OPERATIONS]
    for (writer, operation), change in changed.items():
        row = forms.operation_row(number, writer, operation)
        if change is None:
            transaction.delete(row, db=database)
        else:
            transaction.put(row, forms.seal(row, forms.encode_done(*change)), db=database)
