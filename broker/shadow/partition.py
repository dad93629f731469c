"""A partition of a shadow (a read-only topic): reads the ledgers of its source, and never writes to them.

1. The partition writes nothing to a bookie or to the metadata, and claims and fences nothing.
2. An opening asks the bookies of the last ledger once. All partitions of one source share one metadata read and one
   watch (`source`). The bookies report the last add confirmed in long polls.
3. The log shows what `image` knows: readers never see an entry that is not confirmed.
4. The deletion of the source ends the partition: the readers get an error that makes them look up the topic again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import NO_ENTRY
from gnomon.bookie.ledgers.catalog import (
    Bookies,
    EntryCache,
    EntryId,
    Ledger,
    LedgerId,
    SessionId,
    check_copy,
    is_local,
    read_from_memory,
)
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.broker.partition.readable import REOPEN_SECONDS, Readable
from gnomon.broker.shadow.image import RefusedEntry, ReplicatedEntry, SourceImage
from gnomon.broker.shadow.source import SourceLedgers
from gnomon.broker.shadow.state import FINAL, TABLE, ShadowEvent, ShadowState
from gnomon.log.chains import take_chain
from gnomon.log.entry import EntryHeader, LeaderEpoch, Offset, UnknownEntry, unpack_header
from gnomon.log.segment import Segment
from gnomon.log.segment_record import NotASegment, parse_segment_name
from gnomon.metadata.client import Event, KeyValue, Metadata, MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.signal import Signal
from gnomon.runtime.state_table import after
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.errors import ErrorCode

FIRST_ANSWERS_SECONDS = 2.0
"""Time that an opening waits for bookies; after that it shows the part of the log that it knows."""
RETRY_SECONDS = 0.5
CONFIRMED_SECONDS = 1.5
"""Within this time a bookie learns that an entry which the source's broker has replicated is confirmed."""
SETTLE_SECONDS = 0.25
EXPLICIT_LAC_SECONDS = 1.0
"""The longest time until bookies know the last add confirmed of an idle ledger."""
REPLICATED_SECONDS = 1.0
"""Time after each replicated entry in which no bookie is asked for newer ones."""
TOGETHER_ENTRIES = 64
"""Up to this many new entries are loaded together with the header of the last one."""


