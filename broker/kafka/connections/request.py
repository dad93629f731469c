"""One decoded request on its way through a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.wire.kafka.api import response_header_version
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.frame import response_prefix
from gnomon.wire.kafka.schema import encode


class Request:
    """A request and the way to answer it."""

    __slots__ = ("_amendments", "_send", "elements", "exchange", "message", "session")

    def __init__(
        self, exchange: Exchange, message: Any, elements: int, send: Callable[[Request, ProtocolMessage], None]
    ) -> None:
        """A decoded request.

        Args:
            elements: the array elements of `message`.
            send: amends and encodes a response and calls `Request.send`, now or later.
        """
        self._send = send
        self.elements = elements
        self.exchange = exchange
        self.message = message
        self.session = exchange.session()
        self._amendments: tuple[Callable[[Any], None], ...] = ()

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.exchange.api_version

    @property
    def client_id(self) -> str:
        """The client id, empty if the client sends none."""
        return self.exchange.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address, as Kafka's tools show it."""
        return f"/{self.session.address}"

    def amend(self, amendment: Callable[[Any], None]) -> None:
        """Applies `amendment` to the response before it is encoded."""
        self._amendments += (amendment,)

    def reply(self, response: ProtocolMessage) -> None:
        """Answers the request; a response that its version cannot express ends the connection."""
        self._send(self, response)

    def encode(self, response: ProtocolMessage) -> bytes:
        """Amends a response and encodes it.

        Raises:
            InexpressibleMessage: the version of the request cannot express it.
        """
        for amend in self._amendments:
            amend(response)
        return encode(response, self.version)

    def send(self, body: bytes) -> None:
        """Sends an encoded response."""
        exchange = self.exchange
        flexible = response_header_version(exchange.api_key, exchange.api_version) >= 1
        exchange.reply((response_prefix(len(body), exchange.correlation_id, flexible), body))


Handler: TypeAlias = Callable[[Request], ProtocolMessage | Awaitable[ProtocolMessage] | None]
"""A function that returns the response, a coroutine for it, or None if `Request.reply` gives the response later."""
