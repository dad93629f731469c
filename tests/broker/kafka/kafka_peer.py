"""A Kafka connection without its socket, and the client at its other end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gnomon.broker.kafka.connections.connection import KafkaConnection
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.wire.kafka.frame import RequestHeader


class Transport:
    """The transport of a peer that receives everything, unless `backlog_bytes` is set."""

    peer = "peer:1"
    patient = False

    def __init__(self) -> None:
        self.written = bytearray()
        self.backlog_bytes = 0
        self.paused = False
        self.ended = False
        self.next_turn: list[Callable[[], None]] = []

    def write(self, chunks: Sequence[Any]) -> None:
        if not self.ended:
            self.written += b"".join(chunks)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def call_next_turn(self, call: Callable[[], None]) -> None:
        self.next_turn.append(call)

    def close(self) -> None:
        self.ended = True

    abort = close


class Peer:
    """A connection and the client at its other end."""

    def __init__(
        self,
        memory: RequestMemory | None = None,
        *,
        dispatch: Callable[[Exchange], None] | None = None,
        request_bytes_max: int = 1 << 20,
    ) -> None:
        self.transport = Transport()
        self.now = 0.0
        self.memory = memory or RequestMemory(1 << 30)
        self.exchanges: list[Exchange] = []
        self.answered = 0
        self.reasons: list[str | None] = []
        self._dispatch = dispatch
        self.connection = KafkaConnection(
            self.transport,
            "PLAINTEXT",
            self.memory,
            self._take,
            self._count,
            lambda connection, reason: self.reasons.append(reason),
            lambda: self.now,
            frame_bytes_max=1 << 20,
            request_bytes_max=request_bytes_max,
        )
        self.sent = 0

    def _take(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        self.exchanges.append(exchange)
        if self._dispatch is not None:
            self._dispatch(exchange)

    def _count(self, exchanges: list[Exchange], now: float) -> None:
        self.answered += len(exchanges)

    def receive(self, data: bytes) -> None:
        while data and not self.transport.paused and not self.transport.ended:
            buffer = self.connection.receive_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)
        self.unread = data

    def ask(self, count: int = 1, size: int = 10) -> None:
        """Sends requests; all arrive at once."""
        frames = b""
        for _ in range(count):
            body = b"\0\x10\0\0" + self.sent.to_bytes(4, "big") + b"\xff\xff" + bytes(size - 10)
            frames += len(body).to_bytes(4, "big") + body
            self.sent += 1
        self.receive(frames)

    @property
    def replies(self) -> list[int]:
        """The correlation ids of the replies sent, as `answer` writes them."""
        data = bytes(self.transport.written)
        return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def answer(exchange: Exchange, *, flush: bool = True) -> None:
    exchange.reply((exchange.correlation_id.to_bytes(4, "big"),), flush=flush)
