"""The subscriptions of one partition under one term of its leader: what drives their dispatcher.

1. Positions are loaded once, before the first consumer comes; after that nothing is read from the store.
2. An acknowledgement is stored with the next flush: those of the last moments before a crash come again.
3. What changes a subscription other than by acknowledging it (new, sought, deleted) is durable before it is answered.
4. Where records went that a subscription had not acknowledged, it goes on behind them and its consumers are told; if it
   has none, those are told who come next, on whatever broker: until then its stored position stays where it was.
5. The term ends with the leadership, or when the store says that somebody else is at work: consumers are told to come
   back, and whoever hosts the partition then loads what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Protocol

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledger import LocalViews, NotInMemory, Reading
from gnomon.broker.partition.cut import Cut
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.readable import Waiter
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.dispatcher import Dispatcher, Part
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.reading import Batch, Bounds, LogPositions, Segmented
from gnomon.broker.subscriptions.store import Position, StoreFenced, SubscriptionsError, SubscriptionsStore
from gnomon.broker.subscriptions.subscription import Consumer, Link, Subscription
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock, WorldError
from gnomon.wire.kafka.batch import MalformedBatch
from gnomon.wire.kafka.compression import CorruptData, TooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import iterate_records

BATCHES_PER_TURN = 64
"""Others have their turn after so many."""
RETRY_SECONDS = 1.0
FINISH_SECONDS = 1.0
"""How long consumers wait for the last positions to be stored before they are sent elsewhere."""
NAMES_TOLD = 10
"""Subscriptions named in a line of the log."""
KEYS_BYTES_MAX = 64 << 20
"""Records of a batch that decompress to more go to consumers by their offsets, not their keys."""
STORE_ERRORS = (MetadataError, LedgerError, SubscriptionsError, WorldError)


class ReadablePartition(Segmented, Protocol):
    """What is needed of a partition, or of a shadow's."""

    @property
    def log(self) -> Bounds | None:
        """What can be read; None until opened."""

    @property
    def failure(self) -> ErrorCode | None:
        """Why it could not be opened, or is not this broker's any more."""

    def open_log(self) -> object:
        """Begins to open it where it is not."""

    async def opened(self) -> Bounds | None:
        """The log, once it is open."""

    async def offset_for_timestamp(self, timestamp: int) -> tuple[Offset, int, int] | None:
        """The first record that is as late."""

    def wait(self, waiter: Waiter) -> None:
        """Has `waiter` told what happens."""

    def stop_waiting(self, waiter: Waiter) -> None:
        """Undoes `wait`."""


class DeliveringLink(Link):
    """A connection that takes deliveries."""

    def deliver(self, batch: Batch, parts: Sequence[Part]) -> None:
        """Sends a batch, once for all consumers of the connection that get something of it."""
        raise NotImplementedError

    def let_go(self, consumers: Sequence[Consumer], *, to_return: bool) -> None:
        """Forgets consumers, which are not attached any more, and may tell them to come back."""
        raise NotImplementedError

    def tell_missed(self, consumers: Sequence[Consumer], first: Offset, end: Offset) -> None:
        """Tells consumers that records below `end` went unacknowledged; none of them was below `first`."""
        raise NotImplementedError


