"""Helpers for the tests of tables: short forms of changes, and a model of the entries."""

from __future__ import annotations

from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.broker.tables.table_state import TableState
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import NO_TTL, KeyChange, TableChanges
from gnomon.log.tables.key_entry import NEVER, KeyEntry, unpack_entry
from gnomon.log.tables.operation_id import OperationId

AT = 1_700_000_000_000


def put(key: bytes, value: bytes, ttl_ms: int = NO_TTL) -> KeyChange:
    return KeyChange(key, value, ttl_ms, AT, is_expiry=False)


def deletion(key: bytes) -> KeyChange:
    return KeyChange(key, None, NO_TTL, AT, is_expiry=False)


class StrictEngine(MemoryEngine):
    """An engine that checks which entries are replaced (`table_state` invariant 5)."""

    def put(self, key: bytes, packed: bytes, before: bytes | None) -> None:
        assert before == self.get(key), f"{key!r} is not replaced but added, or the other way round"
        super().put(key, packed, before)

    def delete(self, key: bytes, before: bytes | None) -> None:
        assert before == self.get(key), f"{key!r} has another entry"
        super().delete(key, before)


def new_state() -> TableState:
    return TableState(StrictEngine(TablesMemory(1 << 30)), Offset(0))


def give_out(state: TableState, *changes: KeyChange, operation: OperationId | None = None) -> None:
    state.give_out(TableChanges(changes, operation), state.given_out, -1)


def applied(state: TableState) -> dict[bytes, KeyEntry]:
    return {key: unpack_entry(packed) for key, packed in state.engine.scan(b"", None)}


class TableModel:
    """The entries after each record of a log, computed record by record."""

    def __init__(self) -> None:
        self.at: list[dict[bytes, KeyEntry]] = [{}]
        """The entries after as many records as the index says."""

    def append(self, changes: tuple[KeyChange, ...]) -> None:
        for key, value, ttl_ms, timestamp_ms, _ in changes:
            entries = dict(self.at[-1])
            before = entries.pop(key, None)
            revision = len(self.at) - 1
            if value is not None:
                expires_ms = timestamp_ms + ttl_ms if ttl_ms else NEVER
                if before is None:
                    entries[key] = KeyEntry(value, revision, revision, 1, expires_ms)
                else:
                    entries[key] = KeyEntry(value, revision, before.create_revision, before.version + 1, expires_ms)
            self.at.append(entries)

    def cut(self, end: int) -> None:
        del self.at[end + 1 :]
