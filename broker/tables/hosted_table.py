"""The table of one partition that this broker leads: loads it, and follows the log. `table_reads` serves its reads.

1. The table is loaded once its log is open, since keys of Kafka's producers expire, too: it begins with a replica of
   this broker, its store or its snapshot (`table_origin`), and goes on from the log.
2. While the table is being loaded, the batches that are given out are kept (`kept_batches`). The table goes live once
   everything before them is applied from the log, and then the kept ones in their order.
3. A table on disk that cannot be flushed falls behind: it gives up what is in flight, and is loaded again from its log
   once there is room. The log goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.log_view import ViewBehind
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import Duplicate
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX, TakesLong
from gnomon.broker.tables.engines.memory_engine import MemoryEngine
from gnomon.broker.tables.kept_batches import KeptBatch, KeptBatches
from gnomon.broker.tables.loaded_table import LoadedTable, TableBehind, TablesShare
from gnomon.broker.tables.snapshots.newest_snapshot import NewestSnapshot
from gnomon.broker.tables.snapshots.snapshot_ledgers import SnapshotLedgers
from gnomon.broker.tables.snapshots.table_snapshots import TableSnapshots
from gnomon.broker.tables.stored.store_forms import RowDamaged
from gnomon.broker.tables.table_expiry import TableExpiry
from gnomon.broker.tables.table_log import RECORDS_AT_ONCE_MAX, LogUnreadable, TableLog
from gnomon.broker.tables.table_origin import TableHome, TableOrigin, TableTooLarge
from gnomon.broker.tables.table_reads import TableReads
from gnomon.broker.tables.table_state import AppliedBatch, TableState
from gnomon.broker.tables.transaction import Transaction, batch_of, decide
from gnomon.broker.tables.watches.table_watches import TableWatches
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import KeyChange, KeyPlacement, TableChanges, produced_changes
from gnomon.log.tables.key_entry import NO_REVISION
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS, in_turns
from gnomon.runtime.world import DiskFailed, WorldError
from gnomon.wire.kafka.batch import BatchHeader, BatchRejected
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode

REFUSAL_SECONDS: Final = 60.0
REFUSAL_ADVICE: Final = "change the producer: docs/tables.md has the rules for records, and the options of clients"
TakeReplica: TypeAlias = Callable[[], Awaitable[LoadedTable | None]]


NOT_LOADED: Final = (
    *(LedgerError, MetadataError, BatchRejected, UnpackedTooLarge),
    *(LogUnreadable, TableBehind, TableTooLarge),
)
"""The errors after which a table is loaded again when it is used."""


class HostedTable:
    """One partition's table; a `HostedView` of its partition."""

    def __init__(
        self,
        partition: Partition,
        placement: KeyPlacement,
        home: TableHome,
        snapshots: SnapshotLedgers,
        replica: TakeReplica,
        share: TablesShare,
        logger: Logger,
    ) -> None:
        """A table that nobody has used.

        Args:
            replica: takes what a replica of this broker has loaded.
        """
        self._partition = partition
        self._placement = placement
        self._replica = replica
        self._share = share
        self._clock, self._tasks = share.clock, share.tasks
        self._logger = logger
        self.log = TableLog(partition, share.batch_thread)
        """The changes that the log has."""
        newest = NewestSnapshot(snapshots, logger)
        self.snapshots = TableSnapshots(
            partition,
            newest,
            self.log,
            lambda: self.state if self._live else None,
            share.one_snapshot,
            share.settings.snapshot_bytes_per_second,
            share.counts,
            share.clock,
            share.tasks,
            logger,
        )
        """The snapshots of the table."""
        self._origin = TableOrigin(home, self.log, newest, share.clock, logger)
        self._nothing = TableState(MemoryEngine(home.memory), Offset(0))
        self._nothing.news_at = share.clock.monotonic()
        self._table: LoadedTable | None = None
        """None before the loading begins."""
        self._live = False
        self._loading = False
        self._used = False
        self._kept = KeptBatches()
        self._applying = False
        self.reads = TableReads(partition, self, share.paced, share.clock, share.timers)
        """The calls that read, or wait until the table is live."""
        self.watches = TableWatches(share.watches_memory, share.clock, share.tasks)
        """The watches of clients."""
        self._next_refusal_logged = float("-inf")
        """The monotonic second from which on a refused batch is logged."""
        self._expiry = TableExpiry(
            partition,
            lambda: self.state.engine if self._live else None,
            self._load_soon,
            share.clock,
            share.timers,
        )

    @property
    def state(self) -> TableState:
        """The state as far as it is applied; an empty one before the loading begins."""
        return self._nothing if self._table is None else self._table.state

    @property
    def is_live(self) -> bool:
        """Whether the table has applied its log and follows the appends."""
        return self._live

    @property
    def is_used(self) -> bool:
        """Whether somebody uses the table, and its partition is led here."""
        return self._used

    @property
    def is_behind(self) -> bool:
        """Whether the table is in use and not live."""
        return self._used and not self._live

    @property
    def warning(self) -> str | None:
        """The reason why the table is behind, or why its log cannot be trimmed; None if there is none."""
        flushes = None if self._table is None else self._table.flushes
        failure = None if flushes is None else flushes.failure
        return failure or self.snapshots.failure

    # --- the view of the log --------------------------------------------------------------------------------------

    def opened(self, log: PartitionLog) -> None:
        """See `HostedView`."""
        self._stop_following()
        self.watches.wake()
        self.use()

    def ended(self) -> None:
        """See `HostedView`."""
        self._stop_following()
        self.watches.end()
        self._used = False
        self._let_go()
        self.reads.applied()
        self._expiry.end()

    @property
    def kept_from(self) -> Offset:
        """See `HostedView`."""
        return self.snapshots.newest.kept_from

    def want_trim(self, end: Offset) -> None:
        """See `HostedView`: a snapshot is taken soon, for which the table is loaded if nobody has used it."""
        self.snapshots.want(end)
        if not self._live:
            self.use()

    def changes_at_once(self, view: memoryview, batch: BatchHeader) -> TableChanges:
        """See `LogView`."""
        records_at_once = RECORDS_AT_ONCE_MAX if self._table is None else self._table.records_at_once
        if batch.records_count > records_at_once or len(view) > AT_ONCE_BYTES_MAX:
            raise TakesLong
        try:
            changes = produced_changes(view, batch, AT_ONCE_BYTES_MAX, self._placement)
        except UnpackedTooLarge:
            raise TakesLong from None
        self._check_memory(changes.changes)
        return changes

    def changes_in_thread(self, view: memoryview, batch: BatchHeader, bytes_max: int) -> TableChanges:
        """See `LogView`."""
        changes = produced_changes(view, batch, bytes_max, self._placement)
        self._check_memory(changes.changes)
        return changes

    def refused(self, reason: str) -> None:
        """See `LogView`: it is logged at most once in REFUSAL_SECONDS, since many clients show only an error code."""
        self._share.counts.batches_refused += 1
        now = self._clock.monotonic()
        if now >= self._next_refusal_logged:
            self._next_refusal_logged = now + REFUSAL_SECONDS
            self._logger.warning("batch_refused", reason=reason, next=REFUSAL_ADVICE)

    async def prepare(self, changes: TableChanges) -> None:
        """See `LogView`. Where the log sets the times of records, `give_out` computes the entries again."""
        if self._live and self._table is not None:
            try:
                await self._table.prepare(changes, -1)
            except RowDamaged as error:
                self.discard(error)

    def _check_memory(self, changes: Sequence[KeyChange]) -> None:
        """Checks that the puts among the changes fit into the memory of all tables.

        Raises:
            BatchRejected: they do not.
        """
        more_bytes = sum(len(change.key) + len(change.value) for change in changes if change.value is not None)
        refusal = self.state.engine.refusal(more_bytes) if more_bytes else None
        if refusal is not None:
            raise BatchRejected(ErrorCode.POLICY_VIOLATION, refusal)

    def decide(
        self, operation: Transaction, base_offset: Offset, now_ms: int
    ) -> tuple[bytes, TableChanges] | Duplicate | None:
        """See `LogView`."""
        if not self._live:
            raise ViewBehind(self.progress())
        state, numbered = self.state, operation.id
        if numbered is not None:
            done = state.operations.find(numbered)
            if done is not None:
                operation.succeeded, operation.answers = done.succeeded, done.answers
                return Duplicate(done.base_offset, done.next_offset, done.timestamp_ms)
            if state.operations.is_answered(numbered):
                text = f"operation {numbered.number} was answered before: this late copy of it is not done again"
                raise BatchRejected(ErrorCode.INVALID_RECORD, text)
            if not state.operations.has_room(numbered, self._clock.monotonic()):
                raise ViewBehind("the table keeps too many operations of clients: try again in two minutes")
        try:
            entries = state.next_entries()
            changes = decide(operation, entries, now_ms)
        except RowDamaged as error:
            self.discard(error)
            raise ViewBehind(str(error)) from error
        if operation.comparisons and not operation.succeeded:
            self._share.counts.comparisons_lost += 1
        if not changes:
            return None
        self._check_memory(changes)
        state.prepared(changes, entries)
        if numbered is not None and not operation.succeeded:
            numbered = numbered._replace(succeeded=False)
        return batch_of(changes, numbered, now_ms), TableChanges(changes, numbered, operation.answers)

    def give_out(self, changes: TableChanges, base_offset: Offset, append_time_ms: int) -> None:
        """See `LogView`."""
        if self._live:
            try:
                self.state.give_out(changes, base_offset, append_time_ms)
            except RowDamaged as error:
                self.discard(error)
        elif self._kept.first is not None:
            self._kept.add(KeptBatch(base_offset, changes, append_time_ms))
            if self._kept.are_too_large:
                self._stop_following()

    def durable(self, next_offset: Offset) -> None:
        """See `LogView`."""
        if not self._live:
            self.watches.wake()
            return
        try:
            self._applied(self.state.durable(next_offset))
        except RowDamaged as error:
            self.discard(error)
        self.state.news_at = self._clock.monotonic()
        if self.state.is_behind and not self._applying:
            self._applying = True
            self._tasks.start_soon(self._apply_rest)

    def _applied(self, batches: Sequence[AppliedBatch]) -> None:
        for batch in batches:
            self.watches.applied(batch)
        if self.state.is_behind:
            return
        self._expiry.look()
        self.reads.applied()
        self.snapshots.applied()
        flushes = None if self._table is None else self._table.flushes
        if flushes is not None:
            flushes.applied()
            if flushes.is_too_far:
                self._logger.warning("table_behind", reason=flushes.refusal(), next="it is loaded again when used")
                self._stop_following()

    async def _apply_rest(self) -> None:
        """Applies a batch of many records in several turns."""
        while self.state.is_behind:
            await self._clock.sleep(PAUSE_SECONDS)
            try:
                self._applied(self.state.apply())
            except RowDamaged as error:
                self.discard(error)
        self._applying = False

    def discard(self, error: RowDamaged) -> None:
        """The stored table is damaged: it is loaded again, and begins with nothing."""
        self._origin.discard(error)
        self._let_go()
        self._load_soon()

    def _let_go(self) -> None:
        """Forgets the state: the next loading begins with its origin."""
        self._stop_following()
        table, self._table = self._table, None
        if table is not None:
            self._tasks.start_soon(in_turns, table.end(), self._clock)

    def lost(self) -> None:
        """See `LogView`. If another broker has claimed the log, the watches learn it in their next turn."""
        self._stop_following()
        self.watches.wake()

    def _stop_following(self) -> None:
        """The batches that are not durable are lost, or they are read from the log later."""
        self._live = False
        self.state.lost()
        if self._kept:
            self._tasks.start_soon(in_turns, self._kept.end(), self._clock)
        else:
            self._kept.end()

    # --- loading --------------------------------------------------------------------------------------------------

    def use(self) -> None:
        """The table is used from now on: it is loaded unless it is live."""
        self._used = True
        if not self._live:
            self._load_soon()

    async def look_up(self, keys: Sequence[bytes]) -> None:
        """See `LoadedTable.look_up`."""
        if self._table is not None:
            try:
                await self._table.look_up(keys)
            except RowDamaged as error:
                self.discard(error)

    def _load_soon(self) -> None:
        if not self._loading:
            self._loading = True
            self._tasks.start_soon(self._load)

    async def _load(self) -> None:
        log = await self._partition.opened_to_write()
        if log is None or not self._partition.goes_on(log):
            self._loading = False
            self.reads.loaded("the partition could not be opened for writing; it is tried again soon")
            return
        reason, first = None, Offset(0)
        try:
            await self._begin(log)
            first = self.state.applied
            reason = self._interruption(log)
            while reason is None and not await self._caught_up(log):
                reason = self._interruption(log)
        except RowDamaged as error:
            reason = str(error)
            self._origin.discard(error)
            self._let_go()
        except NOT_LOADED as error:
            reason = str(error)
        except WorldError as error:
            if isinstance(error, DiskFailed):
                raise
            reason = str(error)
        if reason is not None:
            self._logger.error("table_not_loaded", reason=reason, next="it is tried again when it is used")
        self._loading = False
        if self._live:
            self._logger.debug(
                "table_loaded", first=first, revision=self.state.applied - 1, keys=len(self.state.engine)
            )
            self._expiry.look()
            self.snapshots.look()
        self.reads.loaded(None if self._live else reason)
        if self.reads.are_waiting:
            self._load_soon()

    def _interruption(self, log: PartitionLog) -> str | None:
        """The reason why the loading cannot go on; None if it can."""
        if self._table is None:
            return "the table was let go while it was loaded"
        return None if self._partition.goes_on(log) else "the partition was opened again while its table was loaded"

    async def _begin(self, log: PartitionLog) -> None:
        if self.state.applied < log.start_offset:  # another leader has trimmed what this state lacks
            self._let_go()
        if self._table is not None:
            return
        table = await self._taken_over(log)
        if table is None:
            table = LoadedTable(*await self._origin.begin(log), self.log, self._share, self._logger)
        if self._used:
            self._table = table
        else:  # it was released meanwhile
            await in_turns(table.end(), self._clock)

    async def _taken_over(self, log: PartitionLog) -> LoadedTable | None:
        """The table that a replica of this broker has loaded, if it fits to the log."""
        table = await self._replica()
        if table is None:
            return None
        if not log.start_offset <= table.state.applied <= log.high_watermark:
            await in_turns(table.end(), self._clock)
            return None
        await self.snapshots.newest.load()
        table.follow(self.log)
        self._logger.debug("table_taken_over", applied=table.state.applied)
        return table

    async def _caught_up(self, log: PartitionLog) -> bool:
        """Applies some batches, from the log or from those that were kept; returns whether the table is live."""
        table = self._table
        if table is None:
            return False
        state = table.state
        await table.make_room()
        first = self._kept.begin(log.next_offset)
        end = min(log.high_watermark, first)
        if state.applied < end:
            await table.read_on(log, end)
        elif state.applied < first:
            await self._clock.sleep(PAUSE_SECONDS)  # batches that were in flight when the loading began
        else:
            await self._apply_kept(table, log)
            follows = self._kept.first is not None  # otherwise too much came meanwhile, and was not kept
            if follows and not self._kept and not table.is_over:
                state.durable(min(log.high_watermark, state.given_out))
                self._live = not state.is_behind
        self.reads.applied()
        return self._live

    async def _apply_kept(self, table: LoadedTable, log: PartitionLog) -> None:
        """Applies some of the batches that were kept; those that are not durable are given out again."""
        state, records = table.state, 0
        while (kept := self._kept.oldest) is not None and records <= RECORDS_AT_ONCE_MAX and not state.is_behind:
            await table.prepare(kept.changes, kept.append_time_ms)
            if table.is_over or self._kept.oldest is not kept:
                return  # the table was let go, or follows no more
            self._kept.remove_oldest()
            state.give_out(kept.changes, kept.base_offset, kept.append_time_ms)
            state.durable(min(log.high_watermark, state.given_out))
            records += len(kept.changes.changes)
        if self._kept or state.is_behind:
            await table.apply_all()

    @property
    def has_log(self) -> bool:
        """Whether the log is readable: after another broker has claimed it, it is not."""
        return self._partition.log is not None

    def progress(self) -> str:
        """A text that says how far the loading is."""
        log = self._partition.log
        end = self.state.applied if log is None else log.high_watermark
        return f"the table is being loaded: applied to offset {self.state.applied} of {end}"

    def status(self) -> dict[str, Any]:
        """The fields of a `TableStatus` but the partition."""
        state, log, record = self.state, self._partition.log, self.snapshots.newest.record
        flushes = None if self._table is None else self._table.flushes
        return {
            "revision": state.applied - 1,
            "keys": len(state.engine),
            "bytes_used": state.engine.bytes_used,
            "log_start": 0 if log is None else log.start_offset,
            "log_end": 0 if log is None else log.high_watermark,
            "snapshot_revision": NO_REVISION if record is None else record.revision,
            "snapshot_created_ms": -1 if record is None else record.created_ms,
            "snapshot_failure": self.snapshots.failure,
            "unflushed_bytes": 0 if flushes is None else flushes.unflushed_bytes,
            "watches": len(self.watches),
        }
