"""The subscriptions of one partition under one term of its leader: what drives their dispatcher.

1. Positions are loaded once, before the first consumer comes; after that nothing is read from the store, but of those
   that were out of reach then, when somebody subscribes.
2. An acknowledgement is stored with the next flush: those of the last moments before a crash come again.
3. What changes a subscription other than by acknowledging it (new, sought, deleted) is durable before it is answered.
   What consumers are given from then on is of another cursor epoch.
4. Where records went that a subscription had not acknowledged, it goes on behind them (`missed`).
5. The term ends with the leadership, or when the store says that somebody else is at work: consumers are told to come
   back, and whoever hosts the partition then loads what is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.partition.cut import Cut
from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log_reader import LogBounds
from gnomon.broker.partition.readable import Readable
from gnomon.broker.subscriptions.cursor import Cursor
from gnomon.broker.subscriptions.delivering_link import DeliveringLink
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.missed import NAMES_TOLD, Missed
from gnomon.broker.subscriptions.pump import Pump
from gnomon.broker.subscriptions.reading import LogPositions
from gnomon.broker.subscriptions.store import (
    Position,
    StoreFenced,
    SubscriberChanged,
    SubscriptionsError,
    SubscriptionsStore,
)
from gnomon.broker.subscriptions.subscription import Consumer, Subscription
from gnomon.metadata.client import MetadataError
from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, WorldError

FINISH_SECONDS = 1.0
"""How long consumers wait for the last positions to be stored before they are sent elsewhere."""
SETTLE_SECONDS = 0.1
"""How often is looked whether a shadow has caught up with what another broker has shown of it."""
STORE_ERRORS = (MetadataError, LedgerError, SubscriptionsError, WorldError)


class HostedPartition:
    """See the module; made for a partition that is open."""

    def __init__(
        self,
        partition: Readable,
        log: LogBounds,
        store: SubscriptionsStore,
        clock: Clock,
        timers: Timers,
        may_serve: Callable[[], bool],
        tell_ended: Callable[[HostedPartition], None],
        logger: Logger,
        ranges_max: int,
        read_cut: Callable[[], Awaitable[Cut | None]],
    ) -> None:
        """The subscriptions of an open partition.

        Args:
            may_serve: whether this broker leads the partition for certain.
            tell_ended: called once when the term has ended; has to see to `finish`.
            ranges_max: runs acknowledged out of order that are stored of a subscription.
            read_cut: gives the last one of the log.
        """
        self.partition = partition
        self.positions = LogPositions(log, partition)
        self.dispatcher = Dispatcher(log.high_watermark)
        self.lock = trio.Lock()
        """Held by whoever changes subscriptions or stores positions."""
        self.out_of_reach: set[str] = set()
        """Subscriptions that there are, but where they stand cannot be read now: bookies are away."""
        self.ended = False
        """Nobody is served any more."""
        self.finished = trio.Event()
        """Set once that is so, and all is stored that can be."""
        self._log = log
        self._store = store
        self._clock = clock
        self._tell_ended = tell_ended
        self._logger = logger
        self._ranges_max = ranges_max
        self._read_cut = read_cut
        self._missed = Missed(self.dispatcher, log, logger)
        self._pump = Pump(self.dispatcher, self.positions, self._missed, clock, timers, may_serve, logger)
        self._told = ""

    # --- life ---------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads every subscription from the store, and begins to follow the log.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: that did not work.
        """
        stored = await self._store.load()
        while not self.ended and self.partition.log is self._log and self._lags_behind(stored.values()):
            await self._clock.sleep(SETTLE_SECONDS)
        await self._take_in(stored)
        self.partition.wait(self)
        self.wake()

    def _lags_behind(self, stored: Iterable[Position]) -> bool:
        """Whether records that were acknowledged would come again: it is not known here yet that they are there."""
        return any(self.positions.may_be_ahead(position.dlsn) for position in stored)

    async def _take_in(self, stored: Mapping[str, Position]) -> None:
        """Begins to know subscriptions that there were before, but for those whose place cannot be found out now."""
        placed = await self._places_of(dict.fromkeys(position.dlsn for position in stored.values()))
        cut = await self._read_cut()  # last: who was placed behind a cut that came meanwhile has missed what went
        for name, position in stored.items():
            if position.dlsn in placed:
                offset = self._add(name, placed[position.dlsn], position)
                self._missed.loaded(name, position.dlsn, offset, cut)
            else:
                self.out_of_reach.add(name)
        self._missed.tell_loaded(stored)

    async def _places_of(self, dlsns: Iterable[Dlsn]) -> dict[Dlsn, Offset]:
        """The offsets of those that can be found out; where one cannot be, others of its segment are not tried."""
        placed: dict[Dlsn, Offset] = {}
        away: set[int] = set()
        for dlsn in dlsns:
            if dlsn.segment not in away:
                try:
                    placed[dlsn] = await self.positions.offset_of(dlsn)
                except LedgerError as error:
                    away.add(dlsn.segment)
                    self._logger.warning("positions_out_of_reach", segment=dlsn.segment, reason=str(error))
        return placed

    def _add(self, name: str, offset: Offset, position: Position) -> Offset:
        offset = max(offset, self._log.start_offset)  # which may have moved while something was stored
        subscription = self.dispatcher.add(name, Cursor(offset, position.ranges))
        subscription.cursor_epoch = self._store.cursor_epoch(name)
        self.out_of_reach.discard(name)
        return offset

    def end(self) -> None:
        """Gives nobody anything any more; `finish` follows, by who was told. Idempotent."""
        if self.ended:
            return
        self.ended = True
        self.partition.stop_waiting(self)
        self._pump.end()
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

    def pump(self) -> None:
        """Gives what can be given now."""
        self._pump.run()

    def set_timer(self) -> None:
        """Sees to it that what is due later is given then."""
        self._pump.set_timer()

    def attached(self, consumer: Consumer) -> None:
        """A consumer has come: it is told what its subscription has missed."""
        self._missed.attached(consumer)

    # --- changing subscriptions ---------------------------------------------------------------------------------

    async def create(self, names: Iterable[str], offset: Offset) -> None:
        """Makes those of the subscriptions that do not exist, at `offset`; looks again for those out of reach.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether they are made is unknown.
        """
        known = self.dispatcher.subscriptions
        async with self.lock:
            missing = [name for name in names if name not in known]
            if not missing:
                return
            dlsn = await self.positions.dlsn_of(offset)
            before: dict[str, Position] = {}
            for name, position in (await self._store.create(dict.fromkeys(missing, dlsn))).items():
                if position.dlsn == dlsn and name not in self.out_of_reach:
                    self._add(name, offset, position)
                else:
                    before[name] = position
            if before:
                await self._take_in(before)

    async def seek(self, subscription: Subscription, offset: Offset) -> None:
        """Moves a subscription; its consumers are told to come back, and begin at `offset`.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether it was moved is unknown.
            SubscriberChanged: it was deleted meanwhile.
        """
        self.send_away(subscription.consumers)
        async with self.lock:
            if not self._knows(subscription):
                raise SubscriberChanged(subscription.name)
            await self._store.reset_commit_position(subscription.name, await self.positions.dlsn_of(offset))
            self._check_not_ended()
            self.send_away(subscription.consumers)
            self._missed.forget(subscription.name)
            self.dispatcher.seek(subscription, max(offset, self._log.start_offset))
            subscription.cursor_epoch = self._store.cursor_epoch(subscription.name)

    async def delete(self, subscription: Subscription, client: str) -> None:
        """Deletes a subscription, unless that was done; lets the consumer of `client` go, which has asked.

        Another one that came meanwhile is told to come back, and makes it anew.

        Raises:
            MetadataError, LedgerError, SubscriptionsError, WorldError: whether it is deleted is unknown.
        """
        async with self.lock:
            if not self._knows(subscription):
                return
            await self._store.delete_subscriber(subscription.name)
            self._check_not_ended()
            self.send_away((one for one in subscription.consumers if one.client == client), to_return=False)
            self.send_away(subscription.consumers)
            self._missed.forget(subscription.name)
            self.dispatcher.remove(subscription.name)

    def _check_not_ended(self) -> None:
        """Who hosts the partition by now may have loaded what was stored before, and has to be asked, too."""
        if self.ended:
            raise StoreFenced("the partition's subscriptions were loaded anew meanwhile: ask again")

    def _knows(self, subscription: Subscription) -> bool:
        """Whether it was not deleted since it was looked up."""
        return self.dispatcher.subscriptions.get(subscription.name) is subscription

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
        """Where the place of one cannot be found out, the others are stored nevertheless; it is tried again."""
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
        self, subscriptions: Iterable[Subscription]
    ) -> tuple[dict[str, Position], LedgerError | None]:
        """Where they stand, by name; without those whose records are out of reach, and why they are."""
        known: dict[Offset, Position | None] = {}
        positions: dict[str, Position] = {}
        failure = None
        for subscription in subscriptions:
            cursor = subscription.cursor
            offset = cursor.mark_delete
            ranges = cursor.first_ranges(self._ranges_max)  # of the same moment as the offset
            if offset not in known:
                try:
                    known[offset] = Position(await self.positions.dlsn_of(offset))
                except LedgerError as error:
                    known[offset], failure = None, error
            position = known[offset]
            if position is not None:
                positions[subscription.name] = Position(position.dlsn, ranges) if ranges else position
        return positions, failure
