"""Transactions on one partition of a table: comparisons, and what is done if they hold or if they do not. Pure.

1. A transaction is decided against the newest entries (`table_state` invariant 2), when it is its turn in the log. What
   it writes is one batch, so that nobody reads half of it.
2. Operations see what those before them in the same transaction have written. A key is written at most once.
3. A transaction that writes nothing is a read: its answers are given once everything that they depend on is durable.
4. The answer is final without a confirmation that this broker leads only if it would be the same at every later leader:
   a comparison asks for a revision that the key has no more, and revisions never return.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from gnomon.broker.tables.batch_entries import BatchEntries
from gnomon.log.tables.changes import NO_TTL, TTL, KeyChange
from gnomon.log.tables.key_entry import ABSENT, NEVER, NO_REVISION, KeyEntry, numbers_of, unpack_entry
from gnomon.log.tables.operation_id import EXPIRED, OPERATION, OWN_SEQUENCE, OperationId
from gnomon.log.tables.operations import Comparison, GetKey, IncrementKey, KeyOperation, PutKey
from gnomon.wire.kafka.records import Header, Record, build_batch

_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


class ExpireKey(NamedTuple):
    """Deletes a key if the time to live of its value is over."""

    key: bytes


TableOperation: TypeAlias = KeyOperation | ExpireKey


class Undoable(Exception):
    """An operation cannot be done on the value that the key has; the text says why."""


@dataclass(slots=True)
class Transaction:
    """One transaction of a client, and its answer once it is decided."""

    comparisons: Sequence[Comparison]
    then: Sequence[TableOperation]
    otherwise: Sequence[TableOperation] = ()
    id: OperationId | None = None
    """None for a transaction that may be done twice: a read, or one of the leader."""
    size_bytes: int = 0
    """The bytes of keys and values."""
    succeeded: bool = False
    answers: list[Any] | None = field(default=None)
    """The answers of the operations that were done; None if it was done before, by a batch that was replayed."""
    is_final: bool = False
    """Whether the answer of a read needs no confirmation (invariant 4)."""
    failure: str | None = None
    """Why nothing was done, if an operation could not be."""

    @property
    def parts(self) -> int:
        """The number of operations and comparisons."""
        return len(self.comparisons) + len(self.then) + len(self.otherwise)

    @property
    def keys(self) -> list[bytes]:
        """The keys of all operations and comparisons."""
        return [each.key for each in (*self.comparisons, *self.then, *self.otherwise)]

    @property
    def operations(self) -> Sequence[TableOperation]:
        """Those of the branch that was taken."""
        return self.then if self.succeeded else self.otherwise


class _Decided:
    """The entries and changes of a transaction that is being decided."""

    def __init__(self, entries: BatchEntries, now_ms: int) -> None:
        self._entries = entries
        self._now_ms = now_ms
        self.changes: list[KeyChange] = []

    def entry(self, key: bytes) -> KeyEntry:
        packed = self.packed(key)
        return ABSENT if packed is None else unpack_entry(packed)

    def packed(self, key: bytes) -> bytes | None:
        """The stored entry of a key, None if it is absent."""
        packed = self._entries.newest(key)
        return packed if packed is not None and numbers_of(packed)[2] else None

    def do(self, operation: TableOperation) -> Any:
        """Does one operation, and returns its answer.

        Raises:
            Undoable: the value of the key does not allow it.
        """
        key = operation.key
        if isinstance(operation, GetKey):
            return self.packed(key)
        if isinstance(operation, PutKey):
            return self._change(KeyChange(key, operation.value, operation.ttl_ms, self._now_ms, is_expiry=False))
        if isinstance(operation, IncrementKey):
            return self._increment(key, operation.by)
        entry = self.entry(key)
        is_expiry = isinstance(operation, ExpireKey)
        if not entry.version or (is_expiry and not entry.is_over(self._now_ms)):
            return NO_REVISION
        return self._change(KeyChange(key, None, NO_TTL, self._now_ms, is_expiry))

    def _increment(self, key: bytes, by: int) -> list[int]:
        entry = self.entry(key)
        total = _sum(key, entry, by)
        ttl_ms = NO_TTL if entry.expires_ms == NEVER else max(1, entry.expires_ms - self._now_ms)
        return [self._change(KeyChange(key, b"%d" % total, ttl_ms, self._now_ms, is_expiry=False)), total]

    def _change(self, change: KeyChange) -> int:
        """Makes a change, and returns its revision."""
        revision = self._entries.base_offset + len(self.changes)
        self._entries.add((change,))
        self.changes.append(change)
        return revision


def decide(transaction: Transaction, entries: BatchEntries, now_ms: int) -> list[KeyChange]:
    """Decides a transaction, and sets its answer.

    Args:
        entries: those of the batch that it would write, without a change; the changes are added to them.
        now_ms: the time of the records.

    Returns:
        The changes to write; none for a transaction that is a read, or that could not be done.
    """
    decided = _Decided(entries, now_ms)
    failed = [each for each in transaction.comparisons if not each.holds(decided.entry(each.key))]
    is_lost_for_ever = any(each.never_holds_again(decided.entry(each.key)) for each in failed)
    transaction.succeeded = not failed
    transaction.failure = None
    try:
        transaction.answers = [decided.do(operation) for operation in transaction.operations]
    except Undoable as error:
        transaction.failure, transaction.answers = str(error), []
        decided.changes.clear()
    transaction.is_final = is_lost_for_ever and not decided.changes
    return decided.changes


def batch_of(changes: Sequence[KeyChange], operation: OperationId | None, now_ms: int) -> bytes:
    """The record batch with these changes, as the leader appends it."""
    records = []
    for delta, change in enumerate(changes):
        headers: list[Header] = []
        if operation is not None and not delta:
            headers.append((OPERATION, operation.encode()))
        if change.ttl_ms != NO_TTL:
            headers.append((TTL, b"%d" % change.ttl_ms))
        if change.is_expiry:
            headers.append((EXPIRED, b""))
        records.append(Record(delta, 0, change.key, change.value, tuple(headers)))
    return build_batch(records, base_timestamp=now_ms, base_sequence=OWN_SEQUENCE)


def _sum(key: bytes, entry: KeyEntry, by: int) -> int:
    if not entry.version:
        return by
    if _INTEGER.fullmatch(entry.value) is None or int(entry.value) not in _INTEGERS:
        raise Undoable(f"the value of {key!r:.80} is {entry.value!r:.60}, which is no decimal number of 64 bits")
    total = int(entry.value) + by
    if total not in _INTEGERS:
        raise Undoable(f"{int(entry.value)} + {by} does not fit into 64 bits: {key!r:.80} stays as it is")
    return total
