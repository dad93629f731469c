"""A request on a Kafka connection with the place of its reply; and the way around parsing the next one like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gnomon.runtime.world import Buffer
from gnomon.wire.kafka.frame import RequestHeader

if TYPE_CHECKING:
    from gnomon.broker.kafka.connection import KafkaConnection


class Exchange:
    """One request and the place of its reply."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "cut_short",
        "reply_chunks",
        "size",
        "started",
    )

    def __init__(self, connection: KafkaConnection, header: RequestHeader, size: int, started: float) -> None:
        self.connection = connection
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.size = size
        self.started = started
        """When the turn that it arrived in began, by the driver's clock."""
        self.reply_chunks: Sequence[Buffer] | None = None
        self.cut_short: Callable[[], None] | None = None
        """Called when another request arrives behind this one; set by handlers that make their client wait."""

    def reply(self, chunks: Sequence[Buffer], *, flush: bool = True) -> None:
        """Answers with a whole frame; the chunks need to live only during this call when `flush` is set.

        With `flush=False` the caller sees to `KafkaConnection.flush` soon, and the chunks must live on until then:
        many replies then leave in one system call.
        """
        self.connection.replied(self, chunks, flush)

    def no_reply(self) -> None:
        """The request is done and gets no answer (acks=0)."""
        self.connection.replied(self, (), False)


class Shortcut(Protocol):
    """Handles a connection's next request without parsing it, where it is like the one before."""

    header: RequestHeader
    """That one's header; the correlation id differs."""

    def fits(self, frame: memoryview) -> bool:
        """Whether the request is like it."""

    def handle(self, exchange: Exchange, frame: memoryview) -> None:
        """Takes the request, which fits."""
