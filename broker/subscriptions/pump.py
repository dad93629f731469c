"""Gives the records of one partition to those whom its dispatcher names, as they can be read and are due."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledger import LocalViews, NotInMemory, Reading
from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.delivering_link import DeliveringLink
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.missed import Missed
from gnomon.broker.subscriptions.reading import Batch, LogPositions
from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import MalformedBatch
from gnomon.wire.kafka.compression import CorruptData, TooLarge
from gnomon.wire.kafka.records import iterate_records

BATCHES_PER_TURN = 64
"""Others have their turn after so many."""
RETRY_SECONDS = 1.0
KEYS_BYTES_MAX = 64 << 20
"""Records of a batch that decompress to more go to one consumer, whatever their keys are."""


class Pump:
    """See the module."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        positions: LogPositions,
        missed: Missed,
        clock: Clock,
        timers: Timers,
        may_serve: Callable[[], bool],
        logger: Logger,
    ) -> None:
        """Gives nothing until it is run.

        Args:
            may_serve: whether this broker leads the partition for certain.
        """
        self._dispatcher = dispatcher
        self._positions = positions
        self._missed = missed
        self._clock = clock
        self._timers = timers
        self._may_serve = may_serve
        self._logger = logger
        self._readings: dict[Offset, Reading] = {}
        """What is being fetched from bookies, by the offset that somebody wants."""
        self._unreadable: dict[Offset, Timer] = {}
        self._next: Timer | None = None
        self._due: Timer | None = None
        self._ended = False

    def end(self) -> None:
        """Gives nothing any more."""
        self._ended = True
        for timer in (self._next, self._due, *self._unreadable.values()):
            if timer is not None:
                timer.cancel()
        for reading in self._readings.values():
            reading.close()
        self._readings.clear()

    def run(self) -> None:
        """Gives what can be given now."""
        if self._ended:
            return
        dispatcher = self._dispatcher
        self._missed.look()
        for _ in range(BATCHES_PER_TURN):
            wanted = dispatcher.wanted(self._not_now())
            if wanted is None:
                self._forget_readings()
                return
            if not self._may_serve():
                break
            with LocalViews() as views:
                try:
                    batch = self._positions.batch(wanted, views)
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

    def _go_on(self) -> None:
        self._next = None
        self.run()

    def _give(self, wanted: Offset, batch: Batch) -> None:
        def keys() -> list[bytes | None]:
            try:
                return [record.key for record in iterate_records(batch.records, KEYS_BYTES_MAX)]
            except (MalformedBatch, TooLarge, CorruptData):
                return []

        parcels = self._dispatcher.give(wanted, batch.base_offset, batch.next_offset, keys)
        for link, parts in parcels.items():
            assert isinstance(link, DeliveringLink)
            link.deliver(batch, parts)

    def _not_now(self) -> Collection[Offset]:
        """Offsets whose batches are not here yet."""
        if not self._readings and not self._unreadable:
            return ()
        return {*self._unreadable, *(offset for offset, reading in self._readings.items() if reading.waiting)}

    def _fetch(self, wanted: Offset, missing: NotInMemory) -> None:
        self._readings.setdefault(wanted, Reading()).load(missing, self.run)

    def _forget_readings(self) -> None:
        """What was fetched for somebody who has gone since."""
        for offset in [offset for offset, reading in self._readings.items() if not reading.waiting]:
            self._readings.pop(offset).close()

    def _try_later(self, wanted: Offset, error: LedgerError) -> None:
        self._logger.error("records_not_readable", offset=wanted, reason=str(error), next="it is tried again")

        def again() -> None:
            del self._unreadable[wanted]
            self.run()

        self._unreadable[wanted] = self._timers.call_at(self._clock.monotonic() + RETRY_SECONDS, again)

    def set_timer(self) -> None:
        """Sees to it that what is due later is given then."""
        due = self._dispatcher.next_due()
        if due is not None and (self._due is None or self._due.deadline > due):
            if self._due is not None:
                self._due.cancel()
            self._due = self._timers.call_at(due, self._tick)

    def _tick(self) -> None:
        self._due = None
        self._dispatcher.tick(self._clock.monotonic())
        self.set_timer()
        self.run()
