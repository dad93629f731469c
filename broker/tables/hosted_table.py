"""The table of one partition that this broker leads: loads it from the log, follows the log, and serves its reads.

1. The table is loaded on the first use. A partition whose table nobody uses pays for the checks of its batches alone.
2. While the table is being loaded, the batches that are given out are kept (`_collected`). The table goes live once
   everything before them is applied from the log, and then the kept ones in their order.
3. Nothing is decided or read before the table is live. Requests wait for that for at most WAIT_SECONDS, then they are
   refused with the state of the loading, and can be repeated. Reads share a part of each turn (`paced_calls`).
4. A read is answered after the metadata service has confirmed that no other broker claimed the log since the read
   arrived. So it sees every write that was acknowledged before. Reads that arrive together share a confirmation.
5. The leader deletes a key after its time to live, by a record, unless it was put again. Until that is durable the
   value is there for everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import LocalViews, read_from_memory
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.log_view import ViewBehind
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.producers import Duplicate
from gnomon.broker.partition.unpacking.batch_client import BrokerItself
from gnomon.broker.partition.unpacking.batch_thread import BatchThread
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX, RECODED_BYTES_MAX, TakesLong
from gnomon.broker.tables.memory_engine import MemoryEngine
from gnomon.broker.tables.paced_calls import PacedCalls
from gnomon.broker.tables.table_state import AppliedBatch, TableState
from gnomon.broker.tables.table_watches import TableWatches
from gnomon.broker.tables.tables_memory import TablesMemory
from gnomon.broker.tables.transaction import ExpireKey, Transaction, batch_of, decide
from gnomon.client.errors import Compacted
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import KeyChange, KeyPlacement, TableChanges, changes_of, memory_bytes, produced_changes
from gnomon.log.tables.key_entry import revision_of
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.batch import BatchHeader, BatchRejected, parse_batch
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode

WAIT_SECONDS: Final = 1.0
READ_BYTES: Final = 1 << 20
WATCHED_BYTES: Final = 64 << 10
"""A watch that follows the log reads this much at a time."""
RECORDS_AT_ONCE_MAX: Final = 500
"""Reading and applying as many takes some 2 ms."""
COLLECTED_BYTES_MAX: Final = 64 << 20
"""The batches that are kept during the loading; beyond it, the table reads them from the log later."""
EXPIRIES_AT_ONCE: Final = 500
EXPIRY_SECONDS_MAX: Final = 0.5
"""The clock is read this often while a key will expire, as it may be set."""
EXPIRY_AGAIN_SECONDS: Final = 0.25
"""The pause after no expired key could be deleted."""

NOT_CONFIRMED: Final = "this broker does not know whether it still leads the partition"

Look: TypeAlias = Callable[[TableState], None]
Refuse: TypeAlias = Callable[[str], None]
Ready: TypeAlias = Callable[[str | None], None]
"""Called with None once the table is live, or with the reason why it is not."""


class LogUnreadable(Exception):
    """The log of a table cannot be read at some offset."""


class HostedTable:
    """One partition's table; a `HostedView` of its partition."""

    def __init__(
        self,
        partition: Partition,
        placement: KeyPlacement,
        memory: TablesMemory,
        batch_thread: BatchThread,
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        logger: Logger,
    ) -> None:
        """A table that nobody has used."""
        self._partition = partition
        self._placement = placement
        self._memory = memory
        self._batch_thread = batch_thread
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._logger = logger
        self._state = TableState(MemoryEngine(memory), Offset(0))
        self._live = False
        self._loading = False
        self._used = False
        self._waiting: list[Ready] = []
        self._collected: deque[tuple[Offset, TableChanges, int]] = deque()
        self._collected_bytes = 0
        self._applying = False
        self._paced = PacedCalls(clock, tasks)
        """Reads, and requests that waited for the loading."""
        self._readers: list[tuple[Look, Refuse]] = []
        """Confirmed reads that wait until a batch is applied as a whole."""
        self._collected_from: Offset | None = None
        """Everything that is given out from this offset on is in `_collected`; None while nothing is collected."""
        self.watches = TableWatches(clock, tasks)
        """The watches of clients."""
        self._expiry_timer: Timer | None = None
        self._expiring = False

    # --- the view of the log --------------------------------------------------------------------------------------

    def opened(self, log: PartitionLog) -> None:
        """See `HostedView`."""
        self._stop_following()
        self.watches.wake()
        if self._used:
            self._load_soon()

    def ended(self) -> None:
        """See `HostedView`."""
        self._stop_following()
        self.watches.end()
        self._used = False
        self._state.engine.clear()
        self._state = TableState(MemoryEngine(self._memory), Offset(0))
        self._answer_readers()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()

    @property
    def kept_from(self) -> Offset:
        """See `HostedView`: without snapshots a table needs the whole log."""
        return Offset(0)

    def changes_at_once(self, view: memoryview, batch: BatchHeader) -> TableChanges:
        """See `LogView`."""
        if batch.records_count > RECORDS_AT_ONCE_MAX or len(view) > AT_ONCE_BYTES_MAX:
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

    async def prepare(self, changes: TableChanges) -> None:
        """See `LogView`. Where the log sets the times of records, `give_out` computes the entries again."""
        if self._live:
            await self._prepare(changes, -1)

    async def _prepare(self, changes: TableChanges, append_time_ms: int) -> None:
        if len(changes.changes) > RECORDS_AT_ONCE_MAX:
            for _ in self._state.prepare(changes, append_time_ms):
                await self._clock.sleep(PAUSE_SECONDS)

    def _check_memory(self, changes: Sequence[KeyChange]) -> None:
        """Checks that the puts among the changes fit into the memory of all tables.

        Raises:
            BatchRejected: they do not.
        """
        more_bytes = sum(len(change.key) + len(change.value) for change in changes if change.value is not None)
        refusal = self._memory.refusal(more_bytes) if more_bytes else None
        if refusal is not None:
            raise BatchRejected(ErrorCode.POLICY_VIOLATION, refusal)

    def decide(
        self, operation: Transaction, base_offset: Offset, now_ms: int
    ) -> tuple[bytes, TableChanges] | Duplicate | None:
        """See `LogView`."""
        if not self._live:
            raise ViewBehind(self._progress())
        state, numbered = self._state, operation.id
        if numbered is not None:
            done = state.operations.find(numbered)
            if done is not None:
                operation.succeeded, operation.answers = done.succeeded, done.answers
                return Duplicate(done.base_offset, done.next_offset, done.timestamp_ms)
            if state.operations.is_answered(numbered):
                text = f"operation {numbered.number} was answered before: this late copy of it is not done again"
                raise BatchRejected(ErrorCode.INVALID_RECORD, text)
            if not state.operations.has_room(numbered, now_ms):
                raise ViewBehind("the table keeps too many operations of clients: try again in two minutes")
        changes = decide(operation, state.newest, base_offset, now_ms)
        if not changes:
            return None
        self._check_memory(changes)
        if numbered is not None:
            numbered = numbered._replace(succeeded=operation.succeeded)
        return batch_of(changes, numbered, now_ms), TableChanges(changes, numbered, operation.answers)

    def give_out(self, changes: TableChanges, base_offset: Offset, append_time_ms: int) -> None:
        """See `LogView`."""
        if self._live:
            self._state.give_out(changes, base_offset, append_time_ms)
        elif self._collected_from is not None:
            self._collected.append((base_offset, changes, append_time_ms))
            self._collected_bytes += memory_bytes(changes.changes)
            if self._collected_bytes > COLLECTED_BYTES_MAX:
                self._stop_following()

    def durable(self, next_offset: Offset) -> None:
        """See `LogView`."""
        if not self._live:
            self.watches.wake()
            return
        self._applied(self._state.durable(next_offset))
        if self._state.is_behind and not self._applying:
            self._applying = True
            self._tasks.start_soon(self._apply_rest)

    def _applied(self, batches: Sequence[AppliedBatch]) -> None:
        for batch in batches:
            self.watches.applied(batch)
        if not self._state.is_behind:
            self._expire_in_time()
            self._answer_readers()

    async def _apply_rest(self) -> None:
        """Applies a batch of many records in several turns."""
        while self._state.is_behind:
            await self._clock.sleep(PAUSE_SECONDS)
            self._applied(self._state.apply())
        self._applying = False

    def _answer_readers(self) -> None:
        readers, self._readers = self._readers, []
        for look, refuse in readers:
            self._look(look, refuse)

    def lost(self) -> None:
        """See `LogView`."""
        self._stop_following()

    def _stop_following(self) -> None:
        """The batches that are not durable are lost, or they are read from the log later."""
        self._live = False
        self._state.lost()
        self._collected.clear()
        self._collected_bytes = 0
        self._collected_from = None

    # --- loading --------------------------------------------------------------------------------------------------

    def when_live(self, ready: Ready, *, takes_long: bool = False) -> None:
        """Calls `ready` once the table is live, or is not within WAIT_SECONDS; if it takes long, in a later turn."""
        self._used = True
        if self._live:
            run = self._paced.run_later if takes_long else self._paced.run
            run(partial(ready, None))
            return
        if not self._waiting:
            self._timers.call_at(self._clock.monotonic() + WAIT_SECONDS, self._end_waiting)
        self._waiting.append(ready)
        self._load_soon()

    def _end_waiting(self) -> None:
        """Refuses the requests that have waited for WAIT_SECONDS, and those that came after them."""
        if self._waiting:
            self._answer_waiting(self._progress())

    def _load_soon(self) -> None:
        if not self._loading:
            self._loading = True
            self._tasks.start_soon(self._load)

    async def _load(self) -> None:
        log = await self._partition.opened_to_write()
        if log is None or not self._partition.goes_on(log):
            self._loading = False
            self._answer_waiting("the partition could not be opened for writing; it is tried again soon")
            return
        reason = None
        try:
            while reason is None and not await self._caught_up(log):
                if not self._partition.goes_on(log):
                    reason = "the partition was opened again while its table was loaded"
        except (LedgerError, MetadataError, WorldError, BatchRejected, UnpackedTooLarge, LogUnreadable) as error:
            self._logger.error("table_not_loaded", reason=str(error), next="it is tried again when it is used")
            reason = str(error)
        self._loading = False
        if self._live:
            self._logger.debug("table_loaded", revision=self._state.applied - 1, keys=len(self._state.engine))
            self._expire_in_time()
        self._answer_waiting(None if self._live else reason)
        if self._waiting:
            self._load_soon()

    async def _caught_up(self, log: PartitionLog) -> bool:
        """Applies some batches, from the log or from those that were kept; returns whether the table is live."""
        if self._collected_from is None:
            self._collected_from = log.next_offset
        end = min(log.high_watermark, self._collected_from)
        if self._state.applied < end:
            await self._read_on(log, end)
        elif self._state.applied < self._collected_from:
            await self._clock.sleep(PAUSE_SECONDS)  # batches that were in flight when the loading began
        else:
            await self._apply_collected(log)
            if not self._collected:
                self._state.durable(min(log.high_watermark, self._state.given_out))
                self._live = not self._state.is_behind
        return self._live

    async def _read_on(self, log: PartitionLog, end: Offset) -> None:
        """Applies the next durable batches below `end` from the log."""
        for batch in await self._read_batches(log, self._state.applied):
            header = parse_batch(memoryview(batch))
            if header.base_offset >= end:
                return
            changes = await self._changes_of(batch, header)
            append_time_ms = header.max_timestamp if header.is_log_append_time else -1
            await self._prepare(changes, append_time_ms)
            self._state.give_out(changes, Offset(header.base_offset), append_time_ms)
            self._state.durable(Offset(header.next_offset))
            await self._apply_all()

    async def _apply_collected(self, log: PartitionLog) -> None:
        """Applies some of the batches that were kept; those that are not durable are given out again."""
        state, records = self._state, 0
        while self._collected and records <= RECORDS_AT_ONCE_MAX and not state.is_behind:
            base_offset, changes, append_time_ms = self._collected.popleft()
            self._collected_bytes -= memory_bytes(changes.changes)
            state.give_out(changes, base_offset, append_time_ms)
            state.durable(min(log.high_watermark, state.given_out))
            records += len(changes.changes)
        if self._collected or state.is_behind:
            await self._apply_all()

    async def _apply_all(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._state.is_behind:
            self._state.apply()
            await self._clock.sleep(PAUSE_SECONDS)

    async def _changes_of(self, batch: bytes, header: BatchHeader) -> TableChanges:
        view = memoryview(batch)
        if header.records_count <= RECORDS_AT_ONCE_MAX and len(batch) <= AT_ONCE_BYTES_MAX:
            try:
                return changes_of(view, header, AT_ONCE_BYTES_MAX)
            except UnpackedTooLarge:
                pass
        thread = self._batch_thread.work_for_broker
        return await thread(view, RECODED_BYTES_MAX, lambda batch, room: changes_of(batch, header, room))

    async def _read_batches(self, log: PartitionLog, offset: Offset, bytes_max: int = READ_BYTES) -> list[bytes]:
        """The durable batches from the one at `offset` on; none if the partition was opened again.

        Raises:
            LogUnreadable, LedgerError: they cannot be read.
        """

        def read() -> list[bytes]:
            if self._partition.log is not log:
                return []
            with LocalViews() as views:
                chunks, _, code = self._partition.read(offset, bytes_max, True, views)
                if code != ErrorCode.NONE:
                    raise LogUnreadable(f"the log could not be read at offset {offset}: {code.name}")
                return [bytes(chunk) for chunk in chunks]

        return await read_from_memory(read)

    async def changes_from(self, offset: Offset) -> list[AppliedBatch]:
        """A few durable batches from the one at an offset on; none if there are none yet.

        Raises:
            Compacted: the log begins after the offset.
            LogUnreadable, LedgerError: it cannot be read.
        """
        log = self._partition.log
        if log is None or offset >= log.high_watermark:
            return []
        if offset < log.start_offset:
            raise Compacted(log.start_offset)
        found = []
        for batch in await self._read_batches(log, offset, WATCHED_BYTES):
            header = parse_batch(memoryview(batch))
            found.append(AppliedBatch(Offset(header.base_offset), (await self._changes_of(batch, header)).changes))
        return found

    async def changes_at(self, base_offset: int) -> list[KeyChange]:
        """The changes of the durable batch at an offset.

        Raises:
            LogUnreadable, LedgerError: it cannot be read.
        """
        log = self._partition.log
        batches = [] if log is None else await self._read_batches(log, Offset(base_offset), 1)
        if not batches:
            raise LogUnreadable("the partition was opened again")
        return list((await self._changes_of(batches[0], parse_batch(memoryview(batches[0])))).changes)

    def _progress(self) -> str:
        log = self._partition.log
        end = self._state.applied if log is None else log.high_watermark
        return f"the table is being loaded: applied to offset {self._state.applied} of {end}"

    def _answer_waiting(self, reason: str | None) -> None:
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            self._paced.run(partial(ready, reason))

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, look: Look, refuse: Refuse, *, stale: bool = False) -> None:
        """Calls `look` with the state once that is as new as the call, or `refuse` with the reason why it is not.

        Args:
            stale: whether the state may be older, as that of a broker that was replaced.
        """
        self.when_live(partial(self._read, look, refuse, stale))

    def _read(self, look: Look, refuse: Refuse, stale: bool, reason: str | None) -> None:
        if reason is not None or self._partition.log is None:
            refuse(reason or self._progress())
        elif stale:
            self._look(look, refuse)
        else:
            self._partition.confirm(partial(self._confirmed, look, refuse))

    def _confirmed(self, look: Look, refuse: Refuse, certain: bool) -> None:
        if certain and self._live:
            self._look(look, refuse)
        else:
            refuse(NOT_CONFIRMED)

    def _look(self, look: Look, refuse: Refuse) -> None:
        """Has a read look at the state, in this turn or soon, once no batch is half applied."""
        self._paced.run(partial(self._look_now, look, refuse))

    def _look_now(self, look: Look, refuse: Refuse) -> None:
        if not self._used:
            refuse(NOT_CONFIRMED)
        elif self._state.is_behind:
            self._readers.append((look, refuse))
        else:
            look(self._state)

    # --- expiry ---------------------------------------------------------------------------------------------------

    def _expire_in_time(self) -> None:
        expiry_ms = self._state.engine.next_expiry_ms
        if expiry_ms is None or self._expiring:
            return
        seconds = min(max(0, expiry_ms - self._clock.wall_ms()) / 1_000, EXPIRY_SECONDS_MAX)
        deadline = self._clock.monotonic() + seconds
        timer = self._expiry_timer
        if timer is not None and timer.callback is not None:
            if timer.deadline <= deadline:
                return
            timer.cancel()
        self._expiry_timer = self._timers.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Deletes the keys whose time to live is over."""
        now_ms = self._clock.wall_ms()
        engine = self._state.engine
        keys = engine.expiring(now_ms, EXPIRIES_AT_ONCE) if self._live else []
        if not keys:
            if self._live:
                self._expire_in_time()
            return
        self._expiring = True
        due = [ExpireKey(key, revision_of(engine.get(key) or b"")) for key in keys]
        transaction = Transaction((), due)
        done = _Expiry(partial(self._expired, transaction))
        self._partition.append(memoryview(b""), done, None, Terms(operation=transaction))

    def _expired(self, transaction: Transaction, outcome: Produced) -> None:
        """Goes on with the next keys; after a pause if none was deleted, since they were put again or that failed."""
        deleted = outcome.error == ErrorCode.NONE and any(each >= 0 for each in transaction.answers or ())
        pause_seconds = 0.0 if deleted else EXPIRY_AGAIN_SECONDS
        self._expiry_timer = self._timers.call_at(self._clock.monotonic() + pause_seconds, self._expire_more)

    def _expire_more(self) -> None:
        self._expiring = False
        if self._live:
            self._expire_in_time()


class _Expiry(BrokerItself):
    """The callback of an append that deletes expired keys."""

    def __init__(self, done: Callable[[Produced], None]) -> None:
        self._done = done

    def client_of(self, slot: object) -> BrokerItself:
        """See `AppendCallback.client_of`."""
        return self

    def appended(self, slot: object, outcome: Produced) -> None:
        """See `AppendCallback.appended`."""
        self._done(outcome)
