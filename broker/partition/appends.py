"""The unanswered appends to one partition: waiting, in flight, repeated or suspended. Pure.

1. Each append is answered once: with its place in the log once it is durable, or with the reason why it is refused.
2. New batches are acknowledged in the order of their entries. A repeat is answered after the batch that it repeats. A
   refusal by the terms of a batch (`terms`) is answered once the batch that it names is durable, just before that one:
   so the loser that waited longest is the first to try again, and of several writers that race none starves.
3. Waiting appends are resumed, or refused, in their order of arrival. One without memory for its copy is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.producers import Duplicate
from gnomon.broker.partition.unpacking.batch_client import BatchClient
from gnomon.log.entry import NO_OFFSET, NO_TIMESTAMP, Offset
from gnomon.wire.kafka.errors import ErrorCode


class Produced(NamedTuple):
    """The outcome of one append, in the order of a Produce answer; a field without a value is -1."""

    error: ErrorCode
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: int
    text: str | None = None

    @classmethod
    def refusal(cls, error: ErrorCode, text: str) -> Produced:
        """The batch is not in the log, or its outcome is unknown."""
        return cls(error, NO_OFFSET, -1, -1, text)


WITHOUT_MEMORY = Produced.refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the broker has no memory for the batch: send it again"
)


class AppendCallback(Protocol):
    """Receives the outcome of each append, with the slot that the caller of `append` chose for it."""

    def client_of(self, slot: Any) -> BatchClient:
        """The client that the batch came from."""

    def appended(self, slot: Any, outcome: Produced) -> None:
        """The batch is durable or refused; called once, perhaps before `append` returns."""


InFlight = tuple[Offset, Offset, int, AppendCallback | None, Any]
"""An entry that is being written: base offset, next offset, log append time, callback and slot; a producer snapshot has
no callback. A plain tuple, since one is made per batch."""


class Appends:
    """The appends to one partition that are not answered yet."""

    def __init__(self, note_refused: Callable[[memoryview], None]) -> None:
        """`note_refused` is called with each waiting batch that is refused."""
        self._waiting: deque[tuple[bytes, AppendCallback, Any, Terms | None]] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._repeats: deque[InFlight] = deque()
        self._later: deque[tuple[int, AppendCallback, Any, Callable[[], None]]] = deque()
        """Appends that write nothing, with the number of the last entry that was written before them."""
        self._entries_written = self._entries_stored = 0
        self._suspended: dict[object, tuple[AppendCallback, Any]] = {}
        self._note_refused = note_refused

    def wait(self, records: memoryview, callback: AppendCallback, slot: Any, terms: Terms | None = None) -> None:
        """Keeps a batch that cannot be written now; `records` need not outlive the call."""
        kept = self._kept(records, callback, slot)
        if kept is not None:
            self._waiting.append((kept, callback, slot, terms))

    def wait_first(self, records: memoryview, callback: AppendCallback, slot: Any, terms: Terms | None = None) -> None:
        """Like `wait`, for a batch that arrived before all that wait."""
        kept = self._kept(records, callback, slot)
        if kept is not None:
            self._waiting.appendleft((kept, callback, slot, terms))

    def _kept(self, records: memoryview, callback: AppendCallback, slot: Any) -> bytes | None:
        try:
            return bytes(records)
        except MemoryError:
            self._note_refused(records)
            callback.appended(slot, WITHOUT_MEMORY)
            return None

    def resume(self, append: Callable[[memoryview, AppendCallback, Any, Terms | None], None]) -> None:
        """Calls `append` with each waiting batch, until one of them has to wait again; the others wait after it."""
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            records, callback, slot, terms = waiting.popleft()
            append(memoryview(records), callback, slot, terms)
            if self._waiting:
                self._waiting.extend(waiting)
                return

    def suspend(self, callback: AppendCallback, slot: Any) -> object:
        """Keeps an append that will be refused once the reason is confirmed; `settle` takes the returned key."""
        key = object()
        self._suspended[key] = (callback, slot)
        return key

    def settle(self, key: object, outcome: Produced) -> None:
        """Answers a suspended append, unless it was refused meanwhile with all that waited."""
        if key in self._suspended:
            callback, slot = self._suspended.pop(key)
            callback.appended(slot, outcome)

    def refuse_waiting(self, outcome: Produced) -> None:
        """Answers all suspended and waiting appends with a refusal."""
        for key in list(self._suspended):
            self.settle(key, outcome)
        waiting, self._waiting = self._waiting, deque()
        for records, callback, slot, _ in waiting:
            self._note_refused(memoryview(records))
            callback.appended(slot, outcome)

    @property
    def in_flight(self) -> bool:
        """Whether any entry is being written."""
        return bool(self._in_flight)

    def written(self, entry: InFlight) -> None:
        """The entry is being written, after all others in flight."""
        self._in_flight.append(entry)
        self._entries_written += 1

    def repeated(self, log: PartitionLog, first: Duplicate, callback: AppendCallback, slot: Any) -> None:
        """A batch that is in the log already: answered like its first copy, and not before it."""
        append_time_ms = first.timestamp if log.settings.log_append_time else NO_TIMESTAMP
        if first.next_offset <= log.high_watermark:
            callback.appended(slot, Produced(ErrorCode.NONE, first.base_offset, append_time_ms, log.start_offset))
        else:
            self._repeats.append((first.base_offset, first.next_offset, append_time_ms, callback, slot))

    def after_all(self, callback: AppendCallback, slot: Any, answer: Callable[[], None]) -> None:
        """An append that writes nothing, as its terms do not hold or its token is the present one.

        Args:
            answer: called once everything in flight is durable. If that fails, `callback` is answered like it: the
                answer may have named a record, or a token, that nobody will ever read.
        """
        if self._in_flight:
            self._later.append((self._entries_written, callback, slot, answer))
        else:
            answer()

    def stored(self, log: PartitionLog) -> bool:
        """The oldest entry in flight is durable; returns False if there is none, because all of them failed."""
        if not self._in_flight:
            return False
        base_offset, next_offset, append_time_ms, callback, slot = self._in_flight.popleft()
        self._entries_stored += 1
        log.durable(next_offset)
        while self._later and self._later[0][0] <= self._entries_stored:
            self._later.popleft()[3]()
        if callback is not None:
            callback.appended(slot, Produced(ErrorCode.NONE, base_offset, append_time_ms, log.start_offset))
        while self._repeats and self._repeats[0][1] <= next_offset:
            base_offset, _, append_time_ms, callback, slot = self._repeats.popleft()
            assert callback is not None, "a snapshot is never a repeat"
            callback.appended(slot, Produced(ErrorCode.NONE, base_offset, append_time_ms, log.start_offset))
        return True

    def fail_in_flight(self, code: ErrorCode, text: str) -> None:
        """Every entry in flight is lost, or its outcome is unknown; what waits for them is answered alike."""
        lost = [*self._in_flight, *self._repeats]
        later, self._later = self._later, deque()
        self._entries_stored += len(self._in_flight)
        self._in_flight.clear()
        self._repeats.clear()
        for _, _, _, callback, slot in lost:
            if callback is not None:
                callback.appended(slot, Produced.refusal(code, text))
        for _, callback, slot, _ in later:
            callback.appended(slot, Produced.refusal(code, text))
