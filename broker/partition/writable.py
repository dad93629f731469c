"""The write side of a partition: decides and writes appends, and rolls segments (see also `partition`).

1. An append is written only in a writable state (`state` invariant 3). Appends that have to wait are resumed in their
   order of arrival, some 2 ms of them in each turn.
2. When an append fails, all later appends in flight fail too, and the chain is opened again for the next append. Until
   then the durable log stays readable, except after a fence.
3. After a fence the log is hidden until the chain is claimed again, because another broker may have continued it. The
   same happens when the metadata service reports a newer claim and no entry is in flight, as it may to a reader at the
   end, a deletion of records or retention; an entry in flight would be refused by the bookies.
4. A roll begins only if the metadata service answers. Otherwise the segment grows beyond its size, by at most
   OVERRUN_BYTES_MAX. When the outcome of a roll is unknown, nothing more is appended to that ledger, because the next
   segment may exist.
5. In a cluster of several brokers, three answers are given only after the metadata service has confirmed that no newer
   claim exists (`read_index`): to a producer that a batch is missing, to a writer that the log does not reach as far as
   it expects, and to a reader that an offset does not exist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from gnomon.bookie.errors import (
    Fenced,
    LedgerClosed,
    LedgerError,
    LedgerExists,
    LedgerFenced,
    LedgerSealed,
    NoSuchLedger,
)
from gnomon.broker.partition.appends import WITHOUT_MEMORY, AppendCallback, Appends, InFlight, Produced
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.conditions.marks import BatchMarks
from gnomon.broker.partition.conditions.terms import Terms, TermsRefused
from gnomon.broker.partition.followers import HostedView, Tail
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.log_view import ViewBehind, ViewOperation
from gnomon.broker.partition.producers import AwaitedBatches, Duplicate
from gnomon.broker.partition.read_index import ReadIndex
from gnomon.broker.partition.readable import REOPEN_SECONDS, Readable
from gnomon.broker.partition.state import (
    FINAL,
    OPENING_STATES,
    ROLLING_STATES,
    TABLE,
    UNOPENED,
    WRITABLE,
    PartitionEvent,
    PartitionState,
)
from gnomon.broker.partition.unpacking.batch_thread import BatchThread, ClientGone
from gnomon.broker.partition.unpacking.recoding import RECODED_BYTES_MAX, TakesLong, too_large
from gnomon.broker.partition.unpacking.unpacked import unpacked
from gnomon.log.entry import NO_OFFSET, Offset
from gnomon.log.segment import Segment
from gnomon.metadata.client import MetadataError, MetadataFull, MetadataUnavailable
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.runtime.signal import Signal
from gnomon.runtime.state_table import after
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.batch import BatchRejected, parse_batch
from gnomon.wire.kafka.compression import UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode

ANSWER_SECONDS = 1.0
"""Time for the metadata service to answer before a roll is postponed; appends wait meanwhile."""
ROLL_RETRY_SECONDS = 5.0
"""Time after a failed request until the metadata service is asked again, for a postponed roll."""


ADVICE = "it is opened again when it is used; `gnomon ledger read` shows what is there, a copy replaces damage"
"""Advice for a log that could not be opened or written."""
DELETED = Produced.refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
RELEASED = Produced.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the partition from now on")
_NOT_ENOUGH_COPIES = Produced.refusal(
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "the topic's min.insync.replicas asks for more copies than a record has when it is acknowledged: see its"
    " replication factor, broker_service.ack_quorum, and broker.acknowledge_with_fewer_copies for tests",
)
_NOT_CONFIRMED = Produced.refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads the partition"
)
_FENCED = (Fenced, LedgerFenced, NoSuchLedger)
"""Another broker has claimed the chain, and may have deleted the ledger since."""
_LEADERSHIP_LOST = (Fenced, LedgerFenced, LedgerSealed, LedgerExists, NoSuchLedger, LedgerClosed, MetadataError)
"""Another broker has claimed, continued or deleted the chain, or this is not known."""


class Writable(Readable):
    """One partition to which this broker appends."""

    log: PartitionLog | None

    def __init__(
        self,
        chain: Chain,
        settings: PartitionSettings,
        clock: Clock,
        tasks: Tasks,
        advanced: Callable[[Readable], None],
        turn_ended: Callable[[], None],
        logger: Logger,
        awaited: AwaitedBatches,
        policy: LeaderPolicy,
        batch_thread: BatchThread,
    ) -> None:
        super().__init__(logger, advanced, turn_ended, policy)
        self._batch_thread = batch_thread
        self._recoding = False
        """Whether a batch is being recompressed; later ones wait for it."""
        self._resumes_later = False
        """Whether appends that waited are resumed in the next turn; later ones wait for them."""
        self._chain = chain
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._state = PartitionState.CLOSED
        self._reopen_at = float("-inf")
        """The monotonic second before which the chain is not opened again."""
        self._logged: str | None = None
        """The problem that was logged last, until the partition opens."""
        self._appends = Appends(self._note_refused)
        self._awaited = awaited
        self._maintenance = trio.Lock()
        """Held while the chain is opened, rolled or trimmed."""
        self._opened = Signal()
        """Set when the opening that is under way ends."""
        self._tail: Tail | None = None
        self.view: HostedView | None = None
        """The view of the records, if the topic has one."""
        self._read_index = ReadIndex(chain, clock, tasks, turn_ended, self._claimed_since)

    @abstractmethod
    def _open_soon(self) -> None:
        """Begins to open the chain, unless that is under way or failed a moment ago."""

    def _move(self, event: PartitionEvent) -> None:
        self._state = after(TABLE, self._state, event)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        callback: AppendCallback,
        slot: Any,
        terms: Terms | None = None,
        *,
        by_all: bool = False,
    ) -> None:
        """Appends one produced batch; `callback.appended(slot, …)` follows once it is durable or refused.

        Args:
            records: need not outlive the call.
            terms: what the writer expects of the log; they are judged when it is the append's turn.
            by_all: (acks=all) the append is refused if the topic asks for more copies than there are.
        """
        if by_all and not self._settings.enough_copies:
            self._refuse(records, callback, slot, _NOT_ENOUGH_COPIES)  # the next one may be taken, with other settings
            return
        log = self.log
        if log is None or self._state not in WRITABLE:
            self._defer(records, callback, slot, terms)
            return
        if self._recoding or self._resumes_later:
            self._appends.wait(records, callback, slot, terms)
            return
        now_ms = self._clock.wall_ms()
        operation = None if terms is None else terms.operation
        more_bytes = len(records) if operation is None else operation.size_bytes
        if log.roll_due(now_ms, more_bytes) and not self._may_overrun(log, more_bytes):
            self._move(PartitionEvent.ROLL)
            self._defer(records, callback, slot, terms)
            self._tasks.start_soon(self._roll_and_resume)
            return
        if terms is not None and terms.looks:
            self._look(log, callback, slot, terms)
            return
        if terms is not None and terms.new_token is not None:
            self._fence(log, callback, slot, terms)
            return
        if terms is not None and operation is not None:
            batch = self._batch_of(operation, log, now_ms, callback, slot, terms)
            if batch is None:
                return
            records = batch
        if log.snapshot_due():
            self._append_snapshot(log)
        try:
            verdict = log.append(records, now_ms, self.segments[-1].ledger.next_entry, terms)
        except BatchRejected as error:
            if terms is not None:  # of a chain, whose later batches must not be written
                self._note_refused(records)
            self._rejected(error, records, callback, slot)
            return
        except TermsRefused as error:
            self._refused_by_terms(error, log, records, callback, slot, terms)
            return
        except TakesLong:
            self._unpack_later(records, log, callback, slot, terms)
            return
        except MemoryError:
            self._refuse(records, callback, slot, WITHOUT_MEMORY)
            return
        if isinstance(verdict, Duplicate):
            self._appends.repeated(log, verdict, callback, slot)
            return
        if terms is not None:
            terms.sn = log.sn
        payload, base_offset, append_time_ms = verdict
        self._write((base_offset, log.next_offset, append_time_ms, callback, slot), payload)

    def _batch_of(
        self,
        operation: ViewOperation,
        log: PartitionLog,
        now_ms: int,
        callback: AppendCallback,
        slot: Any,
        terms: Terms,
    ) -> memoryview | None:
        """Decides an operation on the view; returns its batch, or None if there is none to append.

        An operation that writes nothing is answered once all is durable that it was decided by.
        """
        assert log.view is not None, "an operation is for a partition with a view"
        try:
            decided = log.view.decide(operation, log.next_offset, now_ms)
        except ViewBehind as error:
            callback.appended(slot, Produced.refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return None
        except BatchRejected as error:
            callback.appended(slot, Produced.refusal(error.error_code, error.text))
            return None
        if isinstance(decided, Duplicate):
            self._appends.repeated(log, decided, callback, slot)
            return None
        if decided is not None:
            batch, terms.changes = decided
            return memoryview(batch)
        done = Produced(ErrorCode.NONE, NO_OFFSET, -1, log.start_offset)
        if operation.is_final:
            self._appends.after_all(callback, slot, lambda: callback.appended(slot, done))
        else:
            self._appends.after_all(callback, slot, lambda: self._settle_if_certain(done, callback, slot))
        return None

    def _fence(self, log: PartitionLog, callback: AppendCallback, slot: Any, terms: Terms) -> None:
        """Writes the new token of the partition, unless it is the present one."""
        no_batch = memoryview(b"")
        try:
            payload = log.fence(terms, self.segments[-1].ledger.next_entry)
        except TermsRefused as error:
            self._refused_by_terms(error, log, no_batch, callback, slot, terms)
            return
        if payload is not None:
            self._write((NO_OFFSET, log.next_offset, -1, callback, slot), payload)
        else:
            done = Produced(ErrorCode.NONE, NO_OFFSET, -1, log.start_offset)
            self._appends.after_all(callback, slot, lambda: callback.appended(slot, done))

    def _look(self, log: PartitionLog, callback: AppendCallback, slot: Any, terms: Terms) -> None:
        """Answers with the present end of the log once it is durable, and this broker certainly leads."""
        terms.end = log.end
        done = Produced(ErrorCode.NONE, NO_OFFSET, -1, log.start_offset)
        self._appends.after_all(callback, slot, lambda: self._settle_if_certain(done, callback, slot))

    def _settle_if_certain(self, outcome: Produced, callback: AppendCallback, slot: Any) -> None:
        suspended = self._appends.suspend(callback, slot)
        self.confirm(lambda certain: self._appends.settle(suspended, outcome if certain else _NOT_CONFIRMED))

    def _unpack_later(
        self,
        records: memoryview,
        log: PartitionLog,
        callback: AppendCallback,
        slot: Any,
        terms: Terms | None,
    ) -> None:
        try:
            kept = bytes(records)
        except MemoryError:
            self._refuse(records, callback, slot, WITHOUT_MEMORY)
        else:
            self._recoding = True
            unpack = partial(unpacked, log.settings, log.view)
            self._tasks.start_soon(self._unpack_and_resume, memoryview(kept), unpack, callback, slot, terms)

    async def _unpack_and_resume(
        self,
        records: memoryview,
        unpack: Callable[[memoryview, int], tuple[memoryview, BatchMarks | None, Any]],
        callback: AppendCallback,
        slot: Any,
        terms: Terms | None,
    ) -> None:
        """Appends a batch after it was recompressed or searched, and then those that arrived meanwhile."""
        try:
            batch, marks, changes = await self._batch_thread.work(
                callback.client_of(slot), records, RECODED_BYTES_MAX, unpack
            )
            if changes is not None and self.view is not None:
                await self.view.prepare(changes)
        except (BatchRejected, UnpackedTooLarge) as error:
            self._recoding = False
            if terms is not None:
                self._note_refused(records)
            self._rejected(too_large(error) if isinstance(error, UnpackedTooLarge) else error, records, callback, slot)
        except ClientGone as error:
            self._recoding = False
            self._refuse(records, callback, slot, Produced.refusal(error.code, error.text))
        except MemoryError:
            self._recoding = False
            self._refuse(records, callback, slot, WITHOUT_MEMORY)
        else:
            self._recoding = False
            if marks is not None or changes is not None:
                terms = terms or Terms(of_records=True)
                terms.marks, terms.changes = marks, changes
            self._appends.wait_first(batch, callback, slot, terms)
        self._resume()

    def _may_overrun(self, log: PartitionLog, more_bytes: int) -> bool:
        return self._state is PartitionState.OVERRUNNING and log.may_overrun(more_bytes)

    def _rejected(self, error: BatchRejected, records: memoryview, callback: AppendCallback, slot: Any) -> None:
        refusal = Produced.refusal(error.error_code, error.text)
        if error.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._settle_if_certain(refusal, callback, slot)
        elif error.error_code == ErrorCode.POLICY_VIOLATION:
            self._refuse(records, callback, slot, refusal)  # the next one may be taken
        else:
            if self.view is not None and error.error_code == ErrorCode.INVALID_RECORD:
                self.view.refused(error.text)
            callback.appended(slot, refusal)

    def _refused_by_terms(
        self,
        error: TermsRefused,
        log: PartitionLog,
        records: memoryview,
        callback: AppendCallback,
        slot: Any,
        terms: Terms | None,
    ) -> None:
        """Refuses a batch once the record that the refusal names is durable (`terms` invariant 3)."""
        self._note_refused(records)
        batch = None if terms is None or terms.new_token is not None else parse_batch(records)
        outcome = Produced.refusal(ErrorCode.INVALID_RECORD, str(error))

        def refuse() -> None:
            suspended = self._appends.suspend(callback, slot)

            def settle(certain: bool) -> None:
                if certain and terms is not None:
                    terms.refused = error
                    if batch is not None and batch.producer_id >= 0:
                        self._awaited.epoch_ended(batch.producer_id, batch.producer_epoch, self._clock.wall_ms())
                self._appends.settle(suspended, outcome if certain else _NOT_CONFIRMED)

            if error.may_hold:
                self.confirm(settle)
            else:
                settle(True)

        self._appends.after_all(callback, slot, refuse)

    def _defer(self, records: memoryview, callback: AppendCallback, slot: Any, terms: Terms | None) -> None:
        """Keeps a batch that cannot be written now, or refuses it."""
        if self._state in FINAL:
            refusal = DELETED if self._state is PartitionState.ENDED else RELEASED
            self._refuse(records, callback, slot, refusal)
            return
        self._open_soon()
        if self._state in UNOPENED:
            code = self.failure or ErrorCode.KAFKA_STORAGE_ERROR
            text = "the partition could not be opened for writing; it is tried again soon"
            self._refuse(records, callback, slot, Produced.refusal(code, text))
            return
        self._appends.wait(records, callback, slot, terms)

    def _refuse(self, records: memoryview, callback: AppendCallback, slot: Any, refusal: Produced) -> None:
        self._note_refused(records)
        callback.appended(slot, refusal)

    def _note_refused(self, records: memoryview) -> None:
        """Later batches of the same producer must not be appended before this one (`producers` invariant 5)."""
        self._awaited.refused_batch(records, self._clock.wall_ms())

    def _append_snapshot(self, log: PartitionLog) -> None:
        entry = self.segments[-1].ledger.next_entry
        self._write((NO_OFFSET, log.next_offset, -1, None, 0), log.snapshot(entry))

    def _write(self, entry: InFlight, payload: Sequence[bytes | memoryview]) -> None:
        self._appends.written(entry)
        try:
            self.segments[-1].ledger.append(payload, self._stored)
        except LedgerError as error:
            self.writing_failed(error)
            self.notify_change()

    def _stored(self, entry: int, error: LedgerError | None) -> None:
        """The oldest entry in flight is durable, or it failed with all later ones."""
        if error is not None:
            self.writing_failed(error)
            return
        if self.log is not None and self._appends.stored(self.log):
            self._advanced(self)

    # --- failures -----------------------------------------------------------------------------------------------

    def writing_failed(self, error: Exception) -> None:
        """Fails the entries in flight; after a fence it also hides the log (invariants 2 and 3)."""
        event = PartitionEvent.FENCED if isinstance(error, _FENCED) else PartitionEvent.WRITING_FAILED
        self._move(event)
        if self._state in OPENING_STATES:
            return  # an earlier failure of the same ledger was handled, and a callback has had the chain opened again
        if self._is_new_problem(error):
            if event is PartitionEvent.FENCED:  # an ordinary takeover
                self._logger.warning("partition_not_written", reason=str(error), next=ADVICE)
            else:
                self._logger.error("partition_not_written", reason=str(error), next=ADVICE)
        code = self._code_of(error)
        if self.log is not None:
            self.log.unwritten(self._clock.wall_ms())
        hidden = event is PartitionEvent.FENCED and self._state is PartitionState.CLOSED
        if hidden:  # before a callback asks again
            self.log, self.failure = None, code
            self._reopen_later()
        self._appends.fail_in_flight(code, str(error))
        if hidden:
            self._appends.refuse_waiting(Produced.refusal(code, str(error)))

    def _reopen_later(self) -> None:
        """The chain is not opened again for a moment."""
        self._reopen_at = self._clock.monotonic() + REOPEN_SECONDS

    def _claimed_since(self, last: Segment, error: LedgerFenced) -> None:
        """The metadata service knows a newer claim of `last`, which may be this broker's own (invariant 3)."""
        idle = self._state in (*WRITABLE, PartitionState.READABLE) and not self._appends.in_flight
        if idle and self.segments[-1] is last:
            self.writing_failed(error)
            self.notify_change()

    def _is_new_problem(self, error: Exception) -> bool:
        """Whether to log a problem: once, until the partition opens again or the reason changes."""
        if self._state in FINAL or self._logged == str(error):
            return False
        self._logged = str(error)
        return True

    def _code_of(self, error: Exception) -> ErrorCode:
        """Storage errors and lost leadership are both retriable: a client asks for the leader again and repeats."""
        if self._state is PartitionState.ENDED:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(error, MetadataFull) or not isinstance(error, _LEADERSHIP_LOST):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- confirming ---------------------------------------------------------------------------------------------

    @property
    def confirms_leadership(self) -> bool:
        """Whether another broker may lead the partition without this one knowing it."""
        return self._policy.confirms_leadership

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Calls `done` with whether an open log has certainly not been continued elsewhere.

        A broker whose policy does not confirm leadership calls it at once.
        """
        if not self.confirms_leadership:
            done(True)
        else:
            self._read_index.confirm(self.segments[-1], done)

    def beyond_end(self, offset: Offset) -> ErrorCode:
        """See `Readable.beyond_end`; another broker may have continued the log: see `LeaderPolicy`."""
        if self._policy.confirms_leadership:
            return self._read_index.beyond_end(self.segments[-1], offset)
        return super().beyond_end(offset)

    # --- rolling ------------------------------------------------------------------------------------------------

    async def _roll_and_resume(self) -> None:
        async with self._maintenance:
            await self._roll()
        self._resume()

    def _resume(self) -> None:
        """Appends that waited are decided again, for as long as a turn allows, and readers look at the log."""
        until = self._clock.monotonic() + SHARE_SECONDS

        def append(records: memoryview, callback: AppendCallback, slot: Any, terms: Terms | None) -> None:
            if not self._resumes_later and self._clock.monotonic() > until:
                self._resumes_later = True
                self._tasks.start_soon(self._resume_next_turn)
            self.append(records, callback, slot, terms)

        self._appends.resume(append)
        self.notify_change()

    async def _resume_next_turn(self) -> None:
        await self._clock.sleep(PAUSE_SECONDS)
        self._resumes_later = False
        self._resume()

    async def _roll(self, *, answered: bool = False) -> None:
        """Ends the segment and begins the next one; the caller has moved the state, so that appends wait.

        Args:
            answered: the metadata service has answered just now, so that it is not asked again.
        """
        log = self.log
        try:
            if self._state in ROLLING_STATES:
                await self.segments[-1].ledger.drained()
            if self._state in ROLLING_STATES and log is not None and (answered or await self._metadata_answers()):
                await self._begin_segment(log)
        except (LedgerError, MetadataError, WorldError) as error:
            self.writing_failed(error)

    async def _begin_segment(self, log: PartitionLog) -> None:
        segment = await self._chain.roll(log, self.segments[-1], self._clock.wall_ms())
        self.segments.append(segment)
        if self._tail is not None:
            segment.tell(self._tail.rolled(segment))
        log.begin_segment()
        log.producers.expire(self._clock.wall_ms() - log.settings.producer_expiry_ms)
        self._move(PartitionEvent.ROLLED)
        if log.snapshot_due() and self._state is PartitionState.OPEN:
            self._append_snapshot(log)

    async def _metadata_answers(self) -> bool:
        """Whether the roll may begin; otherwise it is postponed, or the partition was released or ended.

        Raises:
            MetadataUnavailable: it was postponed before, and the segment is at its bound.
        """
        with trio.move_on_after(ANSWER_SECONDS), suppress(MetadataError):
            await self._chain.ask()
            return self._state in ROLLING_STATES
        if self._state is PartitionState.FULL:
            raise MetadataUnavailable("the segment takes no more, and without the metadata no other one can begin")
        if self._state is PartitionState.ROLLING:
            self._move(PartitionEvent.ROLL_POSTPONED)
            self._tasks.start_soon(self._roll_when_metadata_is_back)
            advice = (
                "the segment continues for now and rolls once the metadata answers: start the metadata service again"
            )
            self._logger.warning("roll_postponed", reason="the metadata does not answer", next=advice)
        return False

    async def _roll_when_metadata_is_back(self) -> None:
        """Asks until the metadata service answers, however slowly; nothing waits for it."""
        while self._state is PartitionState.OVERRUNNING:
            try:
                await self._chain.ask()
                break
            except MetadataError:
                await self._clock.sleep(ROLL_RETRY_SECONDS)
        async with self._maintenance:
            if self._state is not PartitionState.OVERRUNNING:
                return
            self._move(PartitionEvent.METADATA_BACK)
            if self.log is not None and self.log.segment_is_old(self._clock.wall_ms()):
                self._move(PartitionEvent.ROLL)
                await self._roll(answered=True)
        self._resume()
