"""Kafka's front door: connections in, each request to the handler of its API."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.acls import ACL_HANDLERS
from gnomon.broker.kafka.cluster import ClusterHandlers
from gnomon.broker.kafka.configs import ConfigHandlers
from gnomon.broker.kafka.connection import KafkaConnection
from gnomon.broker.kafka.exchange import Exchange
from gnomon.broker.kafka.fetch import FetchHandler
from gnomon.broker.kafka.groups import GroupHandlers
from gnomon.broker.kafka.log_dirs import LogDirHandlers
from gnomon.broker.kafka.metadata import MetadataHandler
from gnomon.broker.kafka.modern_groups import MODERN_GROUP_HANDLERS
from gnomon.broker.kafka.placement import PlacementHandlers
from gnomon.broker.kafka.positions import PositionHandlers
from gnomon.broker.kafka.produce import ProduceHandler
from gnomon.broker.kafka.request import Handler, Request
from gnomon.broker.kafka.request_memory import RequestMemory
from gnomon.broker.kafka.topics import TopicHandlers
from gnomon.metadata.client import MetadataError
from gnomon.runtime.settings import EVERY_ADDRESS
from gnomon.runtime.timers import Timer
from gnomon.runtime.world import Connection, Listener, WorldError
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import Message
from gnomon.wire.kafka.frame import MalformedFrame, RequestHeader
from gnomon.wire.kafka.schema import MalformedMessage, check_end, decode

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

DRAIN_SECONDS = 5.0
DRAIN_POLL_SECONDS = 0.01
DECODED_BYTES_MAX = 8 << 20
"""Largest request other than Produce: decoded, a few bytes of it can become an object of some hundred."""
WAIT_FOR_OTHERS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""They wait for other clients, not for the broker's work: what comes behind them may be what ends the wait."""


