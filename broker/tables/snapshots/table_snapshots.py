"""The snapshots of one partition's table: when one is taken, and how it is copied while the table goes on.

1. A snapshot is taken once the log has grown by as much as the last one is large, at least GROWN_BYTES_MIN; when
   something that retention would drop waits for it; or when somebody asks for one.
2. The entries are read as an image (`table_image`), a page in each turn, and written at no more than
   `table.snapshot_bytes_per_second`. A broker takes one snapshot at a time.
3. The records from the end of the newest snapshot on stay in the log (`NewestSnapshot.kept_from`). As long as the
   record is not known, all do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Any, Final

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import Ledger
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.stretches import bytes_from, last_stretch, stretches
from gnomon.broker.tables.engines.table_image import TableImage
from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.broker.tables.snapshots.newest_snapshot import NewestSnapshot
from gnomon.broker.tables.stored.store_forms import RowDamaged
from gnomon.broker.tables.table_counts import TableCounts
from gnomon.broker.tables.table_log import LogUnreadable, TableLog
from gnomon.broker.tables.table_state import TableState
from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import OperationId
from gnomon.log.tables.snapshot_form import SnapshotRecord, encode_entries, encode_operations
from gnomon.log.tables.table_digest import TableDigest
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock, DiskFailed, WorldError

GROWN_BYTES_MIN: Final = 64 << 20
LOOK_SECONDS: Final = 10.0
"""The size of the log is looked at so often, while records are applied."""
AGAIN_SECONDS: Final = 10.0
PAGE_ENTRIES: Final = 1_000
PAGE_BYTES: Final = 128 << 10


class SnapshotFailed(Exception):
    """A snapshot was not taken; the text says why, and it can be tried again."""


class TableSnapshots:
    """The snapshots of one partition."""

    def __init__(
        self,
        partition: Partition,
        newest: NewestSnapshot,
        log: TableLog,
        live: Callable[[], TableState | None],
        one_at_a_time: trio.Lock,
        bytes_per_second: int,
        counts: TableCounts,
        clock: Clock,
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        """No snapshot is known.

        Args:
            live: the state of the table; None while it is not live.
            one_at_a_time: held while one is taken.
        """
        self._partition = partition
        self.newest = newest
        self._log = log
        self._live = live
        self._one_at_a_time = one_at_a_time
        self._bytes_per_second = bytes_per_second
        self._counts = counts
        self._clock = clock
        self._tasks = tasks
        self._logger = logger
        self._wanted_to = Offset(0)
        """Retention would drop the records before this offset."""
        self._look_at = 0.0
        self._taking = False
        self.failure: str | None = None
        """The reason why the last attempt failed."""

    # --- when one is taken ------------------------------------------------------------------------------------------

    def want(self, end: Offset) -> None:
        """Retention would drop the records before `end`, and waits for a snapshot."""
        self._wanted_to = max(self._wanted_to, end)
        self.look()

    def applied(self) -> None:
        """Something was applied."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self.look()

    def look(self) -> None:
        """Takes a snapshot soon if one is due and the table is live."""
        if not self._taking and self._live() is not None and self._is_due():
            self._taking = True
            self._tasks.start_soon(self._take_in_background)

    def _is_due(self) -> bool:
        if self._wanted_to > self.newest.kept_from:
            return True
        log = self._partition.log
        if log is None:
            return False
        grown_bytes = bytes_from(stretches(self._partition, last_stretch(self._partition, log)), self.newest.kept_from)
        last_bytes = 0 if self.newest.record is None else self.newest.record.bytes_used
        return grown_bytes >= max(last_bytes, GROWN_BYTES_MIN)

    async def _take_in_background(self) -> None:
        try:
            await self.take()
        except SnapshotFailed as error:
            self._logger.error("table_snapshot_failed", reason=str(error), next="it is tried again")
            await self._clock.sleep(AGAIN_SECONDS)
        self._taking = False
        self.look()

    # --- taking one -------------------------------------------------------------------------------------------------

    async def take(self) -> SnapshotRecord | None:
        """Takes a snapshot of the live table; returns the newest one, None for a table without records.

        Raises:
            SnapshotFailed: it could not be taken.
        """
        try:
            async with self._image() as (image, state, end):
                record = self.newest.record if end == self.newest.kept_from else await self._take(image, state, end)
        except SnapshotFailed as error:
            self.failure = str(error)
            self._counts.snapshots_failed += 1
            raise
        self.failure = None
        return record

    async def digest(self) -> tuple[int, TableDigest]:
        """The revision of the live table, and its digest.

        Raises:
            SnapshotFailed: it cannot be read now.
        """
        digest = TableDigest()
        async with self._image() as (image, state, end):
            while not image.is_read:
                digest.add(self._page(image, state))
                await self._clock.sleep(PAUSE_SECONDS)
        return end - 1, digest

    @asynccontextmanager
    async def _image(self) -> AsyncIterator[tuple[TableImage, TableState, Offset]]:
        """An image of the live table, its state and the end of what the image has.

        Raises:
            SnapshotFailed: instead of what is raised in the block, but for bugs and a failed device.
        """
        try:
            async with self._one_at_a_time:
                state = await self._at_rest()
                image, end = state.engine.begin_image(), state.applied
                try:
                    yield image, state, end
                finally:
                    image.close()
        except (LedgerError, MetadataError, RowDamaged, LogUnreadable) as error:
            raise SnapshotFailed(str(error)) from error
        except WorldError as error:
            if isinstance(error, DiskFailed):
                raise
            raise SnapshotFailed(str(error)) from error

    async def _at_rest(self) -> TableState:
        """The state of the live table, while no batch is half applied."""
        state = self._live()
        if state is not None:
            await state.engine.prepare_image()
        while state is not None and state is self._live():
            if not state.is_behind:
                return state
            await self._clock.sleep(PAUSE_SECONDS)
        raise SnapshotFailed("the table is not loaded")

    def _page(self, image: TableImage, state: TableState) -> list[tuple[bytes, bytes]]:
        """The next entries of an image, unless the table has ended."""
        if self._live() is not state:
            raise SnapshotFailed("the table was loaded again, or its partition was released")
        return image.page(PAGE_ENTRIES, PAGE_BYTES)

    async def _take(self, image: TableImage, state: TableState, end: Offset) -> SnapshotRecord | None:
        identity = await self._log.identity_before(end)
        if identity is None:
            raise LogUnreadable("the partition was opened again")
        ledger = await self.newest.ledgers.create(end - 1)
        try:
            digest = await self._copy(image, state, end, ledger)
            image.close()
            await ledger.seal()
        except (SnapshotFailed, RowDamaged, LedgerError, MetadataError, WorldError):
            with suppress(MetadataError, WorldError):
                await self.newest.ledgers.give_up(ledger)
            raise
        record = SnapshotRecord(
            ledger.name, end - 1, identity, digest.keys, digest.bytes_used, digest.digest(), self._clock.wall_ms()
        )
        return await self._name(record)

    async def _copy(self, image: TableImage, state: TableState, end: Offset, ledger: Ledger) -> TableDigest:
        digest, began, written_bytes = TableDigest(), self._clock.monotonic(), 0
        while not image.is_read:
            entries = self._page(image, state)
            if entries:
                digest.add(entries)
                payload = encode_entries(entries)
                await ledger.add((payload,))
                written_bytes += len(payload)
            due = began + written_bytes / self._bytes_per_second
            await self._clock.sleep(max(PAUSE_SECONDS, due - self._clock.monotonic()))
        for operations in _parts(state.operations.below(end)):
            await ledger.add((encode_operations(operations),))
        return digest

    async def _name(self, record: SnapshotRecord) -> SnapshotRecord | None:
        while not await self.newest.ledgers.name(record):
            newest, is_rejected = await self.newest.load(), self.newest.is_rejected
            if newest is not None and newest.revision >= record.revision and not is_rejected:
                return newest  # another broker was faster
            if newest is None and not is_rejected:
                raise SnapshotFailed("the topic was deleted")
        self.newest.taken(record)
        self._counts.snapshots += 1
        self._logger.debug(
            "table_snapshot", revision=record.revision, keys=record.keys, bytes=record.bytes_used, ledger=record.ledger
        )
        return record


def _parts(operations: Iterable[tuple[OperationId, DoneOperation]]) -> Iterable[list[list[Any]]]:
    """The operations in the form of a snapshot, in parts."""
    items = iter(operations)
    while part := list(islice(items, PAGE_ENTRIES)):
        yield [[op.writer, op.number, op.answered_below, *done[:4]] for op, done in part]
