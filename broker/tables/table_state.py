"""The state of one partition's table: what is applied, and what was given out and is not durable yet. Pure.

1. Readers see what is applied: the changes of the durable batches, in the order of the log, each batch as a whole.
   A batch of many records is applied in several turns; meanwhile the table is behind, and readers wait.
2. Decisions see the newest entry of each key, which counts the changes that were given out and are not durable.
3. Batches become durable in the order in which they were given out. When one fails, all behind it are lost, and the
   newest entries are the applied ones.
4. The entry of a key depends on the log alone (`batch_entries`).
5. The entry that a change replaces is known when the change is given out, and is that of the engine when it is applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

from gnomon.broker.tables.batch_entries import BatchEntries
from gnomon.broker.tables.engines.table_engine import TableEngine
from gnomon.broker.tables.recent_operations import DoneOperation, RecentOperations
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import KeyChange, TableChanges
from gnomon.log.tables.key_entry import has_value

LOOKED_UP_AT_ONCE: Final = 50
"""Keys that are looked up between two looks at the clock: a page of a store that is not in memory takes 0.1 ms or more.
"""
APPLIED_AT_ONCE: Final = 1_000
"""Records that are applied in one turn: some 2 ms."""


class AppliedBatch(NamedTuple):
    """The changes of one batch."""

    base_offset: Offset
    changes: Sequence[KeyChange]

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return Offset(self.base_offset + len(self.changes))


@dataclass(slots=True)
class _DurableBatch:
    """A durable batch that is being applied."""

    end: Offset
    items: Sequence[tuple[bytes, bytes]]
    before: Mapping[bytes, bytes | None]
    batch: AppliedBatch
    applied: int = 0
    """The number of items that are applied."""


class TableState:
    """The entries of one partition."""

    def __init__(self, engine: TableEngine, applied: Offset) -> None:
        """A table to which everything below `applied` is applied."""
        self.engine = engine
        self.applied = applied
        """The end of what is applied."""
        self.news_at = 0.0
        """The monotonic second of the driver's last news of the log: a change, or that there is none."""
        self.operations = RecentOperations()
        self._newest: dict[bytes, bytes] = {}
        """The newest entries of keys with changes that are not durable."""
        self._prepared: tuple[Sequence[KeyChange], BatchEntries] | None = None
        """The entries of the batch that is given out next, if they were computed ahead."""
        self._durable: deque[_DurableBatch] = deque()
        """The durable batches that are not applied as a whole."""
        self._given_out: deque[tuple[Offset, BatchEntries, AppliedBatch]] = deque()
        """End, entries and changes of each batch that is not durable."""

    @property
    def given_out(self) -> Offset:
        """The end of what was given out."""
        if self._given_out:
            return self._given_out[-1][0]
        return self._durable[-1].end if self._durable else self.applied

    def newest(self, key: bytes) -> bytes | None:
        """The newest entry of a key, durable or not; one of version 0, or None, if it has no value."""
        found = self._newest.get(key)
        return self.engine.get(key) if found is None else found

    def give_out(self, changes: TableChanges, base_offset: Offset, append_time_ms: int) -> None:
        """A batch was given out; its records have the time `append_time_ms` unless that is -1."""
        assert base_offset == self.given_out, f"changes at {base_offset} do not follow {self.given_out}"
        entries = self._taken_prepared(changes.changes, append_time_ms)
        if entries is None:
            entries = self.next_entries(append_time_ms)
            self._add(entries, changes.changes)
        next_offset = Offset(base_offset + len(changes.changes))
        self._newest.update(entries.after)
        self._given_out.append((next_offset, entries, AppliedBatch(base_offset, changes.changes)))
        operation = changes.operation
        if operation is not None:
            time_ms = changes.changes[0].timestamp_ms if append_time_ms < 0 else append_time_ms
            done = DoneOperation(base_offset, next_offset, time_ms, operation.succeeded, changes.answers)
            self.operations.note(operation, done)

    def _taken_prepared(self, changes: Sequence[KeyChange], append_time_ms: int) -> BatchEntries | None:
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] is not changes:
            return None
        entries = prepared[1]
        place = (entries.base_offset, entries.append_time_ms)
        return entries if place == (self.given_out, append_time_ms) else None

    def _add(self, entries: BatchEntries, changes: Sequence[KeyChange]) -> None:
        with self.engine.looking_up() if len(changes) > 1 else nullcontext():
            entries.add(changes)

    def next_entries(self, append_time_ms: int = -1) -> BatchEntries:
        """For the entries of the batch that is given out next."""
        return BatchEntries(self.newest, self.given_out, append_time_ms)

    def prepared(self, changes: Sequence[KeyChange], entries: BatchEntries) -> None:
        """The entries of the batch that is given out next have all of its changes. If something else is given out, or
        the batch gets another place, `give_out` computes them again."""
        self._prepared = changes, entries

    def prepare(self, changes: TableChanges, append_time_ms: int) -> Iterator[None]:
        """Computes the entries of the batch that is given out next, a part between two steps; nothing else is given out
        meanwhile."""
        entries = self.next_entries(append_time_ms)
        for first in range(0, len(changes.changes), LOOKED_UP_AT_ONCE):
            if first:
                yield
            self._add(entries, changes.changes[first : first + LOOKED_UP_AT_ONCE])
        self.prepared(changes.changes, entries)

    def look_up(self, keys: Sequence[bytes]) -> Iterator[None]:
        """Reads the entries of keys, some between two steps, so that they are in memory for a decision."""
        for first in range(0, len(keys), LOOKED_UP_AT_ONCE):
            with self.engine.looking_up():
                for key in keys[first : first + LOOKED_UP_AT_ONCE]:
                    self.newest(key)
            yield

    def durable(self, next_offset: Offset) -> list[AppliedBatch]:
        """Everything below `next_offset` is durable; returns as `apply`."""
        given_out = self._given_out
        while given_out and given_out[0][0] <= next_offset:
            end, entries, batch = given_out.popleft()
            self._durable.append(_DurableBatch(end, list(entries.after.items()), entries.before, batch))
        self.operations.durable(next_offset)
        return self.apply()

    def apply(self) -> list[AppliedBatch]:
        """Applies as many durable records as a turn allows, and returns the batches that are applied now as a whole."""
        room, durable = APPLIED_AT_ONCE, self._durable
        applied = []
        while durable and room > 0:
            oldest = durable[0]
            items = oldest.items[oldest.applied : oldest.applied + room]
            self._put(items, oldest.before)
            room -= len(items)
            oldest.applied += len(items)
            if oldest.applied == len(oldest.items):
                durable.popleft()
                self.applied = oldest.end
                applied.append(oldest.batch)
        return applied

    def _put(self, items: Sequence[tuple[bytes, bytes]], before: Mapping[bytes, bytes | None]) -> None:
        engine, newest = self.engine, self._newest
        for key, packed in items:
            if has_value(packed):
                engine.put(key, packed, before[key])
            else:
                engine.delete(key, before[key])
            if newest[key] is packed:
                del newest[key]

    @property
    def is_behind(self) -> bool:
        """Whether some durable records are not applied: readers wait until they are."""
        return bool(self._durable)

    def lost(self) -> None:
        """The batches that are not durable have failed."""
        self._prepared = None
        self._newest.clear()
        for batch in self._durable:
            self._newest.update(batch.items[batch.applied :])
        self._given_out.clear()
        self.operations.lost()
