"""The driver of one partition: opens its chain of ledgers on first use, appends, rolls and trims.

1. Nothing is opened before the first use, and opening costs one metadata read and one write (the claim).
2. While the chain is opened or rolled, appends wait in their order of arrival.
3. When an append fails, all after it fail too, the writing half is given up and opened anew on next use; what is
   durable stays readable meanwhile.
4. Rolling, trimming and deleting are done one at a time. Retention gives up nothing that its readers hold.
5. Once another broker leads, nothing is taken any more and nothing shown; what was on its way before is still told.
6. After a fence nothing is shown either before the chain is claimed anew: somebody else may have gone on with it. So
   it is when the metadata says that the chain was claimed since, and nothing is on its way that a bookie could refuse.
7. A roll begins only if the metadata answers. While it does not, the segment takes more than its size, within a bound:
   nothing of the roll was asked for yet, so its ledger is what it was. Where the outcome of a roll is unknown, nothing
   is appended to that ledger any more, as the next segment may exist; like beyond the bound, 3 holds.
8. A producer is told that a batch of its is missing, and a reader that there is nothing where it is, only once the
   metadata has said that nobody else has claimed the chain: where somebody has, the log may have gone on there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol

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
from gnomon.bookie.ids import EntryId
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.appends import Appender, Appends, Produced, Written
from gnomon.broker.partition.certainty import Certainty
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.entry import NO_OFFSET, Offset
from gnomon.broker.partition.log import LogSettings, PartitionLog
from gnomon.broker.partition.producers import AwaitedBatches, Duplicate
from gnomon.broker.partition.readable import REOPEN_SECONDS, Readable
from gnomon.broker.partition.segment import Segment
from gnomon.broker.partition.trim import AskHeld, Trim, waits_for_nobody
from gnomon.metadata.client import MetadataError, MetadataFull, MetadataUnavailable
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.batch import BatchRejected
from gnomon.wire.kafka.errors import ErrorCode

ANSWER_SECONDS = 1.0
"""How long the metadata may take to answer before a roll is put off; appends wait meanwhile."""
ROLL_RETRY_SECONDS = 5.0
"""How long after the metadata did not answer it is asked again."""


class Tail(Protocol):
    """Who is to be told what this broker confirms."""

    def opened(self, log: PartitionLog, segments: Sequence[Segment]) -> Callable[[EntryId, bytes], None]:
        """The log was opened, or is open; returns what is told the entries of its last segment, as they are stored."""

    def rolled(self, segment: Segment) -> Callable[[EntryId, bytes], None]:
        """A segment has begun; returns what is told its entries, as they are stored."""


class State(Enum):
    """What becomes of an append that arrives now."""

    CLOSED = "closed"
    """It begins to open the chain for writing."""
    OPENING = "opening"
    """It waits."""
    OPEN = "open"
    """It is written."""
    ROLLING = "rolling"
    """It waits."""
    RELEASED = "released"
    """It is refused: another broker leads the partition."""
    ENDED = "ended"
    """It is refused: the topic is gone."""


_DELETED = Produced.refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
_RELEASED = Produced.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the partition from now on")
_NOT_CERTAIN = Produced.refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads the partition"
)
_TAKEN_OVER = (Fenced, LedgerFenced)
"""Somebody else has claimed the chain."""
_LEADERSHIP_LOST = (Fenced, LedgerFenced, LedgerSealed, LedgerExists, NoSuchLedger, LedgerClosed, MetadataError)
"""Somebody else has claimed, continued or deleted the chain, or whether so is not known."""


class Partition(Readable):
    """One partition, led by this broker."""

    log: PartitionLog | None

    def __init__(
        self,
        chain: Chain,
        settings: LogSettings,
        clock: Clock,
        nursery: trio.Nursery,
        advanced: Callable[[Readable], None],
        turn_ended: Callable[[], None],
        logger: Logger,
        awaited: AwaitedBatches,
    ) -> None:
        super().__init__(logger, advanced, turn_ended)
        self._chain = chain
        self._settings = settings
        self._clock = clock
        self._nursery = nursery
        self._state = State.CLOSED
        self._failed_at = float("-inf")
        self._told: str | None = None
        self._appends = Appends(self._note_refused)
        self._awaited = awaited
        self._maintenance = trio.Lock()
        self._roll_put_off = False
        self._opened = trio.Event()
        self._tail: Tail | None = None
        self._certainty = Certainty(chain, clock, nursery, turn_ended, self._claimed_since)

    # --- opening ------------------------------------------------------------------------------------------------

    def open_log(self) -> PartitionLog | None:
        """The log if it is open; else begins to open it."""
        if self._state is State.RELEASED:
            return None
        if self.log is None:
            self._open_soon()
        return self.log

    async def opened(self) -> PartitionLog | None:
        """The log, once it is open; None when it could not be opened (see `failure`)."""
        if self.open_log() is None and self._state is State.OPENING:
            await self._opened.wait()
        return self.open_log()

    async def opened_to_write(self) -> PartitionLog | None:
        """The log, opened for writing where that can be; else as far as it can be read."""
        if self._state is State.CLOSED:
            self._open_soon()
        if self._state is State.OPENING:
            await self._opened.wait()
        return self.log if self._state is not State.RELEASED else None

    def _open_soon(self) -> None:
        if self._state is not State.CLOSED or self._clock.monotonic() - self._failed_at < REOPEN_SECONDS:
            return
        self._state = State.OPENING
        self._opened = trio.Event()
        self._nursery.start_soon(self._open)

    async def _open(self) -> None:
        async with self._maintenance:
            try:
                opened = await self._chain.open(self._settings, self._clock.wall_ms())
            except (LedgerError, MetadataError, WorldError) as error:
                self._opening_failed(error)
                return
            if self._state is State.OPENING:
                self.log, self.segments = opened
                self.log.producers.awaited = self._awaited
                self.failure = self._told = None
                self._state = State.OPEN
                self._tell_tail()
                event = "partition_claimed" if self.log.epoch else "partition_created"
                self._logger.debug(event, leader_epoch=self.log.epoch, next_offset=self.log.next_offset)
                if self.log.snapshot_due():
                    self._append_snapshot(self.log)
        self._opened.set()
        self._appends.take_up(self.append)
        self._changed()

    def _opening_failed(self, error: Exception) -> None:
        self._tell("partition_not_opened", error)
        if self._state is State.OPENING:
            self._state = State.CLOSED
        self._failed_at = self._clock.monotonic()
        code = self._code_of(error)
        if self.log is None and self._state is State.CLOSED:
            self.failure = code
        self._opened.set()
        self._appends.refuse_waiting(Produced.refusal(code, str(error)))
        self._changed()

    def _tell(self, event: str, error: Exception) -> None:
        """Logs a problem, once until the partition opens again or the reason is another."""
        if self._state in (State.ENDED, State.RELEASED) or self._told == str(error):
            return
        self._told = str(error)
        advice = "it is opened again when it is used; `gnomon ledger read` shows what is there, a copy replaces damage"
        self._logger.error(event, reason=str(error), next=advice)

    def _note_refused(self, records: memoryview) -> None:
        """What its producer has sent behind this batch must not be appended before it (`producers` invariant 5)."""
        self._awaited.refused_batch(records, self._clock.wall_ms())

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Has `done` called with whether an open log has certainly not gone on elsewhere; at once by a broker alone."""
        if self.alone:
            done(True)
        else:
            self._certainty.confirm(self.segments[-1], done)

    def beyond_end(self, offset: Offset) -> ErrorCode:
        """See `Readable.beyond_end`; where a broker is alone, nobody else can have gone on."""
        return super().beyond_end(offset) if self.alone else self._certainty.beyond_end(self.segments[-1], offset)

    def size_bytes(self) -> int | None:
        """The bytes of all its batches, None until opened."""
        log = self.log
        return None if log is None else log.segment_bytes + sum(segment.size_bytes for segment in self.segments[:-1])

    def goes_on(self, log: PartitionLog) -> bool:
        """Whether what is appended now comes right behind `log` as it was opened: nobody else wrote in between."""
        return self.log is log and self._state in (State.OPEN, State.ROLLING)

    def attach(self, tail: Tail | None) -> None:
        """From now on `tail` is told what is confirmed here, and nobody else."""
        self._tail = tail
        self._tell_tail()

    def _tell_tail(self) -> None:
        if self.log is not None:
            tail = self._tail
            self.segments[-1].tell(None if tail is None else tail.opened(self.log, self.segments))

    def configure(self, settings: LogSettings) -> None:
        """The topic's configs have changed."""
        self._settings = settings
        if self.log is not None:
            self.log.settings = settings

    def end(self) -> None:
        """The topic is gone: everybody who waits is told."""
        self._state = State.ENDED
        self.log = None
        self.failure = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._appends.fail_written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self._appends.refuse_waiting(_DELETED)
        self._changed()

    def release(self) -> None:
        """Another broker leads the partition from now on; it is not opened here any more.

        What is on its way is told when it is durable, or not: the new leader may cut it off.
        """
        if self._state in (State.ENDED, State.RELEASED):
            return
        self._state = State.RELEASED
        self.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._appends.refuse_waiting(_RELEASED)
        self._changed()

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, records: memoryview, appender: Appender, slot: Any) -> None:
        """Appends one produced batch; `appender.appended(slot, …)` follows once it is durable or refused.

        `records` need not outlive the call.
        """
        log = self.log
        if self._state is not State.OPEN or log is None:
            self._stall(records, appender, slot)
            return
        now_ms = self._clock.wall_ms()
        if log.roll_due(now_ms, len(records)) and not (self._roll_put_off and log.may_overrun(len(records))):
            self._state = State.ROLLING
            self._stall(records, appender, slot)
            self._nursery.start_soon(self._roll_then_go_on)
            return
        if log.snapshot_due():
            self._append_snapshot(log)
        try:
            verdict = log.append(records, now_ms, self.segments[-1].ledger.next_entry)
        except BatchRejected as error:
            refusal = Produced.refusal(error.error_code, error.text)
            if error.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                doubted = self._appends.doubt(appender, slot)
                self.confirm(lambda certain: self._appends.judge(doubted, refusal if certain else _NOT_CERTAIN))
                return
            if error.error_code == ErrorCode.POLICY_VIOLATION:
                self._note_refused(records)  # the next one may be taken
            appender.appended(slot, refusal)
            return
        if isinstance(verdict, Duplicate):
            self._appends.repeated(log, verdict, appender, slot)
            return
        payload, base_offset, append_time_ms = verdict
        self._write((base_offset, log.next_offset, append_time_ms, appender, slot), payload)

    def _stall(self, records: memoryview, appender: Appender, slot: Any) -> None:
        if self._state in (State.ENDED, State.RELEASED):
            self._note_refused(records)
            appender.appended(slot, _DELETED if self._state is State.ENDED else _RELEASED)
            return
        if self._state is State.CLOSED:
            self._open_soon()
            if self._state is State.CLOSED:
                self._note_refused(records)
                code = self.failure or ErrorCode.KAFKA_STORAGE_ERROR
                text = "the partition could not be opened for writing; it is tried again soon"
                appender.appended(slot, Produced.refusal(code, text))
                return
        self._appends.wait(records, appender, slot)

    def _append_snapshot(self, log: PartitionLog) -> None:
        entry = self.segments[-1].ledger.next_entry
        self._write((NO_OFFSET, log.next_offset, -1, None, 0), log.snapshot(entry))

    def _write(self, entry: Written, payload: Sequence[bytes | memoryview]) -> None:
        self._appends.written(entry)
        try:
            self.segments[-1].ledger.append(payload, self._stored)
        except LedgerError as error:
            self._writing_failed(error)
            self._changed()

    def _stored(self, entry: int, error: LedgerError | None) -> None:
        """The oldest entry on its way is durable, or lost with all after it."""
        if error is not None:
            self._writing_failed(error)
            return
        if self.log is not None and self._appends.stored(self.log):
            self._advanced(self)

    def _writing_failed(self, error: Exception) -> None:
        if self._state is State.OPENING:
            return  # it was told before, of the same ledger, and whoever heard it then has the chain opened again
        self._tell("partition_not_written", error)
        code = self._code_of(error)
        if self._state not in (State.ENDED, State.RELEASED):
            self._state = State.CLOSED
        if self.log is not None:
            self.log.producers.lost(self.log.high_watermark, self._clock.wall_ms())
            self.log.next_offset = self.log.high_watermark
        taken_over = isinstance(error, _TAKEN_OVER) and self._state is State.CLOSED
        if taken_over:  # before anybody hears of it, and asks again
            self.log, self.failure = None, code
            self._failed_at = self._clock.monotonic()
        self._appends.fail_written(code, str(error))
        if taken_over:
            self._appends.refuse_waiting(Produced.refusal(code, str(error)))

    def _claimed_since(self, last: Segment, error: LedgerFenced) -> None:
        """Where this broker is not opening the chain again, another one has claimed it: as if a write had told."""
        idle = self._state in (State.OPEN, State.CLOSED) and not self._appends.on_their_way
        if idle and self.log is not None and self.segments[-1] is last:
            self._writing_failed(error)
            self._changed()

    def _code_of(self, error: Exception) -> ErrorCode:
        """Storage errors and lost leadership are both retriable: a client asks for the leader again and repeats."""
        if self._state is State.ENDED:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(error, MetadataFull) or not isinstance(error, _LEADERSHIP_LOST):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- rolling and trimming -----------------------------------------------------------------------------------

    async def _roll_then_go_on(self) -> None:
        async with self._maintenance:
            await self._roll()
        self._appends.take_up(self.append)
        self._changed()

    async def _roll(self, asked: bool = False) -> None:
        """Ends the segment and begins the next one; the caller has set the state, so that appends wait.

        Args:
            asked: the metadata was asked just now, and has answered.
        """
        log = self.log
        try:
            if log is not None and self._state is State.ROLLING:
                await self.segments[-1].ledger.drained()
            if log is not None and self._state is State.ROLLING and (asked or await self._metadata_answers()):
                self.segments.append(await self._chain.roll(log, self.segments[-1], self._clock.wall_ms()))
                if self._tail is not None:
                    self.segments[-1].tell(self._tail.rolled(self.segments[-1]))
                log.begin_segment()
                log.producers.expire(self._clock.wall_ms() - log.settings.producer_expiry_ms)
                if log.snapshot_due() and self._state is State.ROLLING:
                    self._append_snapshot(log)
        except (LedgerError, MetadataError, WorldError) as error:
            self._writing_failed(error)
        if self._state is State.ROLLING:
            self._state = State.OPEN

    async def _metadata_answers(self) -> bool:
        """Whether a roll may begin; else it is put off.

        Raises:
            MetadataUnavailable: it was put off before, and the segment takes no more.
        """
        with trio.move_on_after(ANSWER_SECONDS), suppress(MetadataError):
            await self._chain.ask()
            return self._state is State.ROLLING
        if self._roll_put_off:
            raise MetadataUnavailable("the segment takes no more, and without the metadata no other one can begin")
        self._roll_put_off = True
        self._nursery.start_soon(self._roll_later)
        advice = "the segment goes on for now and rolls once the metadata answers: bring that back"
        self._logger.warning("roll_put_off", reason="the metadata does not answer", next=advice)
        return False

    async def _roll_later(self) -> None:
        """Rolls when the metadata answers again, however slowly; nobody waits for it."""
        while self._state not in (State.ENDED, State.RELEASED):
            try:
                await self._chain.ask()
                break
            except MetadataError:
                await self._clock.sleep(ROLL_RETRY_SECONDS)
        async with self._maintenance:
            self._roll_put_off = False
            if self.log is not None and self._state is State.OPEN and self.log.segment_is_old(self._clock.wall_ms()):
                self._state = State.ROLLING
                await self._roll(asked=True)
        self._appends.take_up(self.append)
        self._changed()

    async def enforce_retention(self, held: AskHeld = waits_for_nobody) -> bool:
        """Ends the segment that is old, and gives up the oldest ones by time and size, as far as nobody holds them.

        Args:
            held: asked where something is due.

        Returns:
            False where what is held has changed meanwhile, or the segments: not all was given up, ask again.
        """
        async with self._maintenance:
            log = self.log
            if log is None or self._state is not State.OPEN:
                return True
            now_ms = self._clock.wall_ms()
            log.producers.expire(now_ms - log.settings.producer_expiry_ms)
            if log.segment_is_old(now_ms) and not self._roll_put_off:
                self._state = State.ROLLING
                await self._roll()
                self._appends.take_up(self.append)
                self._changed()
            trim = Trim(self._chain, log, self.segments)
            if not trim.segments_due(now_ms):
                return True
        kept = await held()  # appends that roll do not wait for that
        async with self._maintenance:
            if self.log is not log or self._state is not State.OPEN:
                return True
            due = trim.segments_due(self._clock.wall_ms())
            if kept is None:
                done = await trim.drop(due)
            else:
                due = min(due, self.segment_of(kept.offset))
                done = await trim.drop(due, kept.compares)
            if due:
                self._changed()
            return done

    async def delete_before(self, offset: Offset) -> Offset:
        """Moves the start of the log to `offset`, at most the high watermark (DeleteRecords); returns where it is then.

        Raises:
            KafkaError: the log could not be changed.
        """
        async with self._maintenance:
            log = self.log
            if log is None or self._state is not State.OPEN:
                self._open_soon()
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not open for writing")
            try:
                trim = Trim(self._chain, log, self.segments)
                if offset > log.start_offset:
                    await trim.drop(self.segment_of(offset))
                if offset > log.start_offset:
                    await trim.cut(offset)
            except (LedgerError, MetadataError, WorldError) as error:
                raise KafkaError(self._code_of(error), str(error)) from error
            finally:
                self._changed()
            return log.start_offset
