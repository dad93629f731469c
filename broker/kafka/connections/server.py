"""Kafka's front end: accepts connections, and passes each request to the handler of its API."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import trio

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.kafka.cluster import ClusterHandlers
from gnomon.broker.kafka.connections.connection import KafkaConnection
from gnomon.broker.kafka.connections.connection_limits import ConnectionLimits
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.replies import Replies
from gnomon.broker.kafka.connections.request_handling import RequestHandling
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.broker.kafka.fetch import FetchHandler
from gnomon.broker.kafka.produce import ProduceHandler
from gnomon.broker.limits import BrokerLimits
from gnomon.runtime.limited_log import LimitedLog
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.turn_watch import LONG_SECONDS, NOTED_SECONDS, ran
from gnomon.runtime.metrics import Metrics
from gnomon.runtime.settings.endpoint import EVERY_ADDRESS
from gnomon.runtime.settings.listeners import ADVERTISED, LISTENERS, KafkaListener
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock, Connection, Listener, Network
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.frame import MalformedFrame, RequestHeader, response_prefix
from gnomon.wire.kafka.schema import encode

Handle: TypeAlias = Callable[[Exchange, memoryview, RequestHeader], None]

STARTING = "the broker starts, and does not know the addresses of all its listeners yet"
DRAIN_SECONDS = 5.0
DRAIN_POLL_SECONDS = 0.01
DECODED_BYTES_MAX = 8 << 20
"""Largest request other than Produce."""


class KafkaServer:
    """Serves Kafka's protocol for one broker."""

    def __init__(
        self,
        produce: ProduceHandler,
        fetch: FetchHandler,
        requests: RequestHandling,
        replies: Replies,
        finish_groups: Callable[[], None],
        configs: BrokerConfigs,
        limits: BrokerLimits,
        network: Network,
        clock: Clock,
        timers: Timers,
        metrics: Metrics,
        log: Logger,
    ) -> None:
        """A server that does not listen yet; `run` must run before it does.

        Args:
            requests: handles the requests other than Produce and Fetch.
            finish_groups: called when the server drains; answers the group members that wait for other members.
        """
        self._produce = produce
        self._fetch = fetch
        self.requests = requests
        self._replies = replies
        self._finish_groups = finish_groups
        self._configs = configs
        self._limits = limits
        self._network = network
        self._clock = clock
        self._timers = timers
        self._metrics = metrics
        self._log = log
        self._limited_log = LimitedLog(log, clock, timers)
        self._memory = RequestMemory(limits.request_queue_bytes_max)
        self._connection_limits = ConnectionLimits(configs, limits.connections_max)
        self._connections: dict[KafkaConnection, Timer | None] = {}
        """The connections, each with the timer of its next idle check: one timer, not set again at every request."""
        self._idle_seconds = configs.number("connections.max.idle.ms") / 1000
        self._seconds = {key.value: metrics.request_seconds[key.name.lower()] for key in ApiKey}
        self._listening: list[Listener] = []
        self._complete = False
        """Whether all listeners are bound, so that their addresses are known."""
        self._handle: Handle = self.handle
        metrics.watch("request_bytes", "Bytes of requests received and not yet answered", lambda: self.request_bytes)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of requests that wait, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._produce.run)
            await nursery.start(self._fetch.run)
            await nursery.start(self.requests.run)
            task_status.started()

    @property
    def request_bytes(self) -> int:
        """Bytes of all requests in flight."""
        return self._memory.bytes_used

    @property
    def backlog_bytes(self) -> int:
        """Bytes of all answers that are ready and that peers have not received."""
        return self._memory.backlog_bytes

    async def listen(self, listeners: Sequence[KafkaListener], log_dirs: str) -> tuple[KafkaListener, ...]:
        """Accepts connections from now on, and completes the broker's configs.

        Args:
            log_dirs: the log directory in answers to clients.

        Returns:
            the listeners with the ports that they are bound to.

        Raises:
            AddressTaken: an address is in use or not one of this machine.
        """
        bound = []
        for one in listeners:
            listening = await self._network.listen(one.host, one.port, partial(self.accept, one.name))
            self._listening.append(listening)
            bound.append(one.bound(listening.host, listening.port))
        self._complete = True
        self._configs.set_derived(
            {
                ADVERTISED: ",".join(one.advertised for one in bound),
                LISTENERS: ",".join(one.address for one in bound),
                "log.dirs": log_dirs,
                "node.id": str(self._configs.number("broker.id")),
            }
        )
        for one in bound:
            if one.advertised_host in EVERY_ADDRESS:
                self._warn_unreachable(one)
        return tuple(bound)

    def _warn_unreachable(self, listener: KafkaListener) -> None:
        self._log.warning(
            "advertised_host_missing",
            listener=listener.name,
            problem=f"clients are sent to {listener.advertised_host}, which from another machine is not this one: set "
            "broker.advertised_host (GNOMON_BROKER__ADVERTISED_HOST), or advertised.listeners "
            "(GNOMON_KAFKA__ADVERTISED_LISTENERS), to the name or address that they know it by",
        )

    async def stop(self) -> None:
        """Accepts no new connection, and drains the others (`drain`) within DRAIN_SECONDS."""
        for listening in self._listening:
            listening.close()
        with trio.move_on_after(DRAIN_SECONDS):
            await self.drain()

    def accept(self, listener: str, transport: Connection) -> KafkaConnection:
        """Makes the handler of a new stream of a listener."""
        limits = self._limits
        connection = KafkaConnection(
            transport,
            listener,
            self._memory,
            self._dispatch,
            self._answered,
            self._ended,
            self._clock.monotonic,
            frame_bytes_max=self._configs.number("socket.request.max.bytes"),
            request_bytes_max=limits.connection_request_bytes_max,
        )
        refusal = self._connection_limits.take(connection) if self._complete else STARTING
        if refusal is not None:
            connection.refuse(refusal)
        self._connections[connection] = None
        if self._idle_seconds >= 0:
            self._look_for_idleness(connection)
        self._metrics.connections_accepted += 1
        self._metrics.connections += 1
        return connection

    def _look_for_idleness(self, connection: KafkaConnection) -> None:
        look_at = connection.end_if_idle(self._clock.monotonic(), self._idle_seconds)
        if look_at < math.inf:
            look = partial(self._look_for_idleness, connection)
            self._connections[connection] = self._timers.call_at(look_at, look)
        else:
            self._log.debug("connection_idle", peer=connection.transport.peer, idle_seconds=self._idle_seconds)

    def _ended(self, connection: KafkaConnection, reason: str | None) -> None:
        look = self._connections.pop(connection, None)
        if look is not None:
            look.cancel()
        self._metrics.connections -= 1
        self._connection_limits.give_back(connection)
        self._replies.forget(connection)
        if reason is not None:
            self._metrics.connections_refused += 1
            peer = connection.transport.peer
            self._limited_log.warn_limited("connection_refused", connection.address, peer=peer, reason=reason)

    def _answered(self, exchanges: list[Exchange], now: float) -> None:
        for exchange in exchanges:
            self._seconds[exchange.api_key].observe(now - exchange.started)

    async def drain(self) -> None:
        """Answers all requests in flight, long polls and waiting group members at once; then ends all connections."""
        for connection in list(self._connections):
            connection.finish()
        self._finish_groups()
        while self._connections:
            await self._clock.sleep(DRAIN_POLL_SECONDS)

    def _dispatch(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        """Raises MalformedFrame when the connection cannot go on."""
        began = self._clock.monotonic()
        try:
            self._handle(exchange, frame, header)
        finally:
            seconds = self._clock.monotonic() - began
            if seconds > NOTED_SECONDS:
                self._note_long(exchange, seconds)

    def _note_long(self, exchange: Exchange, seconds: float) -> None:
        ran(exchange, seconds)
        if seconds > LONG_SECONDS:
            fields = {**exchange.named(), "seconds": round(seconds, 3)}
            self._limited_log.warn_limited("long_request", exchange.connection.transport.peer, **fields)

    def intercept(self, handle: Handle | None) -> None:
        """Passes each request to `handle` from now on, in place of `self.handle`; None ends that."""
        self._handle = handle or self.handle
        for connection in self._connections:
            connection.shortcut = None  # it would skip this

    def handle(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        """Passes a request to the handler of its API.

        Raises:
            MalformedFrame: the connection cannot go on.
        """
        key, version = header.api_key, header.api_version
        api = APIS.get(key)
        if api is None:
            raise MalformedFrame(f"unknown API key {key}: ApiVersions lists the supported ones")
        if len(frame) > DECODED_BYTES_MAX and key != ApiKey.PRODUCE:
            raise MalformedFrame(
                f"{ApiKey(key).name} request of {len(frame)} bytes: at most {DECODED_BYTES_MAX} are taken, "
                "more only of Produce; ask for fewer things at a time"
            )
        if not api.min_version <= version <= api.max_version:
            self._refuse_version(exchange, header)
        elif key == ApiKey.PRODUCE:
            self._produce.handle(exchange, frame, header.body_start)
        elif key == ApiKey.FETCH:
            self._fetch.handle(exchange, frame, header.body_start)
        else:
            self.requests.handle(api, exchange, frame, header)

    def _refuse_version(self, exchange: Exchange, header: RequestHeader) -> None:
        if header.api_key == ApiKey.API_VERSIONS:  # KIP-511: answered in version 0, whatever the request's version
            exchange.api_version = 0
            body = encode(ClusterHandlers.api_versions_response(ErrorCode.UNSUPPORTED_VERSION), 0)
            exchange.reply((response_prefix(len(body), exchange.correlation_id, flexible=False), body))
            return
        name = ApiKey(header.api_key).name
        raise MalformedFrame(
            f"{name} version {header.api_version} is not supported: ApiVersions lists the supported ones"
        )
