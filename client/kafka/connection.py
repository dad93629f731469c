"""A connection to a Kafka broker, which sends messages of Kafka's protocol and waits for their responses.

    connection = await KafkaClientConnection.open(world, "broker-1", 9092)
    response = await connection.request(FetchRequest(...), version=12, response=FetchResponse)

1. Requests are answered in their order. A response of another request, or one that cannot be decoded, ends the
   connection.
2. A request without a response has an unknown effect: the connection ended, or the time was over.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Self, TypeVar, cast

import trio

from gnomon.runtime.world import Connection, StreamHandler, Unreachable, World
from gnomon.wire.kafka.api import APIS, ApiKey, request_header_version, response_header_version
from gnomon.wire.kafka.frame import HEADER_TAGS_MAX, KafkaFrameReader, MalformedFrame, skip_tagged_fields
from gnomon.wire.kafka.primitives import FieldError, allow_elements
from gnomon.wire.kafka.schema import MalformedMessage, ProtocolMessage, check_end, decode, encode

R = TypeVar("R", bound=ProtocolMessage)

REQUEST_SECONDS_MAX: Final = 10.0
FRAME_BYTES_MAX: Final = 128 << 20
_HEADER: Final = Struct(">ihhih")


class PendingResponse:
    """A response that is awaited."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.key = key
        self.version = version
        self.settled = trio.Event()
        self.message: ProtocolMessage | None = None
        """Once settled: the response, or None if the connection ended before it came."""


class KafkaClientConnection:
    """One connection with its requests in flight; made by `open`. It is the connection's `StreamHandler`."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        self.connection = connection
        self.closed_by_peer = False
        """Whether the connection has ended, on whichever side."""
        self.fault: str | None = None
        """The violation of the protocol that ended the connection; None if there was none."""
        self._client_id = client_id.encode()
        self._frames = KafkaFrameReader(FRAME_BYTES_MAX)
        self._pending: dict[int, PendingResponse] = {}
        self._correlation_id = 0

    @classmethod
    async def open(cls, world: World, host: str, port: int, client_id: str = "gnomon") -> Self:
        """Connects.

        Raises:
            Unreachable: no listener, or none that accepts within REQUEST_SECONDS_MAX.
        """
        made: list[Self] = []

        def accept(connection: Connection) -> StreamHandler:
            made.append(cls(connection, client_id))
            return made[0]

        with trio.move_on_after(REQUEST_SECONDS_MAX):
            await world.network.connect(host, port, accept)
            return made[0]
        raise Unreachable(f"no connection to {host}:{port} within {REQUEST_SECONDS_MAX:g} s")

    def send(self, message: ProtocolMessage, version: int) -> PendingResponse:
        """Sends a request without waiting for its response."""
        number = type(message).KEY
        assert number is not None, f"{type(message).__name__} is no request"
        key = ApiKey(number)
        pending = PendingResponse(key, version)
        if self.closed_by_peer:
            pending.settled.set()
            return pending
        self._correlation_id += 1
        self._pending[self._correlation_id] = pending
        tags = b"\0" if request_header_version(key, version) == 2 else b""
        body = encode(message, version)
        size = _HEADER.size - 4 + len(self._client_id) + len(tags) + len(body)
        head = _HEADER.pack(size, key, version, self._correlation_id, len(self._client_id))
        self.connection.write([head, self._client_id, tags, body])
        return pending

    async def request(self, message: ProtocolMessage, version: int, response: type[R]) -> R:
        """Sends a request and waits for its response, which is of the class `response`.

        Raises:
            Unreachable: no response within REQUEST_SECONDS_MAX, or the connection ended; see invariant 2.
        """
        return cast(R, await self.wait(self.send(message, version)))

    async def wait(self, pending: PendingResponse) -> ProtocolMessage:
        """Waits for the response to an earlier request; raises as `request`."""
        with trio.move_on_after(REQUEST_SECONDS_MAX):
            await pending.settled.wait()
        if pending.message is None:
            self.close()
            because = f": {self.fault}" if self.fault else ""
            raise Unreachable(f"no answer to {pending.key.name} from {self.connection.peer}{because}")
        return pending.message

    def close(self) -> None:
        """Ends the connection; requests in flight are not answered."""
        self.connection.abort()

    def malformed(self, fault: str) -> None:
        """The broker violated the protocol: the connection ends."""
        self.fault = fault
        self.close()

    def receive_buffer(self) -> memoryview:
        """See `StreamHandler.receive_buffer`."""
        return self._frames.receive_buffer()

    def received(self, count: int) -> None:
        """See `StreamHandler.received`."""
        self._frames.received(count)
        try:
            while self.fault is None and (frame := self._frames.next_frame()) is not None:
                self._take(memoryview(bytes(frame)))
        except (MalformedFrame, MalformedMessage, FieldError, IndexError) as error:
            self.malformed(f"its response is malformed: {error}")

    def drained(self) -> None:
        """See `StreamHandler.drained`."""

    def closed(self) -> None:
        """See `StreamHandler.closed`."""
        self.closed_by_peer = True
        for pending in self._pending.values():
            pending.settled.set()
        self._pending.clear()

    def _take(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        oldest = next(iter(self._pending), None)
        if correlation_id != oldest:
            raise MalformedFrame(f"a response to request {correlation_id}, the oldest one is {oldest}")
        pending = self._pending[correlation_id]
        allow_elements(HEADER_TAGS_MAX)
        start = skip_tagged_fields(frame, 4) if response_header_version(pending.key, pending.version) == 1 else 4
        message, end = decode(APIS[pending.key].response, pending.version, frame, start)
        check_end(message, frame, end)
        del self._pending[correlation_id]
        pending.message = message
        pending.settled.set()