class KafkaServer:
    """Serves Kafka's protocol for one broker."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._nursery = nursery
        self._memory = RequestMemory(broker.settings.request_queue_bytes_max)
        self._connections: dict[KafkaConnection, Timer | None] = {}
        """With the next look at whether it is idle: one for each, set again when it is due, not with every request."""
        self._idle_seconds = broker.configs.number("connections.max.idle.ms") / 1000
        self._seconds = {key.value: broker.metrics.request_seconds[key.name.lower()] for key in ApiKey}
        self._produce = ProduceHandler(broker, self.flush_this_turn if broker.turns.by_network else self.flush_later)
        self._fetch = FetchHandler(broker)
        self._unflushed: dict[KafkaConnection, None] = {}
        self._listener: Listener | None = None
        broker.turns.flush_replies = self.flush
        self._handlers: dict[int, Handler] = {
            **MetadataHandler(broker).handlers(),
            **ClusterHandlers(broker).handlers(),
            **TopicHandlers(broker).handlers(),
            **PlacementHandlers(broker).handlers(),
            **ConfigHandlers(broker).handlers(),
            **PositionHandlers(broker).handlers(),
            **LogDirHandlers(broker).handlers(),
            **GroupHandlers(broker).handlers(),
            **MODERN_GROUP_HANDLERS,
            **ACL_HANDLERS,
        }
        broker.metrics.watch(
            "request_bytes", "Bytes of requests received and not yet answered", lambda: self.request_bytes
        )

    @property
    def request_bytes(self) -> int:
        """Bytes of all requests in flight."""
        return self._memory.bytes_used

    @property
    def backlog_bytes(self) -> int:
        """Bytes of all answers that are ready and have not been taken yet."""
        return self._memory.backlog_bytes

    async def listen(self, host: str, port: int, advertised_host: str, log_dirs: str) -> Listener:
        """Takes connections from now on, and completes the broker's configs.

        Args:
            port: 0 picks a free one.
            advertised_host: where clients are told to come back to.
            log_dirs: what they are told of where records are kept.

        Raises:
            AddressTaken: the address is in use or not one of this machine.
        """
        broker = self._broker
        listener = self._listener = await broker.world.network.listen(host, port, self.accept)
        broker.configs.tell(
            {
                "advertised.listeners": f"PLAINTEXT://{advertised_host}:{listener.port}",
                "listeners": f"PLAINTEXT://{listener.host}:{listener.port}",
                "log.dirs": log_dirs,
                "node.id": str(broker.node_id),
            }
        )
        if advertised_host in EVERY_ADDRESS:
            broker.log.warning(
                "advertised_host_missing",
                problem=f"clients are told to come back to {advertised_host}, which from another machine is not this "
                "one: set broker.advertised_host (GNOMON_BROKER__ADVERTISED_HOST) to the name or address that they "
                "know it by",
            )
        return listener

    async def stop(self) -> None:
        """Takes no new connection any more, and `drain`s the others within DRAIN_SECONDS."""
        if self._listener is not None:
            self._listener.close()
        with trio.move_on_after(DRAIN_SECONDS):
            await self.drain()

    def accept(self, transport: Connection) -> KafkaConnection:
        """Makes the handler of a new stream."""
        settings = self._broker.settings
        connection = KafkaConnection(
            transport,
            self._memory,
            self._dispatch,
            self._answered,
            self._ended,
            self._broker.world.clock.monotonic,
            frame_bytes_max=self._broker.configs.number("socket.request.max.bytes"),
            request_bytes_max=settings.connection_request_bytes_max,
        )
        if len(self._connections) >= settings.connections_max:
            connection.refuse(f"{len(self._connections)} clients are connected already: see broker.connections_max")
        self._connections[connection] = None
        if self._idle_seconds >= 0:
            self._look_for_idleness(connection)
        self._broker.metrics.connections_accepted += 1
        self._broker.metrics.connections += 1
        return connection

    def _look_for_idleness(self, connection: KafkaConnection) -> None:
        look_at = connection.end_if_idle(self._broker.world.clock.monotonic(), self._idle_seconds)
        if look_at < math.inf:
            look = partial(self._look_for_idleness, connection)
            self._connections[connection] = self._broker.timers.call_at(look_at, look)
        else:
            self._broker.log.debug("connection_idle", peer=connection.transport.peer, idle_seconds=self._idle_seconds)

    def _ended(self, connection: KafkaConnection, reason: str | None) -> None:
        look = self._connections.pop(connection, None)
        if look is not None:
            look.cancel()
        self._broker.metrics.connections -= 1
        self._unflushed.pop(connection, None)
        if reason is not None:
            self._broker.metrics.connections_refused += 1
            self._broker.log.warning("connection_refused", peer=connection.transport.peer, reason=reason)

    def _answered(self, exchanges: list[Exchange], now: float) -> None:
        for exchange in exchanges:
            self._seconds[exchange.api_key].observe(now - exchange.started)

    def flush_later(self, connection: KafkaConnection) -> None:
        """The connection has replies to send at the end of this turn (`Turns.ended`)."""
        self._unflushed[connection] = None

    def flush_this_turn(self, connection: KafkaConnection) -> None:
        """The same where nobody else ends this turn."""
        self._unflushed[connection] = None
        self._broker.turns.began()

    def flush(self) -> None:
        """The end of a turn: everything that was answered in it leaves now."""
        while self._unflushed:
            connection, _ = self._unflushed.popitem()
            connection.flush()

    async def drain(self) -> None:
        """Answers what was asked so far, at once who waits for records or other members; then ends all connections."""
        for connection in list(self._connections):
            connection.finish()
        self._broker.coordinator.drain()
        while self._connections:
            await self._broker.world.clock.sleep(DRAIN_POLL_SECONDS)

    def _dispatch(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        """Raises MalformedFrame when the connection cannot go on."""
        key, version = header.api_key, header.api_version
        api = APIS.get(key)
        if api is None:
            raise MalformedFrame(f"unknown API key {key}: clients learn from ApiVersions what is served")
        if len(frame) > DECODED_BYTES_MAX and key != ApiKey.PRODUCE:
            raise MalformedFrame(
                f"{ApiKey(key).name} request of {len(frame)} bytes: at most {DECODED_BYTES_MAX} are taken, "
                "more only of Produce; ask for fewer things at a time"
            )
        if not api.min_version <= version <= api.max_version:
            self._refuse_version(exchange, frame, header)
        elif key == ApiKey.PRODUCE:
            self._produce.handle(exchange, frame, header.body_start)
        elif key == ApiKey.FETCH:
            self._fetch.handle(exchange, frame, header.body_start)
        else:
            try:
                message, end = decode(api.request, version, frame, header.body_start)
                # librdkafka asks for all topics with a null array of four bytes, where version 9 and up have one.
                if key != ApiKey.METADATA:
                    check_end(message, frame, end)
            except MalformedMessage as error:
                raise MalformedFrame(str(error)) from None
            if key not in WAIT_FOR_OTHERS:
                # Kafka takes one request of a connection at a time: clients ask for an offset right behind its commit.
                exchange.connection.hold(exchange)
            self._call(self._handlers[key], Request(exchange, message))

    def _refuse_version(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        if header.api_key == ApiKey.API_VERSIONS:  # KIP-511: answered in version 0, whatever was asked
            exchange.api_version = 0
            Request(exchange, None).reply(ClusterHandlers.api_versions_response(ErrorCode.UNSUPPORTED_VERSION))
            return
        name = ApiKey(header.api_key).name
        raise MalformedFrame(f"{name} version {header.api_version} is not served: ApiVersions tells which are")

    def _call(self, handler: Handler, request: Request) -> None:
        response = handler(request)
        if isinstance(response, Message):
            request.reply(response)
        elif response is not None:
            self._nursery.start_soon(self._finish, request, response)

    async def _finish(self, request: Request, response: Awaitable[Message]) -> None:
        try:
            request.reply(await response)
        except (KafkaError, LedgerError, MetadataError, WorldError) as error:
            # Unknown is not failed: no answer says so, and the client asks again.
            request.exchange.connection.refuse(f"the request could not be finished: {error}")
