"""Methods of the native service for the operators of tables: the state of a partition's table, and a snapshot of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from gnomon.broker.authorization.native_access import NativeAccess
from gnomon.broker.authorization.native_table import NativeMethod
from gnomon.broker.authorization.operation import Operation, topic
from gnomon.broker.native.tables.hosted import hosted_table
from gnomon.broker.native.tables.table_arguments import TablePlace, snapshot_args, status_args
from gnomon.broker.native.translated import in_translated_task
from gnomon.broker.native.writes.write_targets import WriteTargets
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.snapshots.table_snapshots import SnapshotFailed
from gnomon.client.errors import Unavailable
from gnomon.log.tables.key_entry import NO_REVISION
from gnomon.runtime.rpc.call import Call, Method
from gnomon.runtime.tasks import Tasks


class TableAdminMethods:
    """The methods for the operators of tables."""

    def __init__(self, access: NativeAccess, targets: WriteTargets, tasks: Tasks) -> None:
        self._access = access
        self._targets = targets
        self._tasks = tasks

    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return {
            "table_snapshot": in_translated_task(self._tasks, self._snapshot),
            "table_status": in_translated_task(self._tasks, self._status),
        }

    async def _snapshot(self, call: Call) -> list[Any]:
        """Takes a snapshot if there is something new; answers with revision, keys, bytes and digest of the newest."""
        place = snapshot_args(call.args)
        self._access.question(NativeMethod.TABLE_SNAPSHOT, call.peer).check(Operation.WRITE, topic(place.topic))
        table = await self._live(place)
        try:
            record = await table.snapshots.take()
        except SnapshotFailed as error:
            raise Unavailable(str(error)) from error
        if record is None:
            return [NO_REVISION, 0, 0, b""]
        return [record.revision, record.keys, record.bytes_used, record.digest]

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

        table.when_live(ready)
        await answered.wait()
        if reasons[0] is not None:
            raise Unavailable(reasons[0])
        return table
