"""The ledgers of one source, followed by one watch for all partitions of its shadows that are open here.

1. One metadata read and one watch, however many partitions are open; both end with the last of them.
2. Who joins is given all records of a partition as of one revision, then each change, in order, once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol

import trio

from gnomon.bookie.record import ledger_key
from gnomon.broker.partition.chain import ledgers_prefix
from gnomon.metadata.client import Event, KeyValue, Metadata, RangeResult, WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock


class Joined(Protocol):
    """Somebody who follows one partition."""

    def records_replaced(self, items: Sequence[KeyValue]) -> None:
        """All records of the partition, in the order of their base offsets."""

    def records_changed(self, events: Sequence[Event]) -> None:
        """What changed at one revision."""


class SourceLedgers:
    """The ledgers of one topic; nothing is read before somebody joins."""

    def __init__(
        self, metadata: Metadata, clock: Clock, nursery: trio.Nursery, logger: Logger, topic_id: uuid.UUID
    ) -> None:
        self._metadata, self._clock, self._nursery, self._logger = metadata, clock, nursery, logger
        self._prefix = ledger_key(ledgers_prefix(topic_id))
        self._records: dict[int, dict[str, KeyValue]] = {}
        self._joined: dict[int, dict[Joined, None]] = {}
        self._following: trio.CancelScope | None = None
        self._loading = trio.Lock()

    async def join(self, partition: int, who: Joined) -> None:
        """From now on, and until it leaves, `who` is told of a partition's records: of all before this returns.

        Raises:
            MetadataError: they could not be read; `who` has not joined.
        """
        async with self._loading:
            if self._following is None:
                follower = Follower(self._metadata, self._clock, self._logger, self._prefix, self._replace, self._apply)
                await follower.load()
                self._following = trio.CancelScope()
                self._nursery.start_soon(self._follow, follower, self._following)
        self._joined.setdefault(partition, {})[who] = None
        who.records_replaced(self._of(partition))

    def leave(self, partition: int, who: Joined) -> None:
        """Undoes `join`; does nothing for one that has not joined."""
        others = self._joined.get(partition, {})
        others.pop(who, None)
        if not others:
            self._joined.pop(partition, None)
        if not self._joined and self._following is not None:
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
        for partition, joined in list(self._joined.items()):
            for who in list(joined):
                who.records_replaced(self._of(partition))

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
            for who in list(self._joined.get(partition, {})):
                who.records_changed(events)


def _partition_of(key: str) -> int:
    return int(key.split("/")[-2])
