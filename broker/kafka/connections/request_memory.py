"""The memory that the requests and answers of all Kafka connections of a broker take."""

from __future__ import annotations

from typing import Protocol


class MemoryUser(Protocol):
    """A connection whose requests take memory."""

    def go_on(self) -> None:
        """There may be room again: handles the requests that waited."""

    def unfinished_weight(self, now: float) -> tuple[bool, float]:
        """The cost of its unfinished request until `now`; the connection with the greatest one is refused first."""

    def refuse(self, reason: str) -> None:
        """Ends the connection."""


class RequestMemory:
    """The bytes of all requests in flight and of all answers not taken yet, broker-wide, and who waits for room.

    Requests beyond the limit wait. Answers do not wait, or one slow peer would delay the others: once the untaken bytes
    reach the limit, each further answer to a fetch has one batch only. An answer that waits for an earlier one of its
    connection counts as untaken.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.backlog_bytes = 0
        self.unfinished_bytes = 0
        """Bytes of requests that have not arrived whole."""
        self.unfinished: dict[MemoryUser, None] = {}
        """The connections of these requests."""
        self._waiting: dict[MemoryUser, None] = {}
        self._waking = False

    def take(self, count: int) -> None:
        """A request of `count` bytes has arrived."""
        self.bytes_used += count

    def give_back(self, count: int) -> None:
        """Its reply has left, or its connection is gone."""
        self.bytes_used -= count
        if not self._waiting or self._waking:
            return
        self._waking = True  # those woken give back in turn: a loop here, no recursion
        while self._waiting and not self.full():
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.go_on()
        self._waking = False

    def full(self) -> bool:
        """Whether the next request has to wait."""
        return self.bytes_used >= self.bytes_max

    def backlog_room(self) -> int:
        """Bytes of answers that may be left untaken before further answers have to be small."""
        return max(0, self.bytes_max - self.backlog_bytes)

    def wait(self, connection: MemoryUser) -> None:
        """`connection.go_on()` is called when there is room."""
        self._waiting[connection] = None

    def forget(self, connection: MemoryUser) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
