"""Fetch: a request to its session, and to the poll that answers it.

See `poll` for when and with what it is answered, `fetch_route` for a consumer's next requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.exchange import Exchange
from gnomon.broker.kafka.fetch_route import fetch_route
from gnomon.broker.kafka.fetch_sessions import FetchSessions, Followed
from gnomon.broker.kafka.poll import Poll, RecentAnswers
from gnomon.broker.partition.readable import Readable
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import encode_fetch_response, parse_fetch

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


class FetchHandler:
    """Answers the Fetch requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._recent = RecentAnswers()
        self._bytes_max = broker.configs.number("fetch.max.bytes")
        self._sessions = FetchSessions(
            broker.configs.number("max.incremental.fetch.session.cache.slots"), broker.world.random("fetch-sessions")
        )

    def handle(self, exchange: Exchange, frame: memoryview, body_start: int) -> None:
        """Takes one request; the answer follows now or later."""
        request = parse_fetch(frame, body_start, exchange.api_version)
        bytes_max = max(0, min(request.max_bytes, self._bytes_max))
        exchange.connection.shortcut = fetch_route(self._broker, exchange, frame, request, bytes_max, self._recent)
        try:
            session, followed = self._sessions.find(request, exchange.started)
        except KafkaError as error:
            exchange.reply(encode_fetch_response(exchange.correlation_id, exchange.api_version, error.code, 0, []))
            return
        wanted = [(item, *self._find(item)) for item in followed]
        Poll(self._broker, exchange, request, session, wanted, bytes_max, self._recent).start()

    def _find(self, item: Followed) -> tuple[Readable | None, ErrorCode]:
        try:
            return self._broker.partition_of(item.topic, item.spec.partition), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code
