"""One decoded request on its way through a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from gnomon.broker.kafka.exchange import Exchange
from gnomon.wire.kafka.api import response_header_version
from gnomon.wire.kafka.fields import Message
from gnomon.wire.kafka.frame import response_prefix
from gnomon.wire.kafka.schema import InexpressibleMessage, encode

ITEMS_MAX = 10_000
"""Groups, or rules for access, of one request: a few bytes can name one, and its answer is some hundred."""


class Request:
    """A request and the way to answer it."""

    __slots__ = ("exchange", "message")

    def __init__(self, exchange: Exchange, message: Any) -> None:
        self.exchange = exchange
        self.message = message

    @property
    def version(self) -> int:
        """The version that the client speaks."""
        return self.exchange.api_version

    @property
    def client_id(self) -> str:
        """How the client calls itself."""
        return self.exchange.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address, as Kafka's tools show it."""
        return "/" + self.exchange.connection.transport.peer.rpartition(":")[0]

    def reply(self, response: Message) -> None:
        """Answers the request; what the version cannot say ends the connection, and the node lives on."""
        exchange = self.exchange
        try:
            body = encode(response, exchange.api_version)
        except InexpressibleMessage as error:
            exchange.connection.refuse(f"the answer cannot be sent: {error}")
            return
        flexible = response_header_version(exchange.api_key, exchange.api_version) >= 1
        exchange.reply((response_prefix(len(body), exchange.correlation_id, flexible), body))


Handler: TypeAlias = Callable[[Request], Message | Awaitable[Message] | None]
"""Gives the response, or a coroutine that gives it, or None where `Request.reply` follows."""


def too_many(request: Request, count: int, what: str) -> bool:
    """Whether the request names more of them than one may; then its connection ends."""
    if count > ITEMS_MAX:
        request.exchange.connection.refuse(f"{count} {what} in one request: at most {ITEMS_MAX}, ask for fewer")
    return count > ITEMS_MAX
