"""Reads the batches that a partition's dispatcher wants, and sends them over the channels that the dispatcher names.

1. Nothing is read or sent unless this broker certainly leads the partition (`may_serve`).
2. A batch that is not in memory is fetched from its bookies; other batches are given meanwhile.
3. A batch that cannot be read is tried again after RETRY_SECONDS; other batches are given meanwhile.
4. A turn reads and sends as much as the allowance permits; the rest follows in later turns.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Generic

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import LocalViews, NotInMemory, Reading
from gnomon.broker.subscriptions.delivery_channel import DeliveryChannelT
from gnomon.broker.subscriptions.dispatcher import Dispatcher
from gnomon.broker.subscriptions.missed import Missed
from gnomon.broker.subscriptions.record_slots import RecordSlots
from gnomon.broker.subscriptions.rounds import Rounds
from gnomon.broker.subscriptions.unpacked import UnpackedBatches
from gnomon.log.entry import Offset
from gnomon.log.log_positions import Batch, LogPositions
from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.batch import HEADER_BYTES, MalformedBatch, parse_batch
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.primitives import Buffer

BATCH_UNITS = 60
"""The price of reading a batch."""
BYTES_PER_UNIT = 256
"""Bytes of a batch that are sent for one unit."""
LOOKED_INTO_MAX = 8
"""Batches whose record positions are remembered."""
RETRY_SECONDS = 1.0


class Pump(Generic[DeliveryChannelT]):
    """The pump of one hosted partition."""

    def __init__(
        self,
        dispatcher: Dispatcher[DeliveryChannelT],
        positions: LogPositions,
        missed: Missed[DeliveryChannelT],
        clock: Clock,
        timers: Timers,
        rounds: Rounds,
        unpacked: UnpackedBatches,
        may_serve: Callable[[], bool],
        logger: Logger,
    ) -> None:
        """A pump that gives nothing until `run` is called.

        Args:
            rounds: the allowance, which the dispatcher spends as well.
            may_serve: whether this broker certainly leads the partition.
        """
        self._dispatcher = dispatcher
        self._positions = positions
        self._missed = missed
        self._clock = clock
        self._timers = timers
        self._rounds = rounds
        self._unpacked = unpacked
        self._may_serve = may_serve
        self._logger = logger
        self._put_off = False
        self._slots: dict[Offset, RecordSlots] = {}
        """The key slots of batches whose keys were read, by base offset; the batch used last is at the end."""
        self._arrived: dict[Offset, Buffer] = {}
        """Batches that a thread has decompressed, by base offset: the cache may drop them before they are used."""
        self._unpacking: dict[Offset, list[Offset]] = {}
        """Batches that a thread is decompressing, by base offset, with the offsets that readers wait for."""
        self._readings: dict[Offset, Reading] = {}
        """Fetches from bookies, by the offset that a reader wants."""
        self._unreadable: dict[Offset, Timer] = {}
        self._retry: Timer | None = None
        self._due: Timer | None = None
        self._ended = False

    def end(self) -> None:
        """Gives nothing any more, and drops all batches that were read."""
        self._ended = True
        for timer in (self._retry, self._due, *self._unreadable.values()):
            if timer is not None:
                timer.cancel()
        for reading in self._readings.values():
            reading.close()
        self._readings.clear()
        self._unpacked.forget(self._positions)

    def run(self) -> None:
        """Gives the records that can be given now, in this turn and later ones."""
        if self._put_off:
            return
        if self._rounds.open:
            self._work()
        else:
            self._go_on_later()

    def _go_on_later(self) -> None:
        self._put_off = True
        self._rounds.put_off(self._go_on)

    def _go_on(self) -> None:
        self._put_off = False
        self._work()

    def _work(self) -> None:
        if self._ended:
            return
        dispatcher, rounds = self._dispatcher, self._rounds
        dispatcher.tick(self._clock.monotonic())
        self._missed.look()
        while rounds.left > 0:
            wanted = dispatcher.wanted(self._not_now())
            if wanted is None and rounds.left <= 0:
                break
            if wanted is None:
                self._arrived.clear()
                self._forget_readings()
                self._set_timer()
                return
            if not self._may_serve():
                self._try_again()
                return
            rounds.spend(BATCH_UNITS)
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
        self._go_on_later()

    def _give(self, wanted: Offset, batch: Batch) -> None:
        def look(first: int, count: int) -> Sequence[int]:
            return self._look(batch, wanted, first, count)

        units = len(batch.records) // BYTES_PER_UNIT
        given = self._dispatcher.give(wanted, batch.base_offset, batch.next_offset, look, units)
        for channel, parcels in given.items():
            channel.deliver(batch, parcels)

    def _look(self, batch: Batch, wanted: Offset, first: int, count: int) -> Sequence[int]:
        """See `dispatcher.Look`."""
        base = batch.base_offset
        records = None if base in self._unpacking else self._records_of(batch)
        if records is None:
            self._unpacking.setdefault(base, []).append(wanted)
            return ()
        slots = self._slots.pop(base, None) or RecordSlots(base, batch.next_offset, dense=_is_dense(batch))
        self._slots[base] = slots
        if len(self._slots) > LOOKED_INTO_MAX:
            del self._slots[next(iter(self._slots))]
        return slots.look(records, first, count)

    def _records_of(self, batch: Batch) -> Buffer | None:
        """The decompressed records of a batch; empty if it cannot be read, None while a thread decompresses it."""
        base = batch.base_offset
        arrived = self._arrived.pop(base, None)
        if arrived is not None:
            return arrived
        try:
            header = parse_batch(batch.records)
        except MalformedBatch:
            return b""
        if not 0 <= header.records_count <= header.last_offset_delta + 1 == batch.next_offset - base:
            return b""
        body = batch.records[HEADER_BYTES : header.size_bytes]
        if header.compression == Codec.NONE:
            return body

        def unpacked(records: Buffer) -> None:
            del self._unpacking[base]
            self._arrived[base] = records
            self.run()

        return self._unpacked.get((self._positions, base), header.compression, body, unpacked)

    def _try_again(self) -> None:
        def again() -> None:
            self._retry = None
            self.run()

        if self._retry is None:
            self._retry = self._timers.call_at(self._clock.monotonic() + RETRY_SECONDS, again)

    def _not_now(self) -> Container[Offset]:
        """Offsets whose batches cannot be given yet."""
        if not self._readings and not self._unreadable and not self._unpacking:
            return ()
        waiting = (offset for offset, reading in self._readings.items() if reading.waiting)
        return {*self._unreadable, *waiting, *(offset for some in self._unpacking.values() for offset in some)}

    def _fetch(self, wanted: Offset, missing: NotInMemory) -> None:
        self._readings.setdefault(wanted, Reading()).load(missing, self.run)

    def _forget_readings(self) -> None:
        """Closes fetches for readers that have gone."""
        for offset in [offset for offset, reading in self._readings.items() if not reading.waiting]:
            self._readings.pop(offset).close()

    def _try_later(self, wanted: Offset, error: LedgerError) -> None:
        self._logger.warning("records_not_readable", offset=wanted, reason=str(error), next="it is retried")

        def again() -> None:
            del self._unreadable[wanted]
            self.run()

        self._unreadable[wanted] = self._timers.call_at(self._clock.monotonic() + RETRY_SECONDS, again)

    def _set_timer(self) -> None:
        """Sets a timer for the next delayed records."""
        due = self._dispatcher.next_due()
        if due is not None and (self._due is None or self._due.deadline > due):
            if self._due is not None:
                self._due.cancel()
            self._due = self._timers.call_at(due, self._tick)

    def _tick(self) -> None:
        self._due = None
        self.run()


def _is_dense(batch: Batch) -> bool:
    try:
        return parse_batch(batch.records).is_dense
    except MalformedBatch:
        return True
