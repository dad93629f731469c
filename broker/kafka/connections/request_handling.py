"""Decodes the requests of all APIs but Produce and Fetch, has them judged and handled, and sends their answers.

1. A request of up to ELEMENTS_AT_ONCE array elements is decoded and judged within its turn of the event loop, and an
   answer of up to that many is encoded within one. Longer ones are decoded, judged and encoded in a thread. One long
   request is handled at a time, so that all of them together take the memory of one, and others do not wait for them.
2. A request with more elements than its API allows (`Api.elements_max`) ends its connection with the number.
3. The elements of a request count against the memory for requests until it is answered.
4. One request of a connection is handled at a time, as in Kafka: clients ask for an offset right after its commit. The
   exceptions are the APIs that wait for other clients, not for the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from gnomon.bookie.errors import LedgerError
from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.kafka.guards.guard import Guard, Question
from gnomon.metadata.client import MetadataError
from gnomon.runtime.loop.turn_watch import work_for
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.world import OUT_OF_MEMORY, World, WorldError
from gnomon.wire.kafka.api import Api, ApiKey
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.frame import MalformedFrame, RequestHeader
from gnomon.wire.kafka.primitives import elements_taken
from gnomon.wire.kafka.schema import (
    InexpressibleMessage,
    MalformedMessage,
    TooManyElements,
    check_end,
    decode,
    element_count,
)

ELEMENTS_AT_ONCE = 1_000
"""Decoding or encoding as many takes some 1.5 ms, and handling them up to 5 ms."""
ELEMENT_BYTES = 512
"""The memory that an array element of a request counts for: its objects, and those of its part of the answer."""
WAIT_FOR_OTHERS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""APIs that wait for other clients: a later request of the connection may end the wait."""


class RequestHandling:
    """The handlers of one broker; `run` must run before the first request."""

    def __init__(
        self, world: World, handlers: Mapping[int, Handler], access: Access[ApiKey], guards: Mapping[ApiKey, Guard]
    ) -> None:
        """Requests are handled by `handlers`, after the `guards` have judged them with `access`, by API key."""
        self._world = world
        self._handlers = handlers
        self._access = access
        self._guards = guards
        self._tasks = OwnTasks()
        self._one_request = trio.Lock()
        self._one_answer = trio.Lock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks of requests that wait, until it is cancelled."""
        await self._tasks.run(task_status=task_status)

    def handle(self, api: Api, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        """Takes one request; the answer follows now or later.

        Raises:
            MalformedFrame: the frame is no such request.
        """
        if api.key not in WAIT_FOR_OTHERS:
            exchange.connection.hold(exchange)
        start, version = header.body_start, header.api_version
        try:
            message, count = _decoded(api, version, frame, start, ELEMENTS_AT_ONCE)
        except TooManyElements:
            if elements_taken() > api.elements_max:
                reason = f"more than {api.elements_max} elements in one request: ask for fewer at a time"
                raise MalformedFrame(f"{api.key.name}: {reason}") from None
            ended = trio.Event()
            exchange.ended = ended.set  # before the connection can close: otherwise nothing would call it
            self._tasks.start_soon(work_for, exchange, self._handle_long, api, exchange, bytes(frame), header, ended)
        except MalformedMessage as error:
            raise MalformedFrame(str(error)) from None
        else:
            request = self._request(exchange, message, count)
            self._call(api.key, request, self._judge(api.key, request))

    def handle_amended(
        self, key: ApiKey, exchange: Exchange, message: ProtocolMessage, amendment: Callable[[Any], None]
    ) -> None:
        """Handles a decoded request, and amends its answer."""
        exchange.connection.hold(exchange)
        request = self._request(exchange, message, elements_taken())
        request.amend(amendment)
        self._call(key, request, self._judge(key, request))

    async def _handle_long(
        self, api: Api, exchange: Exchange, frame: bytes, header: RequestHeader, ended: trio.Event
    ) -> None:
        async with self._one_request:
            try:
                message, count = await self._world.blocking(
                    _decoded, api, header.api_version, memoryview(frame), header.body_start, api.elements_max
                )
                request = self._request(exchange, message, count)
                self._call(api.key, request, await self._world.blocking(self._judge, api.key, request))
            except (MalformedMessage, MemoryError) as error:
                exchange.connection.refuse(str(error) or OUT_OF_MEMORY)
                return
            if api.key not in WAIT_FOR_OTHERS:
                await ended.wait()

    def _request(self, exchange: Exchange, message: ProtocolMessage, count: int) -> Request:
        exchange.connection.charge(exchange, count * ELEMENT_BYTES)
        return Request(exchange, message, count, self._send)

    def _judge(self, key: ApiKey, request: Request) -> ProtocolMessage | None:
        """The refusal of a request, or None. Changes nothing except the request, because it may run in a thread."""
        guard = self._guards.get(key)
        return None if guard is None else guard(Question(self._access, request))

    def _call(self, key: ApiKey, request: Request, refusal: ProtocolMessage | None) -> None:
        response = self._handlers[key](request) if refusal is None else refusal
        if isinstance(response, ProtocolMessage):
            request.reply(response)
        elif response is not None:
            self._tasks.start_soon(work_for, request.exchange, self._finish, request, response)

    async def _finish(self, request: Request, response: Awaitable[ProtocolMessage]) -> None:
        try:
            request.reply(await response)
        except (KafkaError, LedgerError, MetadataError, WorldError) as error:
            # The outcome is unknown, which no answer can express: the client connects and asks again.
            request.exchange.connection.refuse(f"the request could not be finished: {error}")
        except MemoryError as error:
            request.exchange.connection.refuse(str(error) or OUT_OF_MEMORY)

    def _send(self, request: Request, response: ProtocolMessage) -> None:
        # The answer to a long request is long as well: what its guard has refused is still missing from `response`.
        if request.elements > ELEMENTS_AT_ONCE or element_count(response, ELEMENTS_AT_ONCE) > ELEMENTS_AT_ONCE:
            self._tasks.start_soon(work_for, request.exchange, self._send_long, request, response)
            return
        try:
            request.send(request.encode(response))
        except (InexpressibleMessage, MemoryError) as error:
            _refuse_unsendable(request, error)

    async def _send_long(self, request: Request, response: ProtocolMessage) -> None:
        try:
            async with self._one_answer:
                body = await self._world.blocking(request.encode, response)
        except (InexpressibleMessage, MemoryError) as error:
            _refuse_unsendable(request, error)
        else:
            request.send(body)


def _decoded(api: Api, version: int, frame: memoryview, start: int, elements_max: int) -> tuple[ProtocolMessage, int]:
    """The request that begins at `start`, and the number of its array elements.

    Raises:
        MalformedMessage: the bytes are no such request.
        TooManyElements: it has more than `elements_max`.
    """
    message, end = decode(api.request, version, frame, start, elements_max=elements_max)
    # librdkafka sends the null array for all topics in four bytes; versions from 9 on define one byte.
    if api.key is not ApiKey.METADATA:
        check_end(message, frame, end)
    return message, elements_taken()


def _refuse_unsendable(request: Request, error: InexpressibleMessage | MemoryError) -> None:
    """Ends the connection, but not the node."""
    request.exchange.connection.refuse(f"the answer cannot be sent: {str(error) or OUT_OF_MEMORY}")
