"""The subscriptions of one partition during one term (time of leadership): the driver of their dispatcher.

1. Positions are loaded once, before the first consumer attaches. Later, positions are read from the store only when a
   consumer subscribes with a name that is unknown here: the store may have it.
2. An acknowledgement is stored with the next flush. After a crash, records acknowledged since the last flush are
   delivered again.
3. Each other change of a subscription (creation, seek, deletion) is durable before it is answered. Deliveries after a
   creation or a seek have another cursor epoch.
4. If records that a subscription has not acknowledged are deleted, the subscription continues after them (`missed`).
5. The term ends with the leadership, when the log is opened again, or when the store reports another owner: consumers
   are notified to attach again, and the next host of the partition loads the stored positions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Generic

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.readable import Readable
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.delivery_channel import DeliveryChannelT
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.missed import NAMES_LOGGED, Missed
from gnomon.broker.subscriptions.positions.store import Position, StoreFenced, SubscriberChanged, SubscriptionsStore
from gnomon.broker.subscriptions.pump import Pump
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.broker.subscriptions.subscription import AttachedConsumer, Subscription
from gnomon.broker.subscriptions.unpacked import UnpackedBatches
from gnomon.log.cut import Cut
from gnomon.log.dlsn import CommitPoint
from gnomon.log.entry import Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.log_reader import LogBounds
from gnomon.log.subscription_keys import SubscriptionsError
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS, paced
from gnomon.runtime.outcome import finished
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, WorldError

FINISH_SECONDS = 1.0
"""The time that consumers wait for the last positions to be stored before they are let go."""
ADDED_AT_ONCE = 500
"""Subscriptions of the store that are added in a turn of the event loop: as many take some 2 ms."""
SENT_AWAY_AT_ONCE = 500
"""Consumers that are sent away in a turn of the event loop when the term ends: as many take some 3 ms."""
STORE_ERRORS = (MetadataError, LedgerError, SubscriptionsError, WorldError)


class HostedPartition(Generic[DeliveryChannelT]):
    """The subscriptions that this broker hosts for one open partition."""

    def __init__(
        self,
        partition: Readable,
        log: LogBounds,
        store: SubscriptionsStore,
        clock: Clock,
        timers: Timers,
        rounds: Rounds,
        unpacked: UnpackedBatches,
        may_serve: Callable[[], bool],
        on_ended: Callable[[HostedPartition[DeliveryChannelT]], None],
        logger: Logger,
        ranges_max: int,
        read_cut: Callable[[], Awaitable[Cut | None]],
        tasks: Tasks,
    ) -> None:
        """The subscriptions of an open partition.

        Args:
            rounds: the allowance per turn that all partitions of the broker share.
            tasks: finish the changes that a cancelled caller has begun.
            may_serve: whether this broker certainly leads the partition.
            on_ended: called once, when the term ends; must have `finish` called.
            ranges_max: runs acknowledged out of order that are stored for one subscription.
            read_cut: returns the last cut of the log.
        """
        self.partition = partition
        self.positions = LogPositions(log, partition)
        self.dispatcher: Dispatcher[DeliveryChannelT] = Dispatcher(log.high_watermark, rounds)
        self.lock = trio.Lock()
        """Held during each change of subscriptions and while positions are stored."""
        self.ended = False
        """Whether the term has ended: no consumer is served any more."""
        self.finished = trio.Event()
        """Set after the term has ended and all positions that can be stored are stored."""
        self._log = log
        self._clock = clock
        self._store = store
        self._on_ended = on_ended
        self._logger = logger
        self._ranges_max = ranges_max
        self._read_cut = read_cut
        self._tasks = tasks
        self._missed = Missed(self.dispatcher, log, logger)
        self._pump = Pump(
            self.dispatcher, self.positions, self._missed, clock, timers, rounds, unpacked, may_serve, logger
        )
        self._warned = ""

    # --- life ---------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads every subscription from the store, and begins to follow the log.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: the store or the log cannot be read.
        """
        stored = await self._store.load()
        await self._add_stored(stored)
        self.partition.wait(self)
        self.wake()

    async def _add_stored(self, stored: Mapping[str, Position]) -> None:
        """Adds subscriptions that the store already had; they may have missed records."""
        cut = await self._read_cut()
        async for name, position in paced(stored.items(), ADDED_AT_ONCE, self._clock):
            self._missed.loaded(name, position.offset, self._add(name, position), cut)
        self._missed.log_loaded(stored)

    def _add(self, name: str, position: Position) -> Offset:
        """Adds a subscription at its position, or at the start of the log if that is higher; returns the offset."""
        offset = max(position.offset, self._log.start_offset)
        subscription = self.dispatcher.add(name, Cursor(offset, position.ranges))
        subscription.cursor_epoch = self._store.cursor_epoch(name)
        return offset

    def end(self) -> None:
        """Ends the term: nothing is delivered any more, and `on_ended` is called. Idempotent."""
        if self.ended:
            return
        self.ended = True
        self.partition.stop_waiting(self)
        self._pump.end()
        self._on_ended(self)

    async def finish(self) -> None:
        """Completes `end`: stores the positions that can still be stored, then lets every consumer go."""
        try:
            with trio.move_on_after(FINISH_SECONDS):
                async with self.lock:
                    await self._store_positions(len(self.dispatcher.dirty))
                    await self._store.close()
        except STORE_ERRORS as error:
            self._logger.info("positions_not_stored", reason=str(error), meaning="some records are delivered again")
        subscriptions = list(self.dispatcher.subscriptions.values())
        consumers = (consumer for subscription in subscriptions for consumer in subscription.consumers)
        while some := list(islice(consumers, SENT_AWAY_AT_ONCE)):
            self.send_away(some)
            await self._clock.sleep(PAUSE_SECONDS)
        self.finished.set()

    def send_away(self, consumers: Iterable[AttachedConsumer[DeliveryChannelT]]) -> None:
        """Detaches consumers, and notifies them to attach again."""
        gone: dict[DeliveryChannelT, list[int]] = {}
        for consumer in [consumer for consumer in consumers if not consumer.gone]:
            self.dispatcher.detach(consumer)
            gone.setdefault(consumer.channel, []).append(consumer.number)
        for channel, numbers in gone.items():
            channel.let_go(numbers)

    def wake(self) -> None:
        """Delivers new records, or ends the term after a failure or a reopening of the log; see `Waiter.wake`."""
        if self.ended:
            return
        if self.partition.failure is not None or self.partition.log is not self._log:
            self.end()
            return
        self.dispatcher.advanced(self._log.high_watermark)
        self.pump()

    def pump(self) -> None:
        """Delivers the records that can be delivered now."""
        self._pump.run()

    def attached(self, consumer: AttachedConsumer[DeliveryChannelT]) -> None:
        """Notifies a new consumer of the records that its subscription missed."""
        self._missed.attached(consumer)

    # --- changing subscriptions ---------------------------------------------------------------------------------

    async def create(self, names: Iterable[str], offset: Offset) -> None:
        """Creates the subscriptions that do not exist, at `offset`.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether they were created is unknown.
        """
        wanted = list(names)
        if any(name not in self.dispatcher.subscriptions for name in wanted):
            await self._change(lambda: self._create(wanted, offset))

    async def _create(self, names: Iterable[str], offset: Offset) -> None:
        missing = [name for name in names if name not in self.dispatcher.subscriptions]
        if not missing:
            return
        point = await self._point_at(offset)
        before: dict[str, Position] = {}
        for name, position in (await self._store.create(dict.fromkeys(missing, point))).items():
            if position.point == point:
                self._add(name, position)
            else:
                before[name] = position
        if before:
            await self._add_stored(before)

    async def seek(self, subscription: Subscription[DeliveryChannelT], offset: Offset) -> None:
        """Moves a subscription to `offset`; its consumers are notified to attach again, and begin there.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether the subscription was moved is unknown.
            SubscriberChanged: the subscription was deleted meanwhile.
        """
        self.send_away(subscription.consumers)
        await self._change(lambda: self._seek(subscription, offset))

    async def _seek(self, subscription: Subscription[DeliveryChannelT], offset: Offset) -> None:
        if not self._knows(subscription):
            raise SubscriberChanged(subscription.name)
        await self._store.reset_commit_position(subscription.name, await self._point_at(offset))
        self._check_not_ended()
        self.send_away(subscription.consumers)
        self._missed.forget(subscription.name)
        self.dispatcher.seek(subscription, max(offset, self._log.start_offset))
        subscription.cursor_epoch = self._store.cursor_epoch(subscription.name)

    async def delete(self, subscription: Subscription[DeliveryChannelT]) -> None:
        """Deletes a subscription, if it exists. Its consumers are notified to attach again, which creates it again.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether the subscription was deleted is unknown.
        """
        await self._change(lambda: self._delete(subscription))

    async def _delete(self, subscription: Subscription[DeliveryChannelT]) -> None:
        if not self._knows(subscription):
            return
        await self._store.delete_subscriber(subscription.name)
        self._check_not_ended()
        self.send_away(subscription.consumers)
        self._missed.forget(subscription.name)
        self.dispatcher.remove(subscription.name)

    async def _change(self, change: Callable[[], Awaitable[None]]) -> None:
        """Runs a change to its end, also if its caller is cancelled: store and memory change together."""
        await finished(self._tasks, self.lock, change, STORE_ERRORS)

    def _check_not_ended(self) -> None:
        """Raises StoreFenced after the term ended: the next host may have loaded the store before the change."""
        if self.ended:
            raise StoreFenced("the partition's subscriptions were loaded again meanwhile: ask again")

    def _knows(self, subscription: Subscription[DeliveryChannelT]) -> bool:
        """Whether the subscription was not deleted since it was looked up."""
        return self.dispatcher.subscriptions.get(subscription.name) is subscription

    async def _point_at(self, offset: Offset) -> CommitPoint:
        """The position of the record at an offset, in the form that is stored.

        Raises:
            LedgerError: the DLSN of the record cannot be read.
        """
        return CommitPoint.of(await self.positions.dlsn_of(offset), offset)

    # --- storing positions --------------------------------------------------------------------------------------

    async def flush(self, positions_max: int) -> None:
        """Stores at most `positions_max` changed positions, the longest unstored first."""
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
                self._warn_once(str(error))
                return
            self._warned = ""
        if changed:
            self._logger.info("subscriptions_changed_elsewhere", names=changed[:NAMES_LOGGED], count=len(changed))
            self.end()

    def _warn_once(self, reason: str) -> None:
        if self._warned != reason:
            self._warned = reason
            self._logger.warning("positions_not_stored", reason=reason, next="the next flush tries again")

    async def _store_positions(self, positions_max: int) -> tuple[str, ...]:
        """Stores the positions; if the place of one cannot be read, the others are stored, and it is tried again.

        Returns:
            The subscriptions that another process changed, which are not stored.
        """
        dirty = self.dispatcher.dirty
        taken = list(islice(dirty, positions_max))
        for subscription in taken:
            del dirty[subscription]
            self._missed.forget(subscription.name)
        unstored = dict.fromkeys(taken)
        try:
            positions, failure = await self._positions_of(taken)
            changed = await self._store.advance_many(positions)
            unstored = {subscription: None for subscription in taken if subscription.name not in positions}
            if failure is not None and not changed:
                raise failure
            return changed
        finally:
            dirty.update(unstored)

    async def _positions_of(
        self, subscriptions: Iterable[Subscription[DeliveryChannelT]]
    ) -> tuple[dict[str, Position], LedgerError | None]:
        """The positions by name, except those whose records cannot be read, and the error of the last such read."""
        known: dict[Offset, Position | None] = {}
        positions: dict[str, Position] = {}
        failure = None
        for subscription in subscriptions:
            cursor = subscription.cursor
            offset = cursor.mark_delete
            ranges = cursor.first_ranges(self._ranges_max)  # read at the same moment as the offset
            if offset not in known:
                try:
                    known[offset] = Position(await self._point_at(offset))
                except LedgerError as error:
                    known[offset], failure = None, error
            position = known[offset]
            if position is not None:
                positions[subscription.name] = Position(position.point, ranges) if ranges else position
        return positions, failure
