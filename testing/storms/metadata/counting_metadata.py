"""Counts the metadata calls of a client operation: gnomon promises how many there are (docs/decisions/0005)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass

from gnomon.metadata.client import (
    Compare,
    KeyValue,
    LeaseId,
    Metadata,
    Operation,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)


@dataclass(slots=True)
class Cost:
    """The calls that began during a measure."""

    reads: int = 0
    """Calls of `get` and `range`."""
    writes: int = 0
    """Calls of `txn`, with any outcome."""


class CountingMetadata:
    """A `Metadata` that passes all calls on to another one, and counts reads and writes."""

    def __init__(self, inner: Metadata) -> None:
        self._inner = inner
        self._measures: list[Cost] = []

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        """Counts the calls that begin inside the block, in any task; measures may overlap."""
        cost = Cost()
        self._measures.append(cost)
        try:
            yield cost
        finally:
            # By identity: two measures with equal counts are equal.
            self._measures = [measure for measure in self._measures if measure is not cost]

    async def get(self, key: str) -> KeyValue | None:
        """See `Metadata.get`; a read."""
        self._count_read()
        return await self._inner.get(key)

    async def range(self, prefix: str) -> RangeResult:
        """See `Metadata.range`; a read."""
        self._count_read()
        return await self._inner.range(prefix)

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """See `Metadata.txn`; a write."""
        for cost in self._measures:
            cost.writes += 1
        return await self._inner.txn(compare, then, otherwise)

    def watch(self, prefix: str, from_revision: Revision) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """See `Metadata.watch`."""
        return self._inner.watch(prefix, from_revision)

    async def lease(self, ttl_seconds: float) -> LeaseId:
        """See `Metadata.lease`."""
        return await self._inner.lease(ttl_seconds)

    async def keep_alive(self, lease: LeaseId) -> None:
        """See `Metadata.keep_alive`."""
        await self._inner.keep_alive(lease)

    async def revoke(self, lease: LeaseId) -> None:
        """See `Metadata.revoke`."""
        await self._inner.revoke(lease)

    async def compact(self, revision: Revision) -> None:
        """See `Metadata.compact`."""
        await self._inner.compact(revision)

    def _count_read(self) -> None:
        for cost in self._measures:
            cost.reads += 1
