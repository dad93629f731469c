"""A partition of a shadow: its source's ledgers, read by another broker.

1. It writes nothing, to no bookie and to no metadata, and claims and fences nothing.
2. Opening it costs a question to the bookies of the last ledger, and for all partitions of one source together one
   metadata read and one watch (`source`). How far the last ledger is confirmed its bookies tell, in long polls.
3. What is shown is what `image` knows; who reads never meets an entry that is not confirmed.
4. A source that ends, ends it: its readers get an error that makes them ask for the topic again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import NO_ENTRY
from gnomon.bookie.ledger import (
    Bookies,
    EntryCache,
    EntryId,
    Ledger,
    LedgerId,
    Session,
    adopt_ledger,
    check_copy,
    is_local,
    read_from_memory,
)
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.entry import HEADER_BYTES, EntryHeader, EntryKind, LeaderEpoch, Offset, unpack_header
from gnomon.broker.partition.readable import REOPEN_SECONDS, Readable
from gnomon.broker.partition.segment import Segment
from gnomon.broker.shadow.image import RefusedEntry, SourceImage, ToldEntry
from gnomon.broker.shadow.source import SourceLedgers
from gnomon.metadata.client import Event, KeyValue, Metadata, MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.errors import ErrorCode

FIRST_ANSWERS_SECONDS = 2.0
"""How long opening waits for bookies that do not answer; then it shows what it knows."""
RETRY_SECONDS = 0.5
CONFIRMED_SECONDS = 1.5
"""Within this time a bookie has heard that an entry is confirmed which the source's broker tells of."""
SETTLE_SECONDS = 0.25
EXPLICIT_LAC_SECONDS = 1.0
"""So long it takes at most until bookies hear how far a quiet ledger is confirmed."""
TOLD_SECONDS = 1.0
"""While the source's broker tells its entries, and so long after, no bookie is asked for them."""
TOGETHER_ENTRIES = 64
"""So many new entries are loaded together with the header of the last one."""


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
        nursery: trio.Nursery,
        advanced: Callable[[Readable], None],
        turn_ended: Callable[[], None],
        logger: Logger,
    ) -> None:
        """The shadow of the partition of this number of `source`; not open yet.

        Args:
            open_source: called where nobody may be writing the last segment; opens it, if that is this broker's to do.
        """
        super().__init__(logger, advanced, turn_ended)
        self._metadata = metadata
        self._bookies = bookies
        self._entries = entries
        self._source = source
        self._index = index
        self._open_source = open_source
        self._clock = clock
        self._nursery = nursery
        self._image = SourceImage()
        self._living: trio.CancelScope | None = None
        self._over = False
        self._failed_at = float("-inf")
        self._told_at = float("-inf")
        self._opened = trio.Event()
        self._moved = trio.Event()
        self._listening: trio.CancelScope | None = None
        self._seen: tuple[LedgerId | None, EntryId] = (None, NO_ENTRY)
        """The ledger whose header was read last, and the entry."""
        self._told_of: tuple[LedgerId, EntryId] | None = None
        """An entry that is said to be confirmed and did not come along, and its ledger."""
        self._problem = ""

    # --- life -----------------------------------------------------------------------------------------------------

    def open_log(self) -> SourceImage | None:
        """See `Readable.open_log`."""
        if self.log is None:
            self._open_soon()
        return self.log

    async def opened(self) -> SourceImage | None:
        """See `Readable.opened`."""
        if self.open_log() is None and self._living is not None:
            await self._opened.wait()
        return self.log

    def _open_soon(self) -> None:
        if self._over or self._living is not None or self._clock.monotonic() - self._failed_at < REOPEN_SECONDS:
            return
        self._living = trio.CancelScope()
        self._opened = trio.Event()
        self._nursery.start_soon(self._live, self._living)

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
            await self._hear()
        if self._image.last is not None:
            self._open_source()
        self.log, self.failure, self._problem = self._image, None, ""
        self._opened.set()
        self._changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._settle)
            nursery.start_soon(self._follow_tail)

    def _opening_failed(self, error: Exception) -> None:
        self._tell("shadow_not_opened", error)
        self._living = None
        self._failed_at = self._clock.monotonic()
        self.failure = ErrorCode.KAFKA_STORAGE_ERROR
        self._opened.set()
        self._changed()

    def _tell(self, event: str, error: Exception) -> None:
        """Logs a problem, once until the reason is another."""
        if self._problem != str(error):
            self._problem = str(error)
            self._logger.warning(event, reason=str(error), next="it is tried again")

    def end(self) -> None:
        """See `Readable.end`."""
        self._stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def release(self) -> None:
        """See `Readable.release`."""
        self._stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _stop(self, code: ErrorCode) -> None:
        if self._over:
            return
        self._over = True
        self.log, self.failure = None, code
        if self._living is not None:
            self._living.cancel()
        self._opened.set()
        self._changed()

    # --- the source's records ---------------------------------------------------------------------------------------

    def records_replaced(self, items: Sequence[KeyValue]) -> None:
        """See `Joined.records_replaced`."""
        self._image.replace(items)
        self._take_records()

    def records_changed(self, events: Sequence[Event]) -> None:
        """See `Joined.records_changed`."""
        self._image.apply(events)
        self._take_records()

    def _take_records(self) -> None:
        if self.segments and not self._image.segments:
            self._logger.warning("shadow_ended", reason="the ledgers of its source are gone", next="delete the shadow")
            self.end()
            return
        known = {segment.ledger.id: segment for segment in self.segments}
        segments = []
        for item in self._image.segments:
            segment = known.get(item.ledger)
            if segment is None:
                ledger = adopt_ledger(self._metadata, self._bookies, item.stored)
                segment = Segment(ledger, item.base_offset, self._entries)
            else:
                segment.ledger.take_record(item.stored)
            if item.record.sealed and segment.next_offset is None:
                segment.sealed_as_recorded()
            segments.append(segment)
        self.segments[:] = segments  # the same list: whoever reads for subscriptions follows it
        for told in self._image.waiting():
            try:
                self._take(told)
            except RefusedEntry as error:
                self._refused(error)
        self._stir()
        if self.log is not None:
            self._changed()

    def _wake_tail(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def _stir(self) -> None:
        """Has the tail looked at anew, by new records."""
        self._wake_tail()
        if self._listening is not None:
            self._listening.cancel()

    # --- the tail ---------------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        """Asks the bookies of the last ledger how far it is confirmed."""
        if not self.segments or self.segments[-1].ledger.record.sealed:
            return
        segment = self.segments[-1]
        try:
            await segment.ledger.refresh_lac()
            await self._advance(segment)
        except (LedgerError, MetadataError, WorldError) as error:
            self._tell("shadow_tail_not_read", error)

    async def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """See `LogReader.end_of_epoch`.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: a reader may have been shown more elsewhere than is known here yet.
        """
        found = await super().end_of_epoch(epoch)
        if not self._image.settled and found[1] >= self._image.high_watermark:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "how far its source has been shown is not known yet")
        return found

    async def _settle(self) -> None:
        """See `image` invariant 6: what was shown elsewhere is stored on some bookie, and was not written later."""
        end: EntryId | None = None
        asked_in: tuple[LedgerId, Session] | None = None
        while self.segments and not self.segments[-1].ledger.record.sealed:
            ledger = self.segments[-1].ledger
            if asked_in != (ledger.id, ledger.session):
                # What a claim has excluded since is not waited for.
                end, asked_in = await ledger.last_stored(), (ledger.id, ledger.session)
            if end is None:
                asked_in = None
            elif end <= ledger.last_add_confirmed and self._seen == (ledger.id, ledger.last_add_confirmed):
                break
            await self._clock.sleep(SETTLE_SECONDS)
        self._image.settled = True
        self._changed()

    async def _follow_tail(self) -> None:
        while True:
            segment = self.segments[-1] if self.segments else None
            quiet_seconds = self._told_at + TOLD_SECONDS - self._clock.monotonic()
            try:
                if segment is None or segment.ledger.record.sealed:
                    await self._moved.wait()
                elif self._seen != (segment.ledger.id, segment.ledger.last_add_confirmed):
                    await self._advance(segment)
                elif self._told_of is not None:
                    await self._hear_of(segment, *self._told_of)
                elif quiet_seconds > 0:
                    with trio.move_on_after(quiet_seconds):
                        await self._moved.wait()
                else:
                    with trio.CancelScope() as self._listening:
                        await segment.ledger.listen(EntryId(segment.ledger.last_add_confirmed + 1))
            except (LedgerError, MetadataError, WorldError) as error:
                self._tell("shadow_tail_not_read", error)
                await self._clock.sleep(RETRY_SECONDS)

    async def _hear_of(self, segment: Segment, number: LedgerId, entry: EntryId) -> None:
        """Asks the bookies whether an entry is confirmed: whoever told of it may have made it up."""
        ledger = segment.ledger
        if number == ledger.id and entry > ledger.last_add_confirmed:
            with trio.move_on_after(CONFIRMED_SECONDS) as waited:
                with trio.CancelScope() as self._listening:
                    await ledger.listen(EntryId(ledger.last_add_confirmed + 1))
            if not waited.cancelled_caught:
                return
            self._refused(RefusedEntry(f"no bookie knows entry {entry} of segment {segment.base_offset} as confirmed"))
        if self._told_of == (number, entry):
            self._told_of = None

    def _refused(self, error: RefusedEntry) -> None:
        self._logger.warning("entry_refused", reason=str(error), next="the records are read from storage")

    async def _advance(self, segment: Segment) -> None:
        """Shows what is confirmed of the last segment."""
        ledger = segment.ledger
        last = ledger.last_add_confirmed
        known, entry = self._seen
        first = max(
            entry + 1 if known == ledger.id else ledger.start_entry, ledger.start_entry, last - TOGETHER_ENTRIES
        )

        def last_header() -> EntryHeader:
            with segment.view() as view:
                view.payload(EntryId(min(first, last)))  # so that all are loaded by one question
                return segment.header(view, last)

        if last >= ledger.start_entry:
            header = await read_from_memory(last_header)
            self._show(segment, header)
        self._seen = (ledger.id, last)

    def _show(self, segment: Segment, header: EntryHeader) -> None:
        if self._image.confirmed(segment.base_offset, header) and self.log is not None:
            self._changed()

    # --- what the source's broker tells -----------------------------------------------------------------------------

    def told(self, told: ToldEntry) -> None:
        """The source's broker has confirmed an entry: it is shown without asking a bookie where it came along.

        A partition that is not open reads it from storage when it is.

        Raises:
            RefusedEntry: it cannot be; nothing was taken.
        """
        if self.log is not None:
            self._take(told)

    def _take(self, told: ToldEntry) -> None:
        if self._image.judge(told) is None:
            return
        segment = self.segments[self.segment_of(told.segment)]
        ledger = segment.ledger
        header = None if told.stored is None else self._checked(ledger, told, told.stored)
        local = is_local(ledger)
        if not local:
            self._keep_earlier(ledger, told)
        self._told_at = self._clock.monotonic()
        if header is not None and told.stored is not None:
            if not local:
                self._entries.keeper(ledger)(told.entry, told.stored)
            ledger.take_confirmed(told.entry)
            if told.entry == ledger.last_add_confirmed:
                self._seen = (ledger.id, told.entry)
                self._show(segment, header)
        if ledger.last_add_confirmed < told.last_add_confirmed:
            self._told_of = (ledger.id, told.last_add_confirmed)
            self._wake_tail()

    @staticmethod
    def _checked(ledger: Ledger, told: ToldEntry, stored: bytes) -> EntryHeader:
        """The header of an entry that came along; raises RefusedEntry where it is not what it is told to be."""
        try:
            payload = check_copy(ledger, told.entry, stored)
        except LedgerError as error:
            raise RefusedEntry(f"entry {told.entry} of segment {told.segment}: {error}") from error
        if len(payload) < HEADER_BYTES:
            raise RefusedEntry(f"entry {told.entry} of segment {told.segment} is none of a partition")
        header = unpack_header(payload)
        if not told.segment <= header.base_offset <= header.next_offset or header.kind not in set(EntryKind):
            raise RefusedEntry(f"entry {told.entry} of segment {told.segment} says what no entry of it says: {header}")
        if told.next_offset not in (None, header.next_offset):
            raise RefusedEntry(
                f"entry {told.entry} of segment {told.segment} ends at offset {header.next_offset}, not at"
                f" {told.next_offset} as was told"
            )
        return header

    def _keep_earlier(self, ledger: Ledger, told: ToldEntry) -> None:
        keep = self._entries.keeper(ledger)
        for number, stored in enumerate(told.earlier, told.entry - len(told.earlier)):
            entry = EntryId(number)
            if stored is not None and entry >= ledger.start_entry:
                try:
                    check_copy(ledger, entry, stored)
                except LedgerError as error:
                    raise RefusedEntry(f"entry {entry} of segment {told.segment}: {error}") from error
                keep(entry, stored)
