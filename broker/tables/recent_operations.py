"""The numbered operations that a partition has done, so that one that is sent again is not done again. Pure.

1. An operation is kept until its client has said that it has the answer, or until the client has done nothing for
   KEPT_MS of the log's time. Numbers may have gaps: refused operations are not kept.
2. The operations are those of batches in the log, noted in its order. So each replay of the log finds the same ones.
3. Operations whose batch was lost are forgotten with it, since the client sends them again.
4. At most CLIENTS_MAX clients are kept; beyond that, operations of further clients are refused until others expire.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import OperationId

KEPT_MS: Final = 120_000
CLIENTS_MAX: Final = 100_000


class DoneOperation(NamedTuple):
    """An operation whose batch was given out."""

    base_offset: Offset
    next_offset: Offset
    timestamp_ms: int
    succeeded: bool
    answers: list[Any] | None
    """As they were given; None for an operation that was replayed from the log."""


@dataclass(slots=True)
class _Client:
    used_ms: int
    done: dict[int, DoneOperation] = field(default_factory=dict)


class RecentOperations:
    """The operations of one partition's clients."""

    def __init__(self) -> None:
        """Nothing was done."""
        self._clients: dict[bytes, _Client] = {}
        """The clients in the order of their last operations."""
        self._in_flight: deque[tuple[Offset, bytes, int]] = deque()
        """End, client and number of the operations that are not durable yet."""

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def find(self, operation: OperationId) -> DoneOperation | None:
        """The operation, if it was done."""
        client = self._clients.get(operation.writer)
        return None if client is None else client.done.get(operation.number)

    def has_room(self, operation: OperationId, now_ms: int) -> bool:
        """Whether an operation of its client can be kept."""
        self._expire(now_ms)
        return len(self._clients) < CLIENTS_MAX or operation.writer in self._clients

    def note(self, operation: OperationId, done: DoneOperation) -> None:
        """The batch of an operation was given out, or is replayed."""
        client = self._clients.pop(operation.writer, None) or _Client(done.timestamp_ms)
        self._clients[operation.writer] = client
        client.used_ms = max(client.used_ms, done.timestamp_ms)
        for number in [number for number in client.done if number < operation.answered_below]:
            del client.done[number]
        client.done[operation.number] = done
        self._in_flight.append((done.next_offset, operation.writer, operation.number))

    def durable(self, next_offset: Offset) -> None:
        """Everything below `next_offset` is durable."""
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= next_offset:
            in_flight.popleft()

    def lost(self) -> None:
        """The operations that are not durable are not done."""
        for _, writer, number in self._in_flight:
            client = self._clients.get(writer)
            if client is not None:
                client.done.pop(number, None)
        self._in_flight.clear()

    def _expire(self, now_ms: int) -> None:
        while self._clients:
            writer, client = next(iter(self._clients.items()))
            if now_ms - client.used_ms < KEPT_MS:
                return
            del self._clients[writer]