class ShadowPartition(Readable):
    """One partition of a shadow, led by this broker."""

    log: SourceImage | None

    def __init__(
        self,
        metadata: Metadata,
        bookies: Bookies,
        entries: EntryCache,
        source: SourceLedgers,
        index: int,
        open_source: Callable[[], None],
        clock: Clock,
        tasks: Tasks,
        advanced: Callable[[Readable], None],
        turn_ended: Callable[[], None],
        logger: Logger,
        policy: LeaderPolicy,
    ) -> None:
        """The shadow of partition `index` of `source`; not open yet.

        Args:
            open_source: called when the last segment may have no writer; opens the source if this broker has to.
        """
        super().__init__(logger, advanced, turn_ended, policy)
        self._metadata = metadata
        self._bookies = bookies
        self._entries = entries
        self._source = source
        self._index = index
        self._open_source = open_source
        self._clock = clock
        self._tasks = tasks
        self._image = SourceImage()
        self._state = ShadowState.CLOSED
        self._work = trio.CancelScope()
        """Around opening and following."""
        self._reopen_at = float("-inf")
        """The monotonic second before which it is not opened again."""
        self._replicated_at = float("-inf")
        self._opened = Signal()
        self._tail_changed = Signal()
        self._long_poll: trio.CancelScope | None = None
        self._seen: tuple[LedgerId | None, EntryId] = (None, NO_ENTRY)
        """The ledger whose header was read last, and the entry."""
        self._unconfirmed: tuple[LedgerId, EntryId] | None = None
        """An entry that was replicated as confirmed without its bytes, and its ledger."""
        self._problem = ""

    def _move(self, event: ShadowEvent) -> None:
        self._state = after(TABLE, self._state, event)

    # --- life -----------------------------------------------------------------------------------------------------

    def open_log(self) -> SourceImage | None:
        """See `Readable.open_log`."""
        if self.log is None:
            self._open_soon()
        return self.log

    async def opened(self) -> SourceImage | None:
        """See `Readable.opened`."""
        if self.open_log() is None and self._state is ShadowState.OPENING:
            await self._opened.wait()
        return self.log

    def _open_soon(self) -> None:
        if self._state is not ShadowState.CLOSED or self._clock.monotonic() < self._reopen_at:
            return
        self._move(ShadowEvent.OPEN)
        self._work = trio.CancelScope()
        self._opened.clear()
        self._tasks.start_soon(self._live, self._work)

    async def _live(self, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self._source.join(self._index, self)
            except MetadataError as error:
                self._opening_failed(error)
                return
            try:
                await self._show_and_follow()
            finally:
                self._source.leave(self._index, self)

    async def _show_and_follow(self) -> None:
        with trio.move_on_after(FIRST_ANSWERS_SECONDS):
            await self.refresh_tail()
        self._move(ShadowEvent.OPENED)
        if self._state in FINAL:
            return
        if self._image.last is not None:
            self._open_source()
        self.log, self.failure, self._problem = self._image, None, ""
        self._opened.set()
        self.notify_change()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._settle)
            nursery.start_soon(self._follow_tail)

    def _opening_failed(self, error: Exception) -> None:
        self._move(ShadowEvent.OPENING_FAILED)
        if self._state in FINAL:
            return
        self._log_problem("shadow_not_opened", error)
        self._reopen_at = self._clock.monotonic() + REOPEN_SECONDS
        self.failure = ErrorCode.KAFKA_STORAGE_ERROR
        self._opened.set()
        self.notify_change()

    def _log_problem(self, event: str, error: Exception) -> None:
        """Logs a problem once, until the reason changes."""
        if self._problem != str(error):
            self._problem = str(error)
            self._logger.warning(event, reason=str(error), next="it is tried again")

    def end(self) -> None:
        """See `Readable.end`."""
        self._stop(ShadowEvent.END, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def release(self) -> None:
        """See `Readable.release`."""
        self._stop(ShadowEvent.RELEASE, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _stop(self, event: ShadowEvent, code: ErrorCode) -> None:
        if self._state in FINAL:
            return
        self._move(event)
        self.log, self.failure = None, code
        self._work.cancel()
        self._opened.set()
        self.notify_change()

    # --- the source's records ---------------------------------------------------------------------------------------

    def records_replaced(self, items: Sequence[KeyValue]) -> None:
        """See `SourceListener.records_replaced`."""
        self._image.replace([item for item in items if self._is_segment(item.key)])
        self._take_records()

    def records_changed(self, events: Sequence[Event]) -> None:
        """See `SourceListener.records_changed`."""
        self._image.apply([event for event in events if self._is_segment(event.key)])
        self._take_records()

    def _is_segment(self, key: str) -> bool:
        """Whether the name is that of a segment; a ledger with another name is logged and not shown."""
        try:
            parse_segment_name(key)
        except NotASegment as error:
            self._logger.error("ledger_not_a_segment", reason=error.text, next="delete that ledger")
            return False
        return True

    def _take_records(self) -> None:
        if self.segments and not self._image.segments:
            self._logger.warning("shadow_ended", reason="the ledgers of its source are gone", next="delete the shadow")
            self.end()
            return
        # The list stays the same one: subscriptions that read it follow it.
        take_chain(self.segments, self._image, self._metadata, self._bookies, self._entries)
        for entry in self._image.waiting():
            try:
                self._take(entry)
            except RefusedEntry as error:
                self._refused(error)
        self._wake_tail()
        if self._long_poll is not None:
            self._long_poll.cancel()
        if self.log is not None:
            self.notify_change()

    def _wake_tail(self) -> None:
        self._tail_changed.notify()

    # --- the tail ---------------------------------------------------------------------------------------------------

    async def refresh_tail(self) -> None:
        """Asks the bookies of the last ledger for its last add confirmed, and shows the entries up to it."""
        if not self.segments or self.segments[-1].ledger.record.sealed:
            return
        segment = self.segments[-1]
        try:
            await segment.ledger.ask_bookies()
            await self._advance(segment)
        except (LedgerError, MetadataError, WorldError) as error:
            self._log_problem("shadow_tail_not_read", error)

    async def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """See `LogReader.end_of_epoch`.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: another broker may have shown a reader more than is known here yet.
        """
        found = await super().end_of_epoch(epoch)
        if not self._image.settled and found[1] >= self._image.high_watermark:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "how far its source has been shown is not known yet")
        return found

    async def _settle(self) -> None:
        """Waits until this broker shows everything that another one may have shown (`image` invariant 2).

        Everything shown elsewhere was stored on some bookie before this partition was opened.
        """
        end: EntryId | None = None
        asked_in: tuple[LedgerId, SessionId] | None = None
        while self.segments and not self.segments[-1].ledger.record.sealed:
            ledger = self.segments[-1].ledger
            if asked_in != (ledger.id, ledger.session):
                # Entries that a claim has excluded since then are not awaited.
                end, asked_in = await ledger.last_stored(), (ledger.id, ledger.session)
            if end is None:
                asked_in = None
            elif end <= ledger.last_add_confirmed and self._seen == (ledger.id, ledger.last_add_confirmed):
                break
            await self._clock.sleep(SETTLE_SECONDS)
        self._image.settled = True
        self.notify_change()

    async def _follow_tail(self) -> None:
        while True:
            segment = self.segments[-1] if self.segments else None
            quiet_seconds = self._replicated_at + REPLICATED_SECONDS - self._clock.monotonic()
            try:
                if segment is None or segment.ledger.record.sealed:
                    await self._tail_changed.wait()
                elif self._seen != (segment.ledger.id, segment.ledger.last_add_confirmed):
                    await self._advance(segment)
                elif self._unconfirmed is not None:
                    await self._confirm(segment, *self._unconfirmed)
                elif quiet_seconds > 0:
                    with trio.move_on_after(quiet_seconds):
                        await self._tail_changed.wait()
                else:
                    with trio.CancelScope() as self._long_poll:
                        await segment.ledger.listen(EntryId(segment.ledger.last_add_confirmed + 1))
            except (LedgerError, MetadataError, WorldError) as error:
                self._log_problem("shadow_tail_not_read", error)
                await self._clock.sleep(RETRY_SECONDS)

    async def _confirm(self, segment: Segment, number: LedgerId, entry: EntryId) -> None:
        """Asks the bookies whether a replicated entry is confirmed, because its sender is not trusted."""
        ledger = segment.ledger
        if number == ledger.id and entry > ledger.last_add_confirmed:
            with trio.move_on_after(CONFIRMED_SECONDS) as waited:
                with trio.CancelScope() as self._long_poll:
                    await ledger.listen(EntryId(ledger.last_add_confirmed + 1))
            if not waited.cancelled_caught:
                return
            self._refused(RefusedEntry(f"no bookie knows entry {entry} of segment {segment.base_offset} as confirmed"))
        if self._unconfirmed == (number, entry):
            self._unconfirmed = None

    def _refused(self, error: RefusedEntry) -> None:
        self._logger.warning("entry_refused", reason=str(error), next="the records are read from storage")

    async def _advance(self, segment: Segment) -> None:
        """Shows the confirmed entries of the last segment."""
        ledger = segment.ledger
        last = ledger.last_add_confirmed
        known, entry = self._seen
        first = max(
            entry + 1 if known == ledger.id else ledger.start_entry, ledger.start_entry, last - TOGETHER_ENTRIES
        )

        def last_header() -> EntryHeader:
            with segment.view() as view:
                view.payload(EntryId(min(first, last)))  # so that one request loads all of them
                return segment.header(view, last)

        if last >= ledger.start_entry:
            header = await read_from_memory(last_header)
            self._show(segment, header)
        self._seen = (ledger.id, last)

    def _show(self, segment: Segment, header: EntryHeader) -> None:
        if self._image.confirmed(segment.base_offset, header) and self.log is not None:
            self.notify_change()

    # --- replicated entries -----------------------------------------------------------------------------------------

    def replicated(self, entry: ReplicatedEntry) -> None:
        """The source's broker has confirmed an entry. If its bytes were sent, it is shown without asking a bookie.

        A partition that is not open ignores it, and reads it from storage when it opens.

        Raises:
            RefusedEntry: it contradicts what is known; nothing was changed.
        """
        if self.log is not None:
            self._take(entry)

    def _take(self, replicated: ReplicatedEntry) -> None:
        if self._image.judge(replicated) is None:
            return
        segment = self.segments[self.segment_of(replicated.segment)]
        ledger = segment.ledger
        header = None if replicated.stored is None else self._checked(ledger, replicated, replicated.stored)
        local = is_local(ledger)
        if not local:
            self._keep_earlier(ledger, replicated)
        self._replicated_at = self._clock.monotonic()
        if header is not None and replicated.stored is not None:
            if not local:
                self._entries.keeper(ledger)(replicated.entry, replicated.stored)
            ledger.take_confirmed(replicated.entry)
            if replicated.entry == ledger.last_add_confirmed:
                self._seen = (ledger.id, replicated.entry)
                self._show(segment, header)
        if ledger.last_add_confirmed < replicated.last_add_confirmed:
            self._unconfirmed = (ledger.id, replicated.last_add_confirmed)
            self._wake_tail()

    @staticmethod
    def _checked(ledger: Ledger, replicated: ReplicatedEntry, stored: bytes) -> EntryHeader:
        """The header of an entry that was sent; raises RefusedEntry if the bytes are not that entry."""
        try:
            payload = check_copy(ledger, replicated.entry, stored)
        except LedgerError as error:
            raise RefusedEntry(f"{replicated.name}: {error}") from error
        try:
            header = unpack_header(payload)
        except UnknownEntry as error:
            raise RefusedEntry(f"{replicated.name} {error.problem}") from error
        if not replicated.segment <= header.base_offset <= header.next_offset:
            raise RefusedEntry(f"{replicated.name} has a header that no entry of it has: {header}")
        if replicated.next_offset not in (None, header.next_offset):
            raise RefusedEntry(
                f"{replicated.name} ends at offset {header.next_offset}, not at {replicated.next_offset} as was sent"
            )
        return header

    def _keep_earlier(self, ledger: Ledger, replicated: ReplicatedEntry) -> None:
        keep = self._entries.keeper(ledger)
        for number, stored in enumerate(replicated.earlier, replicated.entry - len(replicated.earlier)):
            entry = EntryId(number)
            if stored is not None and entry >= ledger.start_entry:
                try:
                    check_copy(ledger, entry, stored)
                except LedgerError as error:
                    raise RefusedEntry(f"entry {entry} of segment {replicated.segment}: {error}") from error
                keep(entry, stored)
