"""The memory that the requests and answers of all Kafka connections of a broker take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.broker.kafka.connection import KafkaConnection


class RequestMemory:
    """The bytes of all requests in flight and of all answers not taken yet, broker-wide, and who waits for room.

    Requests beyond the limit wait. Answers do not, or one peer's sloth would cost the others: with as many bytes
    untaken as the limit allows, each further answer to a fetch has one batch only. An answer that is ready behind one
    that is not counts as untaken too.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.backlog_bytes = 0
        self.unfinished_bytes = 0
        """Of requests that have not arrived whole."""
        self.unfinished: dict[KafkaConnection, None] = {}
        """Whose they are."""
        self._waiting: dict[KafkaConnection, None] = {}
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
        """Bytes of answers that may be left untaken before further ones have to be small."""
        return max(0, self.bytes_max - self.backlog_bytes)

    def wait(self, connection: KafkaConnection) -> None:
        """`connection.go_on()` is called when there is room."""
        self._waiting[connection] = None

    def forget(self, connection: KafkaConnection) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
