"""The idempotent producers of one partition: finds repeats and batches out of order. Pure.

1. The newest epoch of each producer id, and the last five batches of that epoch, are remembered (KIP-98, KAFKA-5494).
2. A batch equal to a remembered one in (epoch, first, last sequence) is a repeat: it is answered with the offset and
   timestamp of the first copy, and nothing is appended.
3. Any other batch must begin with the last remembered sequence + 1, where 0 follows 2^31 - 1; otherwise it is out of
   order.
4. A newer epoch begins at sequence 0; an older epoch is fenced.
5. An unknown producer can begin at any sequence, because its state may have expired. But if a batch of its epoch was
   refused (for example because the disk was full or this broker did not lead), it must begin with the oldest refused
   batch, so that no later batch overtakes that one.
6. After the final refusal of a batch whose client then begins a new epoch, this broker appends no further batch of the
   old one: a late copy of the refused batch may still arrive over an earlier connection.
7. The state of a producer is kept for a fixed wall time after its last batch, and is dropped at the next roll or
   retention check.
8. A batch of a Kafka producer that is out of order because this broker refused one before it a moment ago is refused
   like that one, so that its client repeats both. For a gap librdkafka begins a new epoch, in which it also repeats
   batches that may be in the log: a repeat is not recognised then.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgpack

from gnomon.log.entry import NO_TIMESTAMP, Offset, UnknownEntry
from gnomon.wire.kafka.batch import MalformedBatch, parse_batch
from gnomon.wire.kafka.errors import ErrorCode

BATCHES_REMEMBERED = 5
SEQUENCE_MODULUS = 1 << 31

SNAPSHOT_FORMAT = 3
UNTIMED_FORMAT = 2
"""Snapshots of this format, which can be read too, have no timestamps."""
TOKEN_FORMAT = 4
"""Snapshots of this format have the fencing token of the partition; a partition without a token has none of them."""


class ProducedBatch(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    offsets_count: int
    """The number of offsets that the batch covers."""
    timestamp: int = NO_TIMESTAMP
    """The largest timestamp of the batch as it is stored; NO_TIMESTAMP if an old snapshot does not have it."""


class ProducerState:
    """The state of one producer id: its epoch and its last batches."""

    __slots__ = ("batches", "epoch", "last_used_ms")

    def __init__(self, epoch: int, last_used_ms: int) -> None:
        self.epoch = epoch
        self.last_used_ms = last_used_ms
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_REMEMBERED)


def _comes_before(first: int, other: int) -> bool:
    """Whether one sequence is before another, which may have wrapped around to 0."""
    return 0 < (other - first) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2


REPEATED_MS = 120_000
"""A client repeats a refused batch for about this time: `delivery.timeout.ms` of Kafka's producers."""
PRODUCERS_AWAITED_MAX = 10_000
"""Maximum per partition; beyond it the oldest are forgotten, and their batches can be overtaken again."""


class AwaitedBatches:
    """The oldest refused batch of each producer that was not appended since: (epoch, first sequence, time)."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[int, int, int]] = {}
        self._ended: dict[int, tuple[int, int]] = {}
        """The newest epoch of each producer that its client has left, and the time."""

    def refused(self, producer_id: int, epoch: int, first: int, now_ms: int) -> None:
        """A batch was refused. Of several the one that was sent first is awaited, in any order of the calls."""
        before = self._batches.get(producer_id)
        if before is None or before[0] < epoch or (before[0] == epoch and _comes_before(first, before[1])):
            self._batches[producer_id] = (epoch, first, now_ms)
            if len(self._batches) > PRODUCERS_AWAITED_MAX:
                del self._batches[next(iter(self._batches))]

    def refused_batch(self, records: memoryview, now_ms: int) -> None:
        """A batch was refused, given as it was sent; malformed batches and those of other producers are ignored."""
        try:
            batch = parse_batch(records)
        except MalformedBatch:
            return
        if batch.producer_id >= 0:
            self.refused(batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms)

    def epoch_ended(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """The client of a producer continues in a newer epoch (invariant 6)."""
        if epoch >= self._ended.get(producer_id, (0, 0))[0]:
            self._ended[producer_id] = epoch, now_ms
            if len(self._ended) > PRODUCERS_AWAITED_MAX:
                del self._ended[next(iter(self._ended))]

    def absorb(self, other: AwaitedBatches) -> None:
        """Adds the refused batches of another instance."""
        for producer_id, awaited in other._batches.items():
            self.refused(producer_id, *awaited)
        for producer_id, ended in other._ended.items():
            self.epoch_ended(producer_id, *ended)

    def overtaken(self, producer_id: int, epoch: int, first: int) -> bool:
        """Whether a batch comes too early, because another one of its epoch is awaited."""
        awaited = self._batches.get(producer_id)
        return awaited is not None and awaited[0] == epoch and awaited[1] != first

    def explains(self, producer_id: int, epoch: int, first: int, now_ms: int) -> bool:
        """Whether a batch is out of order because one before it was refused here, which its client repeats."""
        awaited = self._batches.get(producer_id)
        if awaited is None or awaited[0] != epoch or now_ms - awaited[2] >= REPEATED_MS:
            return False
        return _comes_before(awaited[1], first)

    def appended(self, producer_id: int) -> None:
        """The producer has continued: no batch of it is awaited."""
        if self._batches:
            self._batches.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forgets the batches refused before `before_ms`."""
        for producer_id in [key for key, awaited in self._batches.items() if awaited[2] < before_ms]:
            del self._batches[producer_id]
        for producer_id in [key for key, ended in self._ended.items() if ended[1] < before_ms]:
            del self._ended[producer_id]

    def has_ended(self, producer_id: int, epoch: int) -> bool:
        """Whether the client has left this epoch."""
        return bool(self._ended) and epoch <= self._ended.get(producer_id, (-1, 0))[0]


