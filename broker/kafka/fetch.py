"""Fetch: finds the session of a request, and starts the poll that answers it.

`poll` decides the time and the content of the answer. `fetch_route` handles a consumer's next requests of the same
form.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request_handling import ELEMENT_BYTES
from gnomon.broker.kafka.fetch_route import FetchRoutes
from gnomon.broker.kafka.fetch_sessions import FetchSessions, Followed
from gnomon.broker.kafka.long_poll import LongPoll
from gnomon.broker.kafka.poll import Poll, Polls, Wanted, is_opening
from gnomon.broker.partition.readable import Readable
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topics import Topics
from gnomon.runtime.loop.turn_watch import work_for
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import OUT_OF_MEMORY, World
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import ELEMENTS_MAX, FetchRequest, encode_fetch_response, parse_fetch
from gnomon.wire.kafka.frame import MalformedFrame
from gnomon.wire.kafka.primitives import elements_taken

ELEMENTS_AT_ONCE = 1_000
"""Polling as many partitions takes up to 6 ms. A poll of more is a `LongPoll`."""
OPENINGS_AT_ONCE = 100
"""The first use of as many partitions takes 2 ms. A poll that has to open more is a `LongPoll`."""


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
        world: World,
    ) -> None:
        self._routes = FetchRoutes(topics, routes, placement, access, Polls(timers, metrics))
        self._bytes_max = configs.number("fetch.max.bytes")
        session_ids = world.random("fetch-sessions")
        self._sessions = FetchSessions(configs.number("max.incremental.fetch.session.cache.slots"), session_ids)
        self._world = world
        self._tasks = OwnTasks()
        self._one_long_poll = trio.Lock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of polls of many partitions, until it is cancelled."""
        await self._tasks.run(task_status=task_status)

    def handle(self, exchange: Exchange, frame: memoryview, body_start: int) -> None:
        """Takes one request; the answer follows now or later."""
        try:
            request = parse_fetch(frame, body_start, exchange.api_version, ELEMENTS_AT_ONCE)
        except MalformedFrame:
            if not ELEMENTS_AT_ONCE < elements_taken() <= ELEMENTS_MAX:
                raise
            exchange.connection.hold(exchange)  # a later request of its session must not come before it
            self._tasks.start_soon(work_for, exchange, self._handle_long, exchange, bytes(frame), body_start)
            return
        exchange.connection.shortcut = self._routes.route(exchange, frame, request, self._bytes_max_of(request))
        self._poll(exchange, request)

    async def _handle_long(self, exchange: Exchange, frame: bytes, body_start: int) -> None:
        view, version = memoryview(frame), exchange.api_version
        exchange.connection.charge(exchange, ELEMENTS_MAX * ELEMENT_BYTES)
        try:
            request = await self._world.blocking(parse_fetch, view, body_start, version, ELEMENTS_MAX)
        except (MalformedFrame, MemoryError) as error:
            exchange.connection.refuse(str(error) or OUT_OF_MEMORY)
        else:
            self._poll(exchange, request)

    def _bytes_max_of(self, request: FetchRequest) -> int:
        return max(0, min(request.max_bytes, self._bytes_max))

    def _poll(self, exchange: Exchange, request: FetchRequest) -> None:
        bytes_max = self._bytes_max_of(request)
        try:
            session, followed = self._sessions.find(request, exchange.started)
        except KafkaError as error:
            exchange.reply(encode_fetch_response(exchange.correlation_id, exchange.api_version, error.code, 0, []))
            return
        polls, followed = self._routes.polls, list(followed)
        wanted = self._find_all(exchange, followed)
        if wanted is None:
            find, world = self._find, self._world
            one = self._one_long_poll
            poll = LongPoll(polls, exchange, request, session, followed, find, bytes_max, world, one)
            self._tasks.start_soon(work_for, exchange, poll.run)
        else:
            Poll(polls, exchange, request, session, wanted, bytes_max).start()

    def _find_all(self, exchange: Exchange, followed: Sequence[Followed]) -> Sequence[Wanted] | None:
        """All partitions of a poll; None if they are too many, or too many of them are not open."""
        if len(followed) > ELEMENTS_AT_ONCE:
            return None
        wanted: list[Wanted] = []
        openings = 0
        for item in followed:
            partition, error = self._find(exchange, item)
            wanted.append((item, partition, error))
            openings += partition is not None and is_opening(partition)
            if openings > OPENINGS_AT_ONCE:
                return None
        return wanted

    def _find(self, exchange: Exchange, item: Followed) -> tuple[Readable | None, ErrorCode]:
        try:
            return self._routes.partition(exchange, item.topic, item.spec.partition), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code
