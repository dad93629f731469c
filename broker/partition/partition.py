"""One partition that this broker leads: opens its chain on first use, trims it, releases it. `writable` has appends.

1. Nothing is opened before the first use. An opening costs one metadata read and one metadata write (`chain` invariant
   3).
2. Appends that arrive during an opening wait in their order of arrival.
3. After a failed write the chain is opened again for the next append. After a fence or a failed opening, it is not
   opened again within REOPEN_SECONDS.
4. Opening, rolling, trimming and deleting happen one at a time. Retention drops no record that subscriptions hold (have
   not read).
5. After `release` the log is hidden and appends are refused. Entries in flight are still answered.
"""

from __future__ import annotations

from gnomon.bookie.errors import LedgerError, LedgerFenced
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.appends import Produced
from gnomon.broker.partition.followers import Tail
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.broker.partition.state import (
    CONTINUED,
    FINAL,
    OPENING_STATES,
    UNOPENED,
    WRITABLE,
    PartitionEvent,
    PartitionState,
)
from gnomon.broker.partition.trim import FindRetentionBound, Trim, no_bound
from gnomon.broker.partition.writable import ADVICE, DELETED, RELEASED, Writable
from gnomon.log.entry import Offset
from gnomon.log.segment import Segment
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError
from gnomon.wire.kafka.errors import ErrorCode


