"""Follows one source's ledger records, the metadata about its ledgers, for all partitions of its shadows open here.

1. One metadata read and one watch serve any number of open partitions. The watch ends with the last of them.
2. A listener gets all ledger records of its partition as of one revision, and then each change once, in order. After a
   compacted history it gets all records again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol

import trio

from gnomon.bookie.record import ledger_key
from gnomon.log.chains import ledgers_prefix
from gnomon.metadata.client import Event, KeyValue, Metadata, RangeResult, WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock


class SourceListener(Protocol):
    """Receives the ledger records of one partition."""

    def records_replaced(self, items: Sequence[KeyValue]) -> None:
        """All records of the partition, ordered by base offset."""

    def records_changed(self, events: Sequence[Event]) -> None:
        """The changes at one revision."""


class SourceLedgers:
    """The ledger records of one topic; nothing is read before the first listener joins."""

    def __init__(self, metadata: Metadata, clock: Clock, tasks: Tasks, logger: Logger, topic_id: uuid.UUID) -> None:
        self._metadata, self._clock, self._tasks, self._logger = metadata, clock, tasks, logger
        self._prefix = ledger_key(ledgers_prefix(topic_id))
        self._records: dict[int, dict[str, KeyValue]] = {}
        self._listeners: dict[int, dict[SourceListener, None]] = {}
        self._following: trio.CancelScope | None = None
        self._loading = trio.Lock()

    async def join(self, partition: int, listener: SourceListener) -> None:
        """Gives a partition's records to `listener`: all of them before this returns, then the changes until it leaves.

        Raises:
            MetadataError: they could not be read; `listener` has not joined.
        """
        async with self._loading:
            if self._following is None:
                follower = Follower(self._metadata, self._clock, self._logger, self._prefix, self._replace, self._apply)
                await follower.load()
                self._following = trio.CancelScope()
                self._tasks.start_soon(self._follow, follower, self._following)
        self._listeners.setdefault(partition, {})[listener] = None
        listener.records_replaced(self._of(partition))

    def leave(self, partition: int, listener: SourceListener) -> None:
        """Undoes `join`; does nothing for a listener that has not joined."""
        others = self._listeners.get(partition, {})
        others.pop(listener, None)
        if not others:
            self._listeners.pop(partition, None)
        if not self._listeners and self._following is not None:
            self._following.cancel()
            self._following = None
            self._records.clear()

    @staticmethod
    async def _follow(follower: Follower, scope: trio.CancelScope) -> None:
        with scope:
            await follower.run()

    def _of(self, partition: int) -> list[KeyValue]:
        return [item for _, item in sorted(self._records.get(partition, {}).items())]

    def _replace(self, found: RangeResult) -> None:
        self._records.clear()
        for item in found.items:
            self._records.setdefault(_partition_of(item.key), {})[item.key] = item
        for partition, listeners in list(self._listeners.items()):
            for listener in list(listeners):
                listener.records_replaced(self._of(partition))

    def _apply(self, batch: WatchBatch) -> None:
        changed: dict[int, list[Event]] = {}
        for event in batch.events:
            partition = _partition_of(event.key)
            changed.setdefault(partition, []).append(event)
            records = self._records.setdefault(partition, {})
            if event.current is not None:
                records[event.key] = event.current
            else:
                records.pop(event.key, None)
        for partition, events in changed.items():
            for listener in list(self._listeners.get(partition, {})):
                listener.records_changed(events)


def _partition_of(key: str) -> int:
    return int(key.split("/")[-2])
