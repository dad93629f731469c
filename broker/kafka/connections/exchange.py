"""An exchange: one request on a Kafka connection and the place of its reply; and shortcuts, which skip the parsing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gnomon.broker.authorization.session import Session
from gnomon.broker.topics.creation_budget import CreationBudget
from gnomon.runtime.world import Buffer, Connection
from gnomon.wire.kafka.api import APIS
from gnomon.wire.kafka.frame import RequestHeader


class ExchangeConnection(Protocol):
    """The Kafka connection of an exchange, as requests use it."""

    transport: Connection
    software: str
    """Name and version of the client's library, where the client has sent them (KIP-511)."""
    closed_by_peer: bool
    shortcut: Shortcut | None
    """Set by a handler that recognizes the next request of its kind by its bytes."""
    creations: CreationBudget | None
    """Topics that its client may create by asking for them; None before the first."""

    def session_of(self, client_id: str) -> Session:
        """The session of a request with the client id `client_id`."""

    def replied(self, exchange: Exchange, chunks: Sequence[Buffer], flush: bool) -> None:
        """An exchange has its answer; see `Exchange.reply`."""

    def flush(self) -> None:
        """Sends all answers that may leave, in one call."""

    def hold(self, exchange: Exchange) -> None:
        """Takes no further request until this one is answered; call it before the answer is given."""

    def release(self, exchange: Exchange) -> None:
        """Undoes `hold` of this request; the next one is taken at the next `flush`."""

    def charge(self, exchange: Exchange, count: int) -> None:
        """Counts `count` further bytes of memory for a request, until it is answered."""

    def refund(self, exchange: Exchange, count: int) -> None:
        """Gives back `count` bytes that were charged for a request that is not answered yet."""

    def refuse(self, reason: str) -> None:
        """Ends the connection after sending the answers given so far."""

    def answer_room(self) -> int:
        """See `KafkaConnection.answer_room`."""


class Exchange:
    """One request and the place of its reply; it is the `BatchClient` of the batches that are unpacked for it."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "cut_short",
        "ended",
        "reply_chunks",
        "silent",
        "size",
        "started",
    )

    def __init__(self, connection: ExchangeConnection, header: RequestHeader, size: int, started: float) -> None:
        self.connection = connection
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.size = size
        self.started = started
        """The time at which the turn of the request's arrival began, by the driver's clock."""
        self.reply_chunks: Sequence[Buffer] | None = None
        self.cut_short: Callable[[], None] | None = None
        """Called when another request arrives after this one; set by handlers that let their client wait."""
        self.ended: Callable[[], None] | None = None
        """Called once the request is answered, or its connection is gone."""
        self.silent = False
        """Whether the request gets no answer, so that its client may close the connection at once (acks=0)."""

    def named(self) -> dict[str, object]:
        """See `NamedRequest.named`."""
        api = APIS.get(self.api_key)
        name = api.key.name if api is not None else str(self.api_key)
        return {"api": name, "peer": self.connection.transport.peer, "client": self.client_id or ""}

    def session(self) -> Session:
        """The session that the request belongs to."""
        return self.connection.session_of(self.client_id or "")

    @property
    def turn_key(self) -> object:
        """See `BatchClient.turn_key`."""
        return self.connection

    @property
    def gone(self) -> bool:
        """See `BatchClient.gone`; a request without an answer is worked on for a connection that is closed, too."""
        return self.connection.closed_by_peer and not self.silent

    def charge(self, count: int) -> None:
        """Counts `count` further bytes of memory for the request, until it is answered."""
        self.connection.charge(self, count)

    def refund(self, count: int) -> None:
        """Undoes `charge` before the request is answered."""
        self.connection.refund(self, count)

    def reply(self, chunks: Sequence[Buffer], *, flush: bool = True) -> None:
        """Answers with a whole frame; the chunks need to live only during this call when `flush` is set.

        With `flush=False` the caller calls `ExchangeConnection.flush` soon, and the chunks must live until then: many
        replies then leave in one system call.
        """
        self.connection.replied(self, chunks, flush)

    def no_reply(self) -> None:
        """The request is done and gets no answer (acks=0)."""
        self.connection.replied(self, (), False)


class Shortcut(Protocol):
    """Handles a connection's next request without parsing it, if it is like the one before."""

    header: RequestHeader
    """The header of the previous request; only the correlation id differs."""

    def fits(self, frame: memoryview) -> bool:
        """Whether a request is like the one before."""

    def handle(self, exchange: Exchange, frame: memoryview) -> None:
        """Handles a request that fits."""