class Partition(Writable):
    """One partition, led by this broker."""

    # --- opening ------------------------------------------------------------------------------------------------

    def open_log(self) -> PartitionLog | None:
        """The log if it is readable; otherwise begins to open it."""
        if self._state is PartitionState.RELEASED:
            return None
        if self.log is None:
            self._open_soon()
        return self.log

    async def opened(self) -> PartitionLog | None:
        """The log, once it is readable; None when it could not be opened (see `failure`)."""
        if self.open_log() is None and self._state is PartitionState.OPENING:
            await self._opened.wait()
        return self.open_log()

    async def opened_to_write(self) -> PartitionLog | None:
        """The log, opened for writing if possible; otherwise as far as it can be read."""
        self._open_soon()
        if self._state in OPENING_STATES:
            await self._opened.wait()
        return self.log if self._state is not PartitionState.RELEASED else None

    def _open_soon(self) -> None:
        if self._state not in UNOPENED or self._clock.monotonic() < self._reopen_at:
            return
        self._move(PartitionEvent.OPEN)
        self._opened.clear()
        self._tasks.start_soon(self._open)

    async def _open(self) -> None:
        async with self._maintenance:
            try:
                log, segments = await self._chain.open(self._settings, self._clock.wall_ms())
            except (LedgerError, MetadataError, WorldError) as error:
                self._opening_failed(error)
                return
            self._move(PartitionEvent.OPENED)
            if self._state is PartitionState.OPEN:
                self._take_log(log, segments)
        self._opened.set()
        self._resume()

    def _take_log(self, log: PartitionLog, segments: list[Segment]) -> None:
        self.log, self.segments = log, segments
        log.producers.awaited = self._awaited
        self.failure = self._logged = None
        if self.view is not None:
            log.view = self.view
            self.view.opened(log)
        self._notify_tail()
        event = "partition_claimed" if log.epoch else "partition_created"
        self._logger.debug(event, leader_epoch=log.epoch, next_offset=log.next_offset)
        if log.snapshot_due():
            self._append_snapshot(log)

    def _opening_failed(self, error: Exception) -> None:
        if self._is_new_problem(error):
            self._logger.error("partition_not_opened", reason=str(error), next=ADVICE)
        self._move(PartitionEvent.OPENING_FAILED)
        self._reopen_later()
        code = self._code_of(error)
        if self._state is PartitionState.CLOSED:
            self.failure = code
        self._opened.set()
        self._appends.refuse_waiting(Produced.refusal(code, str(error)))
        self.notify_change()

    # --- while it is open -----------------------------------------------------------------------------------------

    def size_bytes(self) -> int | None:
        """The bytes of all its batches, None until it is open."""
        log = self.log
        return None if log is None else log.segment_bytes + sum(segment.size_bytes for segment in self.segments[:-1])

    def goes_on(self, log: PartitionLog) -> bool:
        """Whether an append now continues `log` directly: no other broker is known to have written since."""
        return self.log is log and self._state in CONTINUED

    def attach(self, tail: Tail | None) -> None:
        """Confirmed entries are given to `tail` from now on, and to no other listener."""
        self._tail = tail
        self._notify_tail()

    def _notify_tail(self) -> None:
        if self.log is not None:
            tail = self._tail
            self.segments[-1].tell(None if tail is None else tail.opened(self.log, self.segments))

    def configure(self, settings: PartitionSettings) -> None:
        """The topic's configs have changed."""
        self._settings = settings
        if self.log is not None:
            self.log.settings = settings

    # --- its end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The topic is deleted: all appends are refused and waiting readers are woken."""
        self._move(PartitionEvent.END)
        self.log = None
        self.failure = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._appends.fail_in_flight(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self._end_view()
        self._appends.refuse_waiting(DELETED)
        self.notify_change()

    def release(self) -> None:
        """Another broker leads the partition from now on; it is not opened here again.

        Entries in flight are answered when they are durable or fail: the new leader may cut them off.
        """
        if self._state in FINAL:
            return
        self._move(PartitionEvent.RELEASE)
        self.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._end_view()
        self._appends.refuse_waiting(RELEASED)
        self.notify_change()

    def _end_view(self) -> None:
        if self.view is not None:
            self.view.ended()

    # --- trimming -----------------------------------------------------------------------------------------------

    async def enforce_retention(self, find_bound: FindRetentionBound = no_bound) -> bool:
        """Ends an old segment, and drops the oldest ones by time and size, as far as no subscription holds them.

        Args:
            find_bound: called when segments are due.

        Returns:
            False if the bound or the segments changed meanwhile: not everything due was dropped, call this again.
        """
        async with self._maintenance:
            log = self.log
            if log is None or self._state not in WRITABLE:
                return True
            trim = Trim(self._chain, log, self.segments)
            due = self._droppable(await self._due_after_roll(log, trim))
            if not due:
                return True
            end = self.segments[due].base_offset
        bound = await find_bound(end)  # appends that roll do not wait for that
        async with self._maintenance:
            if self.log is not log or self._state not in WRITABLE:
                return True
            due = self._droppable(trim.segments_due(self._clock.wall_ms()))
            if bound is not None:
                due = min(due, self.segment_of(bound.offset))
            try:
                return await trim.drop(due, None if bound is None else bound.compares)
            except LedgerFenced as error:
                self._claimed_since(self.segments[-1], error)
                return False
            finally:
                if due:
                    self.notify_change()

    def _droppable(self, due: int) -> int:
        """The number of the oldest segments, of those that are due, that the view can do without."""
        if self.view is None:
            return due
        droppable = min(due, self.segment_of(self.view.kept_from))
        if droppable < due:
            self.view.want_trim(self.segments[due].base_offset)
        return droppable

    async def _due_after_roll(self, log: PartitionLog, trim: Trim) -> int:
        """Ends the last segment if it is old; returns how many segments are due to be dropped."""
        now_ms = self._clock.wall_ms()
        log.producers.expire(now_ms - log.settings.producer_expiry_ms)
        if self._state is PartitionState.OPEN and log.segment_is_old(now_ms):
            self._move(PartitionEvent.ROLL)
            await self._roll()
            self._resume()
        return trim.segments_due(now_ms)

    async def delete_before(self, offset: Offset) -> Offset:
        """Moves the start of the log to `offset`, at most the high watermark (DeleteRecords); returns the new start.

        Raises:
            KafkaError: the log could not be changed.
        """
        async with self._maintenance:
            log = self.log
            if log is None or self._state not in WRITABLE:
                self._open_soon()
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not open for writing")
            if self.view is not None and offset > max(log.start_offset, self.view.kept_from):
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the table needs the records from offset {self.view.kept_from} on: take a snapshot first",
                )
            try:
                trim = Trim(self._chain, log, self.segments)
                if offset > log.start_offset and not await trim.drop(self.segment_of(offset)):
                    raise MetadataError("a segment was changed meanwhile: the request can be repeated")
                if offset > log.start_offset:
                    await trim.cut(offset)
            except (LedgerError, MetadataError, WorldError) as error:
                if isinstance(error, LedgerFenced):
                    self._claimed_since(self.segments[-1], error)
                raise KafkaError(self._code_of(error), str(error)) from error
            finally:
                self.notify_change()
            return log.start_offset
