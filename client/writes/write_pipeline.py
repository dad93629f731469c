"""The numbered batches of one writer to one partition: decides which are sent, how often, and their outcomes. Pure.

1. Batches are numbered as those of Kafka's idempotent producer: producer id, epoch, sequence. At most BATCHES_MAX are
   without an answer, so that the leader knows each of them again.
2. After a failure whose outcome is unknown, or a retriable one, no other batch is sent until all answers that are still
   possible have arrived. Then all batches without an outcome are sent again in their order, with their numbers.
3. A batch that the leader refuses is certainly not in the log, nor is one that the leader says comes too early. Later
   batches get new numbers, in a new epoch that begins with sequence 0.
4. In a chain a refusal fails all writes that were sent behind it. Otherwise writes are independent: those behind a
   refused batch get new numbers and are sent again.
5. The writes of a batch that was given up, and in a chain all behind them, fail with OutcomeUnknown if the batch may be
   in the log. Otherwise nothing was written, and they fail with the last problem of the connection.
6. Writes are joined to one batch only if the terms of the first are those of all: in a chain those that expect nothing
   or PREVIOUS, otherwise those that expect nothing; with the same token, and transaction ids that do not fall. A write
   with a transaction id follows only one that has one, so that the SN of each is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from gnomon.client.errors import OutcomeUnknown, Unavailable
from gnomon.client.writes.client_write import ClientWrite, Previous, WriteRecord
from gnomon.log.sn import SN
from gnomon.log.term_headers import TRANSACTION_ID
from gnomon.wire.kafka.records import Record, build_batch

BATCHES_MAX: Final = 5
"""The batches of a producer that a partition remembers (KIP-98)."""
EPOCH_MAX: Final = 32_767
SEQUENCE_MODULUS: Final = 1 << 31
JOINED_BYTES_MAX: Final = 256 << 10
"""Writes are joined up to this many bytes of keys and values; a larger write is a batch of its own."""
JOINED_RECORDS_MAX: Final = 1_000
"""Encoding as many takes some 3 ms."""


class Producer(NamedTuple):
    """The numbers of the next batch."""

    id: int
    epoch: int
    sequence: int


class NumberedBatch:
    """One numbered batch until it has an outcome."""

    __slots__ = (
        "data",
        "expected",
        "has_transaction",
        "in_flight",
        "may_be_written",
        "records_count",
        "token",
        "writes",
    )

    def __init__(self, writes: list[ClientWrite], expected: SN | None, producer: Producer, now_ms: int) -> None:
        self.writes = writes
        self.expected = expected
        self.token = writes[0].terms.token
        self.has_transaction = writes[0].terms.transaction_id is not None
        records = _records(writes)
        self.records_count = len(records)
        self.data = _encoded(records, producer, now_ms)
        self.in_flight = True
        """Whether an answer to it may still arrive."""
        self.may_be_written = False
        """Whether an attempt to send it had an unknown outcome."""


class WritePipeline:
    """The writes of one writer to one partition that have no outcome yet."""

    def __init__(self, *, chain: bool) -> None:
        """Nothing to write; see invariant 4 for `chain`."""
        self._chain = chain
        self._queue: deque[ClientWrite] = deque()
        """Writes that are in no batch yet."""
        self._unanswered: deque[NumberedBatch] = deque()
        """Batches without an outcome, in their order."""
        self._producer: Producer | None = None
        self._end: int | None = None
        """The sequence id of the record before the next batch; None if it is not known yet."""
        self._written_end: int | None = None
        """The sequence id of the last record that was acknowledged."""
        self._failing = False
        """Whether the batches without an outcome have to be sent again."""
        self._numbering = False
        """Whether later batches need a new epoch."""
        self._early = False
        """Whether the leader lacks a batch before one of those without an outcome."""

    # --- writes -------------------------------------------------------------------------------------------------

    def add(self, write: ClientWrite) -> None:
        """Takes a write, which is sent after all others."""
        self._queue.append(write)

    @property
    def idle(self) -> bool:
        """Whether every write has an outcome."""
        return not self._queue and not self._unanswered

    # --- sending ------------------------------------------------------------------------------------------------

    @property
    def needs_producer(self) -> bool:
        """Whether a producer id is needed before the next batch."""
        return self._producer is None

    def number(self, producer_id: int) -> None:
        """Numbers later batches with this producer id, which nobody else uses."""
        self._producer = Producer(producer_id, 0, 0)

    def next_batch(self, now_ms: int) -> NumberedBatch | None:
        """The next batch to send, None if there is none now; it is in flight from now on.

        Args:
            now_ms: the time of its records, in milliseconds since 1970.
        """
        while self._queue and self._queue[0].is_abandoned:
            self._queue.popleft()
        if self._blocked or len(self._unanswered) >= BATCHES_MAX or self._producer is None or not self._queue:
            return None
        expected = self._queue[0].terms.expected
        if isinstance(expected, Previous):
            if self._end is None:
                return None  # the write before it has no place yet
            expected = SN(sequence_id=self._end)
        batch = NumberedBatch(self._joined(), expected, self._producer, now_ms)
        self._unanswered.append(batch)
        count = batch.records_count
        self._producer = self._producer._replace(sequence=(self._producer.sequence + count) % SEQUENCE_MODULUS)
        begin = None if expected is None else expected.sequence_id
        self._end = None if begin is None else begin + count
        return batch

    def _joined(self) -> list[ClientWrite]:
        """Takes the writes of the next batch from the queue (invariant 6)."""
        queue = self._queue
        writes = [queue.popleft()]
        first = writes[0].terms
        if first.expected is not None and not self._chain:
            return writes
        size_bytes, count = writes[0].size_bytes, len(writes[0].records)
        transaction_id = first.transaction_id
        while queue and not isinstance(queue[0].terms.expected, SN):
            write = queue[0]
            if write.terms.token != first.token:
                break
            if write.terms.transaction_id is not None:
                if transaction_id is None or write.terms.transaction_id < transaction_id:
                    break
                transaction_id = write.terms.transaction_id
            size_bytes, count = size_bytes + write.size_bytes, count + len(write.records)
            if size_bytes > JOINED_BYTES_MAX or count > JOINED_RECORDS_MAX:
                break
            if not write.is_abandoned:
                writes.append(write)
            queue.popleft()
        return writes

    @property
    def failing(self) -> bool:
        """Whether batches have to be sent again, at the present leader."""
        return self._failing

    @property
    def stalled(self) -> bool:
        """Whether no batch may be sent before `resume`, which can be called now."""
        return self._blocked and not any(batch.in_flight for batch in self._unanswered)

    @property
    def _blocked(self) -> bool:
        return self._failing or self._numbering or self._early

    def resume(self) -> list[NumberedBatch]:
        """The batches to send again, in order; new ones may follow after them (invariants 2 and 3)."""
        assert self.stalled, "answers may still arrive"
        if self._failing:
            self._failing = self._early = False
            for batch in self._unanswered:
                batch.in_flight = True
            return list(self._unanswered)
        self._queue.extendleft(reversed([write for batch in self._unanswered for write in batch.writes]))
        self._unanswered.clear()
        self._end = self._written_end
        self._numbering = self._early = False
        if self._producer is not None:
            epoch = self._producer.epoch + 1
            self._producer = Producer(self._producer.id, epoch, 0) if epoch <= EPOCH_MAX else None
        return []

    # --- answers ------------------------------------------------------------------------------------------------

    def written(self, batch: NumberedBatch, last: SN) -> None:
        """The batch is durable; `last` is the SN of its last record."""
        if not self._settled(batch):
            return
        if not self._unanswered:
            self._end = last.sequence_id
        self._written_end = last.sequence_id
        behind, transaction_id = batch.records_count, last.transaction_id
        for write in batch.writes:
            behind -= len(write.records)
            if batch.has_transaction and write.terms.transaction_id is not None:
                transaction_id = write.terms.transaction_id
            write.written(_before(last, behind, transaction_id))

    def refused(self, batch: NumberedBatch, error: Exception) -> None:
        """The batch has an outcome: its writes fail with `error` (invariant 4)."""
        behind = self._behind(batch)
        if self._settled(batch):
            self._numbering = True
            for write in batch.writes:
                write.failed(error)
            if self._chain:
                self._fail(behind, error)

    def early(self, batch: NumberedBatch) -> None:
        """The batch is certainly not in the log, because one before it is missing there."""
        batch.in_flight = False
        self._early = self._early or batch in self._unanswered

    def lost(self, batch: NumberedBatch, *, had_effect: bool) -> None:
        """The batch has to be sent again: there is no answer, or a retriable one.

        Args:
            had_effect: whether the batch may be in the log, now or later.
        """
        batch.in_flight = False
        batch.may_be_written = batch.may_be_written or had_effect
        self._failing = self._failing or batch in self._unanswered

    def give_up(self, batch: NumberedBatch, error: Exception) -> None:
        """Sends the batch no more; its writes fail with `error`, or with OutcomeUnknown (invariant 5)."""
        if batch.in_flight or batch.may_be_written:
            error = OutcomeUnknown(f"whether the records were written is unknown: {error}")
        self.refused(batch, error)

    def expire(self, now: float, problem: Exception | None) -> None:
        """Gives up the writes whose deadline has passed.

        Args:
            now: the monotonic second.
            problem: why nothing could be sent.
        """
        error = problem or Unavailable("the leader of the partition did not answer in time")
        for batch in list(self._unanswered):
            if any(write.deadline <= now for write in batch.writes):
                self.give_up(batch, error)
        self.expire_unsent(now, error)

    def expire_unsent(self, now: float, error: Exception) -> None:
        """Fails the writes that were not sent yet and whose deadline has passed; in a chain also those behind them."""
        late = [write for write in self._queue if write.deadline <= now]
        if late and self._chain:
            self._fail([], error)
        elif late:
            self._queue = deque(write for write in self._queue if write.deadline > now)
            for write in late:
                write.failed(error)

    def end(self, error: Exception) -> None:
        """The writer is closed: writes without an outcome fail; those that were sent may be in the log."""
        for batch in list(self._unanswered):
            self.give_up(batch, error)
        self._fail([], error)

    def leave_topic(self, error: Exception) -> None:
        """The topic was deleted and created again: what was sent to the old one, or belongs to its chain, ends."""
        if self._chain:
            self.end(error)
        for batch in list(self._unanswered):
            self.give_up(batch, error)

    def _behind(self, batch: NumberedBatch) -> list[NumberedBatch]:
        behind = list(self._unanswered)
        return behind[behind.index(batch) + 1 :] if batch in behind else []

    def _settled(self, batch: NumberedBatch) -> bool:
        """Removes a batch that has an outcome now; returns whether it had none."""
        batch.in_flight = False
        if batch not in self._unanswered:
            return False
        self._unanswered.remove(batch)
        return True

    def _fail(self, batches: Sequence[NumberedBatch], error: Exception) -> None:
        """Fails batches, and all writes that are not sent yet."""
        for batch in batches:
            self._settled(batch)
        waiting, self._queue = self._queue, deque()
        for write in [*(write for batch in batches for write in batch.writes), *waiting]:
            write.failed(error)


def _before(last: SN, count: int, transaction_id: int | None) -> SN:
    """The SN of the record that comes `count` records before the last one of its batch, with this transaction id."""
    assert last.sequence_id is not None, "the leader names the offset of what it has written"
    dlsn = None if last.dlsn is None else last.dlsn._replace(slot=last.dlsn.slot - count)
    return SN(dlsn, transaction_id, last.sequence_id - count)


def _records(writes: Sequence[ClientWrite]) -> list[WriteRecord]:
    """The records of the writes; those of a write with a transaction id have it in a header."""
    records: list[WriteRecord] = []
    for write in writes:
        if write.terms.transaction_id is None:
            records += write.records
        else:
            header = (TRANSACTION_ID, str(write.terms.transaction_id).encode())
            records += [record._replace(headers=(*record.headers, header)) for record in write.records]
    return records


def _encoded(records: Sequence[WriteRecord], producer: Producer, now_ms: int) -> bytes:
    return build_batch(
        [Record(number, 0, record.key, record.value, tuple(record.headers)) for number, record in enumerate(records)],
        base_timestamp=now_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
