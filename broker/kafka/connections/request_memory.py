"""The memory that the requests and answers of all Kafka connections of a broker take."""

from __future__ import annotations

from typing import Protocol

LAST_ANSWERS_BYTES = 64 << 20
"""Room for answers beyond the limit: that of a request is known only when it is made."""


class MemoryUser(Protocol):
    """A connection whose requests take memory."""

    def go_on(self) -> None:
        """There may be room again: handles the requests that waited."""

    def unfinished_weight(self, now: float) -> tuple[bool, float]:
        """The cost of the unfinished request until `now`; the connection with the greatest cost is refused first."""

    def refuse(self, reason: str) -> None:
        """Ends the connection."""

    @property
    def unreceived_bytes(self) -> int:
        """Bytes of answers that the peer has not received, or that wait for an earlier one."""

    def cut_off(self, reason: str) -> None:
        """Ends the connection without the answers that its peer has not received."""


class RequestMemory:
    """The bytes of a broker's requests in flight and unreceived answers, and the connections that wait for room.

    Requests beyond the limit wait. Answers do not wait, because one slow peer would delay the others. Once the
    unreceived answers reach the limit, each further answer to a fetch has one batch only; once they exceed it
    by LAST_ANSWERS_BYTES, the connection with the most of them is cut off. An answer that waits for an earlier one of
    its connection counts as unreceived.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.backlog_bytes = 0
        self.unfinished_bytes = 0
        """Bytes of requests that have not arrived whole."""
        self.unfinished: dict[MemoryUser, None] = {}
        """The connections of these requests."""
        self._behind: dict[MemoryUser, None] = {}
        """The connections with unreceived answers."""
        self._waiting: dict[MemoryUser, None] = {}
        self._waking = False

    def take(self, count: int) -> None:
        """A request of `count` bytes has arrived."""
        self.bytes_used += count

    def give_back(self, count: int) -> None:
        """The reply to `count` bytes of requests was sent, or the connection is gone."""
        self.bytes_used -= count
        if not self._waiting or self._waking:
            return
        self._waking = True  # woken connections call this again: a loop, no recursion
        while self._waiting and not self.full():
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.go_on()
        self._waking = False

    def full(self) -> bool:
        """Whether the next request has to wait."""
        return self.bytes_used >= self.bytes_max

    def count_backlog(self, connection: MemoryUser, count: int) -> None:
        """The unreceived answers of a connection grew by `count` bytes."""
        self.backlog_bytes += count
        if connection.unreceived_bytes:
            self._behind[connection] = None
        else:
            self._behind.pop(connection, None)
        allowed = self.bytes_max + LAST_ANSWERS_BYTES
        if count > 0 and self.backlog_bytes > allowed:
            most = max(self._behind, key=lambda each: each.unreceived_bytes)
            most.cut_off(
                f"{self.backlog_bytes} bytes of answers were not received, {allowed} are allowed, and this "
                f"connection had the most, {most.unreceived_bytes}: see broker.request_queue_bytes_max"
            )

    def backlog_room(self) -> int:
        """The bytes that unreceived answers may still grow by before further answers have to be small."""
        return max(0, self.bytes_max - self.backlog_bytes)

    def wait(self, connection: MemoryUser) -> None:
        """`connection.go_on()` is called when there is room."""
        self._waiting[connection] = None

    def forget(self, connection: MemoryUser) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