class HostedPartition:
    """See the module; made for a partition that is open."""

    def __init__(
        self,
        partition: ReadablePartition,
        log: Bounds,
        store: SubscriptionsStore,
        clock: Clock,
        timers: Timers,
        may_serve: Callable[[], bool],
        tell_ended: Callable[[HostedPartition], None],
        logger: Logger,
        ranges_max: int,
        cut: Cut | None,
    ) -> None:
        """The subscriptions of an open partition.

        Args:
            may_serve: whether this broker leads the partition for certain.
            tell_ended: called once when the term has ended; has to see to `finish`.
            ranges_max: runs acknowledged out of order that are stored of a subscription.
            cut: the last one of the log, read after that was opened.
        """
        self.partition = partition
        self.positions = LogPositions(log, partition)
        self.dispatcher = Dispatcher(log.high_watermark)
        self.lock = trio.Lock()
        """Held by whoever changes subscriptions or stores positions."""
        self.ended = False
        """Nobody is served any more."""
        self.finished = trio.Event()
        """Set once that is so, and all is stored that can be."""
        self._log = log
        self._store = store
        self._clock = clock
        self._timers = timers
        self._may_serve = may_serve
        self._tell_ended = tell_ended
        self._logger = logger
        self._ranges_max = ranges_max
        self._start_offset = log.start_offset
        self._cut = cut
        self._missed: dict[str, tuple[Offset, Offset]] = {}
        """By subscription, what nobody of it was told yet: see invariant 4."""
        self._readings: dict[Offset, Reading] = {}
        """What is being fetched from bookies, by the offset that somebody wants."""
        self._unreadable: dict[Offset, Timer] = {}
        self._told = ""
        self._next: Timer | None = None
        self._due: Timer | None = None

    # --- life ---------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads every subscription from the store, and begins to follow the log.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: that did not work.
        """
        offsets: dict[Dlsn, Offset] = {}
        for name, position in (await self._store.load()).items():
            offset = await self._offset_of(position.dlsn, offsets)
            self.dispatcher.add(name, Cursor(offset, position.ranges))
            if self._was_cut_off(position.dlsn):
                self._missed[name] = (Offset(min(position.dlsn.segment, offset)), offset)
        if self._missed:
            self._tell_jumped(list(self._missed), self._log.start_offset)
        self.partition.wait(self)
        self.wake()

    async def _offset_of(self, dlsn: Dlsn, known: dict[Dlsn, Offset]) -> Offset:
        offset = known.get(dlsn)
        if offset is None:
            offset = known[dlsn] = await self.positions.offset_of(dlsn)
        return max(offset, self._log.start_offset)  # which may have moved while something was stored

    def _was_cut_off(self, dlsn: Dlsn) -> bool:
        cut = self._cut
        return cut is not None and cut.offset <= self._log.start_offset and dlsn < Dlsn(*cut[:3])

    def end(self) -> None:
        """Gives nobody anything any more; `finish` follows, by who was told. Idempotent."""
        if self.ended:
            return
        self.ended = True
        self.partition.stop_waiting(self)
        for timer in (self._next, self._due, *self._unreadable.values()):
            if timer is not None:
                timer.cancel()
        for reading in self._readings.values():
            reading.close()
        self._readings.clear()
        self._tell_ended(self)

    async def finish(self) -> None:
        """After `end`: stores what can still be stored, then tells every consumer to come back."""
        try:
            with trio.move_on_after(FINISH_SECONDS):
                async with self.lock:
                    await self._store_positions(len(self.dispatcher.dirty))
                    await self._store.close()
        except STORE_ERRORS as error:
            self._logger.info("positions_not_stored", reason=str(error), meaning="some records come again")
        subscriptions = self.dispatcher.subscriptions.values()
        self.send_away([consumer for subscription in subscriptions for consumer in subscription.consumers])
        self.finished.set()

    def send_away(self, consumers: Iterable[Consumer], *, to_return: bool = True) -> None:
        """Lets consumers go, and tells them to come back unless they know better."""
        by_link: dict[DeliveringLink, list[Consumer]] = {}
        for consumer in consumers:
            assert isinstance(consumer.link, DeliveringLink)
            self.dispatcher.detach(consumer)
            by_link.setdefault(consumer.link, []).append(consumer)
        for link, gone in by_link.items():
            link.let_go(gone, to_return=to_return)

    def wake(self) -> None:
        """See `Waiter.wake`."""
        if self.ended:
            return
        if self.partition.failure is not None or self.partition.log is not self._log:
            self.end()
            return
        self.dispatcher.advanced(self._log.high_watermark)
        self.pump()

    # --- giving -------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Gives what can be given now."""
        if self.ended:
            return
        dispatcher, start_offset = self.dispatcher, self._log.start_offset
        if start_offset > self._start_offset:
            self._start_offset = start_offset
            self._jump(dispatcher.trimmed(start_offset), start_offset)
        for _ in range(BATCHES_PER_TURN):
            wanted = dispatcher.wanted(self._not_now())
            if wanted is None:
                self._forget_readings()
                return
            if not self._may_serve():
                break
            with LocalViews() as views:
                try:
                    batch = self.positions.batch(wanted, views)
                except NotInMemory as missing:
                    self._fetch(wanted, missing)
                    continue
                except LedgerError as error:
                    self._try_later(wanted, error)
                    continue
                self._give(wanted, batch)
            reading = self._readings.pop(wanted, None)
            if reading is not None:
                reading.close()
        if self._next is None:
            delay = 0.0 if self._may_serve() else RETRY_SECONDS
            self._next = self._timers.call_at(self._clock.monotonic() + delay, self._go_on)

    def _jump(self, jumped: Sequence[tuple[Subscription, Offset]], end: Offset) -> None:
        """Tells those who have missed something, or keeps it for who comes."""
        if not jumped:
            return
        self._tell_jumped([subscription.name for subscription, _ in jumped], end)
        told: dict[tuple[DeliveringLink, Offset], list[Consumer]] = {}
        for subscription, first in jumped:
            if not subscription.consumers:
                self._missed[subscription.name] = (self._missed.get(subscription.name, (first, end))[0], end)
            for consumer in subscription.consumers:
                assert isinstance(consumer.link, DeliveringLink)
                told.setdefault((consumer.link, first), []).append(consumer)
        for (link, first), consumers in told.items():
            link.tell_missed(consumers, first, end)

    def _tell_jumped(self, names: list[str], end: Offset) -> None:
        self._logger.warning(
            "subscriptions_jumped",
            names=names[:NAMES_TOLD],
            count=len(names),
            to_offset=end,
            meaning="records went that they had not acknowledged",
        )

    def attached(self, consumer: Consumer) -> None:
        """A consumer has come: it is told what its subscription has missed, if nobody was."""
        missed = self._missed.pop(consumer.subscription.name, None)
        if missed is not None:
            assert isinstance(consumer.link, DeliveringLink)
            consumer.link.tell_missed([consumer], *missed)
            self.dispatcher.dirty[consumer.subscription] = None

    def _go_on(self) -> None:
        self._next = None
        self.pump()

    def _give(self, wanted: Offset, batch: Batch) -> None:
        def keys() -> list[bytes | None]:
            try:
                return [record.key for record in iterate_records(batch.records, KEYS_BYTES_MAX)]
            except (MalformedBatch, TooLarge, CorruptData):
                return []

        parcels = self.dispatcher.give(wanted, batch.base_offset, batch.next_offset, keys)
        for link, parts in parcels.items():
            assert isinstance(link, DeliveringLink)
            link.deliver(batch, parts)

    def _not_now(self) -> Collection[Offset]:
        """Offsets whose batches are not here yet."""
        if not self._readings and not self._unreadable:
            return ()
        return {*self._unreadable, *(offset for offset, reading in self._readings.items() if reading.waiting)}

    def _fetch(self, wanted: Offset, missing: NotInMemory) -> None:
        self._readings.setdefault(wanted, Reading()).load(missing, self.pump)

    def _forget_readings(self) -> None:
        """What was fetched for somebody who has gone since."""
        for offset in [offset for offset, reading in self._readings.items() if not reading.waiting]:
            self._readings.pop(offset).close()

    def _try_later(self, wanted: Offset, error: LedgerError) -> None:
        self._logger.error("records_not_readable", offset=wanted, reason=str(error), next="it is tried again")

        def again() -> None:
            del self._unreadable[wanted]
            self.pump()

        self._unreadable[wanted] = self._timers.call_at(self._clock.monotonic() + RETRY_SECONDS, again)

    def set_timer(self) -> None:
        """Sees to it that what is due later is given then."""
        due = self.dispatcher.next_due()
        if due is not None and (self._due is None or self._due.deadline > due):
            if self._due is not None:
                self._due.cancel()
            self._due = self._timers.call_at(due, self._tick)

    def _tick(self) -> None:
        self._due = None
        self.dispatcher.tick(self._clock.monotonic())
        self.set_timer()
        self.pump()

    # --- changing subscriptions ---------------------------------------------------------------------------------

    async def create(self, names: Iterable[str], offset: Offset) -> None:
        """Makes those of the subscriptions that do not exist; they begin at `offset`.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether they are made is unknown.
        """
        known = self.dispatcher.subscriptions
        async with self.lock:
            missing = [name for name in names if name not in known]
            if not missing:
                return
            dlsn = await self.positions.dlsn_of(offset)
            offsets = {dlsn: offset}
            for name, position in (await self._store.create(dict.fromkeys(missing, dlsn))).items():
                self.dispatcher.add(name, Cursor(await self._offset_of(position.dlsn, offsets), position.ranges))

    async def seek(self, subscription: Subscription, offset: Offset) -> None:
        """Moves a subscription; its consumers are told to come back, and begin at `offset`.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether it was moved is unknown.
        """
        self.send_away(subscription.consumers)
        async with self.lock:
            await self._store.reset_commit_position(subscription.name, await self.positions.dlsn_of(offset))
            self.send_away(subscription.consumers)
            self._missed.pop(subscription.name, None)
            self.dispatcher.seek(subscription, max(offset, self._log.start_offset))

    async def delete(self, subscription: Subscription) -> None:
        """Deletes a subscription, and lets its consumers go: they were asked.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether it is deleted is unknown.
        """
        async with self.lock:
            await self._store.delete_subscriber(subscription.name)
            self.send_away(subscription.consumers, to_return=False)
            self._missed.pop(subscription.name, None)
            self.dispatcher.remove(subscription.name)

    # --- storing positions --------------------------------------------------------------------------------------

    async def flush(self, positions_max: int) -> None:
        """Stores positions that have changed, those that changed longest ago first."""
        if not self.dispatcher.dirty:
            return
        async with self.lock:
            if self.ended:
                return
            try:
                changed = await self._store_positions(positions_max)
            except StoreFenced as error:
                self._logger.info("subscriptions_taken_over", reason=str(error))
                self.end()
                return
            except STORE_ERRORS as error:
                self._tell_once(str(error))
                return
            self._told = ""
        if changed:
            self._logger.info("subscriptions_changed_elsewhere", names=changed[:NAMES_TOLD], count=len(changed))
            self.end()

    def _tell_once(self, reason: str) -> None:
        if self._told != reason:
            self._told = reason
            self._logger.warning("positions_not_stored", reason=reason, next="it is tried again")

    async def _store_positions(self, positions_max: int) -> tuple[str, ...]:
        dirty = self.dispatcher.dirty
        taken = list(islice(dirty, positions_max))
        for subscription in taken:
            del dirty[subscription]
        known: dict[Offset, Position] = {}
        positions: dict[str, Position] = {}
        try:
            for subscription in taken:
                cursor = subscription.cursor
                offset = cursor.mark_delete
                ranges = cursor.first_ranges(self._ranges_max)  # of the same moment as the offset
                position = known.get(offset)
                if position is None:
                    position = known[offset] = Position(await self.positions.dlsn_of(offset))
                positions[subscription.name] = Position(position.dlsn, ranges) if ranges else position
            return await self._store.advance_many(positions)
        except BaseException:
            dirty.update(dict.fromkeys(taken))
            raise
