"""The appends to one partition that are not answered yet. Pure.

1. Each is answered once: with where it is in the log once it is durable, or with why it is not.
2. Answers come in the order of the entries. That to a repeat is the one to the batch which it repeats, and follows it.
3. What waits is taken up, or refused, in its order of arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gnomon.broker.partition.entry import NO_OFFSET, Offset
from gnomon.broker.partition.log import PartitionLog
from gnomon.broker.partition.producers import Duplicate
from gnomon.wire.kafka.errors import ErrorCode


class Produced(NamedTuple):
    """The outcome of one append, in the order of a Produce answer; -1 stands for what there is not."""

    error: ErrorCode
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: int
    text: str | None = None

    @classmethod
    def refusal(cls, error: ErrorCode, text: str) -> Produced:
        """It is not in the log, or whether it will be is not known."""
        return cls(error, NO_OFFSET, -1, -1, text)


class Appender(Protocol):
    """Who appends: is told the outcome of each batch, by the slot that it gave it, whatever that is."""

    def appended(self, slot: Any, outcome: Produced) -> None:
        """The batch is durable or refused; called once, perhaps before `append` returns."""


Written = tuple[Offset, Offset, int, Appender | None, Any]
"""An entry on its way to the disk: base offset, next offset, log append time, and whose slot it is; a snapshot is
nobody's. A plain tuple, since one is made per batch."""


class Appends:
    """What waits to be written, what is on its way to the disk, and who repeats that."""

    def __init__(self, note_refused: Callable[[memoryview], None]) -> None:
        """`note_refused` is told of each batch that waited and is refused."""
        self._waiting: deque[tuple[bytes, Appender, Any]] = deque()
        self._written: deque[Written] = deque()
        self._repeats: deque[Written] = deque()
        self._doubted: dict[object, tuple[Appender, Any]] = {}
        self._note_refused = note_refused

    def wait(self, records: memoryview, appender: Appender, slot: Any) -> None:
        """This batch cannot be written now; `records` need not outlive the call."""
        self._waiting.append((bytes(records), appender, slot))

    def take_up(self, append: Callable[[memoryview, Appender, Any], None]) -> None:
        """Hands what waits to `append`, until that makes one of them wait again: the others stay behind it."""
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            records, appender, slot = waiting.popleft()
            append(memoryview(records), appender, slot)
            if self._waiting:
                self._waiting.extend(waiting)
                return

    def doubt(self, appender: Appender, slot: Any) -> object:
        """A batch that is not written, and waits to be told why; `judge` takes what this returns."""
        doubted = object()
        self._doubted[doubted] = (appender, slot)
        return doubted

    def judge(self, doubted: object, outcome: Produced) -> None:
        """Tells one in doubt its outcome, unless it was refused meanwhile with all that waited."""
        if doubted in self._doubted:
            appender, slot = self._doubted.pop(doubted)
            appender.appended(slot, outcome)

    def refuse_waiting(self, outcome: Produced) -> None:
        """Nothing that waits will be written."""
        for doubted in list(self._doubted):
            self.judge(doubted, outcome)
        waiting, self._waiting = self._waiting, deque()
        for records, appender, slot in waiting:
            self._note_refused(memoryview(records))
            appender.appended(slot, outcome)

    @property
    def on_their_way(self) -> bool:
        """Whether any are on their way to the disk."""
        return bool(self._written)

    def written(self, entry: Written) -> None:
        """It is on its way, behind all others."""
        self._written.append(entry)

    def repeated(self, log: PartitionLog, first: Duplicate, appender: Appender, slot: Any) -> None:
        """A batch that is in the log already: answered like the first one, and not before it."""
        if first.next_offset <= log.high_watermark:
            appender.appended(slot, Produced(ErrorCode.NONE, first.base_offset, -1, log.start_offset))
        else:
            self._repeats.append((first.base_offset, first.next_offset, -1, appender, slot))

    def stored(self, log: PartitionLog) -> bool:
        """The oldest entry on its way is durable; False where there is none, as all were failed."""
        if not self._written:
            return False
        base_offset, next_offset, append_time_ms, appender, slot = self._written.popleft()
        log.durable(next_offset)
        if appender is not None:
            appender.appended(slot, Produced(ErrorCode.NONE, base_offset, append_time_ms, log.start_offset))
        while self._repeats and self._repeats[0][1] <= next_offset:
            base_offset, _, _, appender, slot = self._repeats.popleft()
            assert appender is not None, "a snapshot is never a repeat"
            appender.appended(slot, Produced(ErrorCode.NONE, base_offset, -1, log.start_offset))
        return True

    def fail_written(self, code: ErrorCode, text: str) -> None:
        """All that is on its way is lost, or its outcome unknown."""
        lost = [*self._written, *self._repeats]
        self._written.clear()
        self._repeats.clear()
        for _, _, _, appender, slot in lost:
            if appender is not None:
                appender.appended(slot, Produced.refusal(code, text))
