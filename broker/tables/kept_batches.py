"""The batches that are given out while a table is loaded from its log: they are kept, and applied last. Pure.

1. Once `begin` was called, every batch that is given out from that offset on is kept, in the order of the log.
2. Once they take more than KEPT_BYTES_MAX, nothing is kept any more (`HostedTable`): the table reads them from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from gnomon.log.entry import Offset
from gnomon.log.tables.changes import TableChanges, memory_bytes

KEPT_BYTES_MAX: Final = 64 << 20
"""Freeing so much at once takes 100 ms if it is many small changes."""


class KeptBatch(NamedTuple):
    """One batch; see `LogView.give_out`."""

    base_offset: Offset
    changes: TableChanges
    append_time_ms: int


class KeptBatches:
    """The kept batches of one table."""

    def __init__(self) -> None:
        """No batch is kept."""
        self.first: Offset | None = None
        """Everything that is given out from this offset on is kept until it is applied; None while nothing is kept."""
        self._batches: deque[KeptBatch] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether batches wait to be applied."""
        return bool(self._batches)

    @property
    def are_too_large(self) -> bool:
        """Whether they take more than KEPT_BYTES_MAX."""
        return self._bytes > KEPT_BYTES_MAX

    @property
    def oldest(self) -> KeptBatch | None:
        """The next one to apply."""
        return self._batches[0] if self._batches else None

    def begin(self, offset: Offset) -> Offset:
        """Keeps the batches from `offset` on, unless batches are kept already; returns the first offset that is."""
        if self.first is None:
            self.first = offset
        return self.first

    def add(self, batch: KeptBatch) -> None:
        """Keeps a batch that is given out now."""
        self._batches.append(batch)
        self._bytes += memory_bytes(batch.changes.changes)

    def remove_oldest(self) -> None:
        """The oldest one is being applied."""
        self._bytes -= memory_bytes(self._batches.popleft().changes.changes)

    def end(self) -> Iterator[None]:
        """Nothing is kept from now on; frees what was, a batch in each step."""
        batches, self._batches = self._batches, deque()
        self.first = None
        self._bytes = 0
        return _freed(batches)


def _freed(batches: deque[KeptBatch]) -> Iterator[None]:
    while batches:
        batches.popleft()
        yield
