"""The numbered operations that a partition has done, so that one that is sent again is not done again. Pure.

1. An operation is kept until its client has said that it has the answer, or until the client has done nothing for
   KEPT_SECONDS at this leader, by a clock that nobody sets. Numbers may have gaps: refused operations are not kept.
2. The operations are those of batches in the log, noted in its order. So each replay of the log finds the same ones.
3. Operations whose batch was lost are forgotten with it, since the client sends them again.
4. A late copy of an operation whose answer the client has is recognized by its number, and not done again.
5. Operations and clients together are at most OPERATIONS_MAX; beyond that, further operations are refused until others
   are answered or forgotten. Answers are kept up to ANSWERS_BYTES_MAX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import OperationId

KEPT_SECONDS: Final = 120.0
OPERATIONS_MAX: Final = 100_000
ANSWERS_BYTES_MAX: Final = 16 << 20
"""The values that transactions have read, of one partition; the operations beyond that are kept without answers."""


class DoneOperation(NamedTuple):
    """An operation whose batch was given out."""

    base_offset: Offset
    next_offset: Offset
    timestamp_ms: int
    succeeded: bool
    answers: list[Any] | None
    """As they were given; None for an operation that was replayed from the log."""


OperationChange: TypeAlias = tuple[int, DoneOperation] | None
"""An operation that is durable, after the number below which its client has all answers; None if it is forgotten."""


@dataclass(slots=True)
class _Client:
    used_at: float | None
    """The time of the last operation; None if it was done before the first call of `has_room`."""
    answered_below: int = 0
    """The client has the answers of all operations with lower numbers."""
    done: dict[int, DoneOperation] = field(default_factory=dict)


class RecentOperations:
    """The operations of one partition's clients."""

    def __init__(self) -> None:
        """Nothing was done."""
        self._clients: dict[bytes, _Client] = {}
        """The clients in the order of their last operations; each has done at least one."""
        self._count = self._answers_bytes = 0
        self._in_flight: deque[tuple[OperationId, DoneOperation]] = deque()
        """The operations that are not durable yet."""
        self._changes: dict[tuple[bytes, int], OperationChange] | None = None
        self._began_at: float | None = None
        self._now: float | None = None
        """The times of the first and the last call of `has_room`."""

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def find(self, operation: OperationId) -> DoneOperation | None:
        """The operation, if it was done."""
        client = self._clients.get(operation.writer)
        return None if client is None else client.done.get(operation.number)

    def is_answered(self, operation: OperationId) -> bool:
        """Whether the client has the answer of the operation already: this is a late copy."""
        client = self._clients.get(operation.writer)
        return client is not None and operation.number < client.answered_below

    def has_room(self, operation: OperationId, now: float) -> bool:
        """Whether another operation can be kept, after those that its client has the answers of are forgotten.

        Args:
            now: the monotonic time in seconds.
        """
        self._now = now
        self._began_at = now if self._began_at is None else self._began_at
        self._expire(self._began_at, now)
        client = self._clients.get(operation.writer)
        if client is not None:
            self._answered(operation.writer, client, operation.answered_below)
        return self._count + len(self._clients) < OPERATIONS_MAX

    def note(self, operation: OperationId, done: DoneOperation) -> None:
        """The batch of an operation was given out, or is replayed."""
        self._keep(operation, done)
        self._in_flight.append((operation, done))

    def restore(self, operation: OperationId, done: DoneOperation) -> None:
        """An operation was done before the part of the log that is replayed; the calls are in the order of the log."""
        self._keep(operation, done)

    def _keep(self, operation: OperationId, done: DoneOperation) -> None:
        client = self._clients.pop(operation.writer, None) or _Client(self._now)
        self._clients[operation.writer] = client
        client.used_at = self._now
        self._answered(operation.writer, client, operation.answered_below)
        self._forget(operation.writer, client, operation.number)  # replayed, and restored before
        more_bytes = _answers_bytes(done)
        if self._answers_bytes + more_bytes > ANSWERS_BYTES_MAX:
            done, more_bytes = done._replace(answers=None), 0
        client.done[operation.number] = done
        self._count += 1
        self._answers_bytes += more_bytes

    def durable(self, next_offset: Offset) -> None:
        """Everything below `next_offset` is durable."""
        in_flight = self._in_flight
        while in_flight and in_flight[0][1].next_offset <= next_offset:
            operation, done = in_flight.popleft()
            if self._changes is not None and self.find(operation) is not None:
                self._changes[operation.writer, operation.number] = (operation.answered_below, done)

    def lost(self) -> None:
        """The operations that are not durable are not done."""
        for operation, _ in self._in_flight:
            client = self._clients.get(operation.writer)
            if client is not None:
                self._forget(operation.writer, client, operation.number)
        self._in_flight.clear()

    def collect_changes(self) -> None:
        """From now on `take_changes` has the operations that became durable or were forgotten."""
        self._changes = {} if self._changes is None else self._changes

    def take_changes(self) -> dict[tuple[bytes, int], OperationChange]:
        """The changes since the last call, by client and number."""
        taken, self._changes = self._changes or {}, {}
        return taken

    def below(self, end: Offset) -> Iterator[tuple[OperationId, DoneOperation]]:
        """The operations below a durable offset that are not forgotten; others may be noted between two steps."""
        for writer in list(self._clients):
            client = self._clients.get(writer)
            if client is None:
                continue
            for number, done in list(client.done.items()):
                if done.next_offset <= end:
                    yield OperationId(writer, number, client.answered_below, done.succeeded), done

    def _answered(self, writer: bytes, client: _Client, answered_below: int) -> None:
        if answered_below > client.answered_below:
            client.answered_below = answered_below
            for number in [number for number in client.done if number < answered_below]:
                self._forget(writer, client, number)

    def _forget(self, writer: bytes, client: _Client, number: int) -> None:
        done = client.done.pop(number, None)
        if done is not None:
            self._count -= 1
            self._answers_bytes -= _answers_bytes(done)
            if self._changes is not None:
                self._changes[writer, number] = None

    def _expire(self, began_at: float, now: float) -> None:
        while self._clients:
            writer, client = next(iter(self._clients.items()))
            if now - (began_at if client.used_at is None else client.used_at) < KEPT_SECONDS:
                return
            for number in list(client.done):
                self._forget(writer, client, number)
            del self._clients[writer]


def _answers_bytes(done: DoneOperation) -> int:
    """The bytes of the values that the operation has read."""
    return sum(len(answer) for answer in done.answers or () if isinstance(answer, bytes))
