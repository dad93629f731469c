"""Fetch: finds the session of a request, and starts the poll that answers it.

`poll` decides the time and the content of the answer. `fetch_route` handles a consumer's next requests of the same
form.
"""

from __future__ import annotations

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.fetch_route import FetchRoutes
from gnomon.broker.kafka.fetch_sessions import FetchSessions, Followed
from gnomon.broker.kafka.poll import Poll, Polls
from gnomon.broker.partition.readable import Readable
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topics import Topics
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import RandomStream
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import encode_fetch_response, parse_fetch


class FetchHandler:
    """Answers the Fetch requests of one broker."""

    def __init__(
        self,
        topics: Topics,
        routes: Routes,
        placement: Placement,
        access: Access[ApiKey],
        configs: BrokerConfigs,
        timers: Timers,
        metrics: Metrics,
        session_ids: RandomStream,
    ) -> None:
        self._routes = FetchRoutes(topics, routes, placement, access, Polls(timers, metrics))
        self._bytes_max = configs.number("fetch.max.bytes")
        self._sessions = FetchSessions(configs.number("max.incremental.fetch.session.cache.slots"), session_ids)

    def handle(self, exchange: Exchange, frame: memoryview, body_start: int) -> None:
        """Takes one request; the answer follows now or later."""
        request = parse_fetch(frame, body_start, exchange.api_version)
        bytes_max = max(0, min(request.max_bytes, self._bytes_max))
        exchange.connection.shortcut = self._routes.route(exchange, frame, request, bytes_max)
        try:
            session, followed = self._sessions.find(request, exchange.started)
        except KafkaError as error:
            exchange.reply(encode_fetch_response(exchange.correlation_id, exchange.api_version, error.code, 0, []))
            return
        wanted = [(item, *self._find(exchange, item)) for item in followed]
        Poll(self._routes.polls, exchange, request, session, wanted, bytes_max).start()

    def _find(self, exchange: Exchange, item: Followed) -> tuple[Readable | None, ErrorCode]:
        try:
            return self._routes.partition(exchange, item.topic, item.spec.partition), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code