class Duplicate(NamedTuple):
    """A batch that is in the log already: the place of its first copy."""

    base_offset: Offset
    next_offset: Offset
    timestamp: int = NO_TIMESTAMP
    """The largest timestamp of the batch."""


class Producers:
    """The producer states of one partition."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self.awaited = AwaitedBatches()
        """A reopened partition replaces it by the instance from before."""

    def __len__(self) -> int:
        return len(self._states)

    def check(self, producer_id: int, epoch: int, first: int, last: int) -> Duplicate | ErrorCode | None:
        """Judges a batch before it is appended.

        Args:
            producer_id: >= 0.
            epoch: the producer's epoch.
            first, last: the sequences of its first and last record.

        Returns:
            None if the batch must be appended, the place of its first copy if it is a repeat, or the error.
        """
        verdict = self._check(producer_id, epoch, first, last)
        if verdict is None and self.awaited.has_ended(producer_id, epoch):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return verdict

    def _check(self, producer_id: int, epoch: int, first: int, last: int) -> Duplicate | ErrorCode | None:
        state = self._states.get(producer_id)
        if state is None:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if self.awaited.overtaken(producer_id, epoch, first) else None
        if epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > state.epoch:
            return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not state.batches:
            return None
        for batch in state.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                next_offset = Offset(batch.base_offset + batch.offsets_count)
                return Duplicate(batch.base_offset, next_offset, batch.timestamp)
        if first != (state.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def record(
        self,
        producer_id: int,
        epoch: int,
        first: int,
        last: int,
        base_offset: Offset,
        offsets_count: int,
        now_ms: int,
        timestamp: int = NO_TIMESTAMP,
    ) -> None:
        """Remembers a batch that was appended."""
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._states[producer_id] = ProducerState(epoch, now_ms)
        self.awaited.appended(producer_id)
        state.last_used_ms = now_ms
        state.batches.append(ProducedBatch(first, last, base_offset, offsets_count, timestamp))

    def lost(self, high_watermark: Offset, now_ms: int) -> None:
        """The batches at and after the high watermark did not become durable."""
        for producer_id, state in self._states.items():
            lost = next((batch for batch in state.batches if batch.base_offset >= high_watermark), None)
            if lost is not None:
                self.awaited.refused(producer_id, state.epoch, lost.first_sequence, now_ms)

    def expire(self, before_ms: int) -> int:
        """Drops the states last used before `before_ms`; returns how many."""
        gone = [producer_id for producer_id, state in self._states.items() if state.last_used_ms < before_ms]
        for producer_id in gone:
            del self._states[producer_id]
        self.awaited.expire(before_ms)
        return len(gone)

    def encode_snapshot(self, earlier_bytes: int, token: bytes = b"") -> bytes:
        """Encodes all states.

        Args:
            earlier_bytes: the size of the earlier snapshots in the same ledger.
            token: the fencing token of the partition, empty for none.
        """
        states = [
            (producer_id, state.epoch, state.last_used_ms, list(state.batches))
            for producer_id, state in self._states.items()
        ]
        fields = (TOKEN_FORMAT, states, earlier_bytes, token) if token else (SNAPSHOT_FORMAT, states, earlier_bytes)
        packed: bytes = msgpack.packb(fields)
        return packed

    def restore_snapshot(self, snapshot: bytes | memoryview) -> tuple[int, bytes]:
        """Replaces all states by those of a snapshot; returns its `earlier_bytes` and `token`.

        Raises:
            UnknownEntry: the snapshot is of another format.
        """
        form, *fields = msgpack.unpackb(snapshot)
        if form not in (SNAPSHOT_FORMAT, UNTIMED_FORMAT, TOKEN_FORMAT):
            problem = f"holds a producer snapshot of format {form}, this gnomon reads formats up to {TOKEN_FORMAT}"
            raise UnknownEntry(problem)
        token = fields.pop() if form == TOKEN_FORMAT else b""
        states, earlier_bytes = fields
        self._states.clear()
        for producer_id, epoch, last_used_ms, batches in states:
            state = self._states[producer_id] = ProducerState(epoch, last_used_ms)
            state.batches.extend(ProducedBatch(*batch) for batch in batches)
        return int(earlier_bytes), token
