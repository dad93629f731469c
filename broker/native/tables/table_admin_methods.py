"""Methods of the native service for the operators of tables.

They show the state of a partition's table, take a snapshot of it, send its newest snapshot, and list the tables of the
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.configs.topic_configs import DISK_ENGINE, MEMORY_ENGINE, is_on_disk, is_table
from gnomon.broker.native.arguments import checked
from gnomon.broker.native.tables.hosted import hosted_table
from gnomon.broker.native.tables.table_arguments import TablePlace, place_args, status_args
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.native.writes.write_targets import WriteTargets
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.snapshots.table_snapshots import SnapshotFailed
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import Unavailable
from gnomon.log.tables.key_entry import NO_REVISION
from gnomon.log.tables.snapshot_form import ENTRIES, SnapshotDamaged, SnapshotRecord
from gnomon.log.topic import Topic
from gnomon.metadata.client import MetadataError
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock

TABLES_MAX: Final = 1_000
"""Tables that one answer names."""
TOPICS_PER_TURN: Final = 2_000
"""Topics that are looked at in one turn: some 3 ms."""


class TableAdminMethods:
    """The methods for the operators of tables."""

    def __init__(self, access: NativeAccess, targets: WriteTargets, topics: Topics, clock: Clock, tasks: Tasks) -> None:
        self._access = access
        self._targets = targets
        self._topics = topics
        self._clock = clock
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "table_snapshot": in_translated_task(self._tasks, self._snapshot),
            "table_parts": in_translated_task(self._tasks, self._parts),
            "table_status": in_translated_task(self._tasks, self._status),
            "tables": in_translated_task(self._tasks, self._tables),
        }

    async def _snapshot(self, call: Call) -> list[Any]:
        """Takes a snapshot if there is something new; answers with revision, keys, bytes and digest of the newest."""
        place = place_args(call.args)
        self._access.question(NativeMethod.TABLE_SNAPSHOT, call.peer).check(Operation.WRITE, topic(place.topic))
        table = await self._live(place)
        try:
            record = await table.snapshots.take()
        except SnapshotFailed as error:
            raise Unavailable(str(error)) from error
        return _numbers(record)

    async def _parts(self, call: Call) -> None:
        """Streams revision, keys, bytes and digest of the newest snapshot, and then its entries as they are stored.

        A part is read once the client has room for it, so a slow reader keeps none in memory.
        """
        place = place_args(call.args)
        self._access.question(NativeMethod.TABLE_PARTS, call.peer).check(Operation.READ, topic(place.topic))
        newest = (await self._live(place)).snapshots.newest
        record = newest.record
        call.item(_numbers(record))
        if record is None:
            return
        try:
            async with aclosing(newest.ledgers.payloads(record, 1)) as payloads:
                async for payload in payloads:
                    if payload[:1] == ENTRIES:
                        call.item(payload)
                        await call.room()
        except (SnapshotDamaged, LedgerError, MetadataError) as error:
            raise Unavailable(f"the snapshot cannot be read on: {error}") from error

    async def _status(self, call: Call) -> dict[str, Any]:
        """Answers with the state of a partition's table, and if asked with the digest of its entries at a revision."""
        place, with_digest = status_args(call.args)
        self._access.question(NativeMethod.TABLE_STATUS, call.peer).check(Operation.READ, topic(place.topic))
        table = await self._live(place)
        status = table.status()
        if with_digest:
            try:
                revision, digest = await table.snapshots.digest()
            except SnapshotFailed as error:
                raise Unavailable(str(error)) from error
            status.update(revision=revision, keys=digest.keys, digest=digest.digest())
        return status

    async def _tables(self, call: Call) -> list[list[Any]]:
        """At most TABLES_MAX tables in order, after the given name, each with its engine and number of partitions."""
        (after,) = checked(call.args, str)
        question = self._access.question(NativeMethod.TABLES, call.peer)
        found: list[Topic] = []
        async for each in paced(list(self._topics.image), TOPICS_PER_TURN, self._clock):
            if each.name > after and is_table(each.configs) and question.allows(Operation.DESCRIBE, topic(each.name)):
                found.append(each)
                if len(found) == 2 * TABLES_MAX:
                    found = _first(found)
        return [
            [each.name, DISK_ENGINE if is_on_disk(each.configs) else MEMORY_ENGINE, each.partitions]
            for each in _first(found)
        ]

    async def _live(self, place: TablePlace) -> HostedTable:
        """The table of a call, once it is live.

        Raises:
            Unavailable: it is being loaded.
            NativeError: this broker does not lead the partition, or it is no table.
        """
        _, table = hosted_table(self._targets, place)
        answered, reasons = trio.Event(), list[str | None]()

        def ready(reason: str | None) -> None:
            reasons.append(reason)
            answered.set()

        table.reads.when_live(ready)
        await answered.wait()
        if reasons[0] is not None:
            raise Unavailable(reasons[0])
        return table


def _numbers(record: SnapshotRecord | None) -> list[Any]:
    if record is None:
        return [NO_REVISION, 0, 0, b""]
    return [record.revision, record.keys, record.bytes_used, record.digest]


def _first(found: list[Topic]) -> list[Topic]:
    return sorted(found, key=lambda each: each.name)[:TABLES_MAX]
