"""Faults that a test asks for: errors and delays in place of the answers to its next requests.

Only child processes of `gnomon.testing` have them (`cli/child.py`).

1. A fault hits the next `calls` requests of its API that fit its topic and its client id; the oldest fault that fits
   hits. A request is hit once.
2. A request that gets an error has no effect. A delayed request is handled after the delay, even if its client has
   left; later requests of its connection wait for it.
3. While a fault waits for requests, each request is looked at; otherwise none is, and a request costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.connections.request import Request
from gnomon.broker.kafka.connections.server import KafkaServer
from gnomon.broker.kafka.guards.topic_ids import TopicIds
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.api import APIS, Api, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import ProtocolMessage
from gnomon.wire.kafka.frame import MalformedFrame, RequestHeader
from gnomon.wire.kafka.refusal import named_topics, refusal, spoil
from gnomon.wire.kafka.schema import InexpressibleMessage, MalformedMessage, decode

Named = TypeVar("Named", ApiKey, ErrorCode)

CALLS_MAX: Final = 1_000_000
SECONDS_MAX: Final = 3600.0
TEXT: Final = "the test asked for this error"
DESCRIBING: Final = (ApiKey.METADATA, ApiKey.API_VERSIONS)
"""APIs that change nothing, whose clients need the rest of the answer: the real answer gets the error codes."""


@dataclass(slots=True)
class RequestFault:
    """An error (`code`) or a delay of so many seconds, for the next `calls` requests."""

    key: ApiKey
    calls: int
    code: ErrorCode | None = None
    delay_seconds: float = 0.0
    topic: str | None = None
    client_id: str | None = None


class RequestFaults:
    """The faults of one broker that were asked for and not used up."""

    def __init__(
        self,
        server: KafkaServer,
        topic_ids: TopicIds,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """No fault yet."""
        self._server = server
        self._topic_ids = topic_ids
        self._clock = clock
        self._timers = timers
        self._faults: list[RequestFault] = []

    @property
    def left(self) -> int:
        """The number of requests that faults still wait for."""
        return sum(fault.calls for fault in self._faults)

    def execute(self, request: dict[str, Any]) -> None:
        """Adds the fault with the fields of `request`, or forgets all faults for `{"clear": true}`; nothing for none.

        Raises:
            ValueError: there is no such fault; the text says what there is.
        """
        if request.get("clear"):
            self.clear()
        elif request:
            self.add(_fault(**request))

    def add(self, fault: RequestFault) -> None:
        """Adds a fault."""
        self._faults.append(fault)
        self._server.intercept(self._take)

    def clear(self) -> None:
        """Forgets all faults; requests that are being delayed stay so."""
        self._faults.clear()
        self._server.intercept(None)

    def _take(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        api = APIS.get(header.api_key)
        waiting = [each for each in self._faults if each.key == header.api_key and _of_client(each, header)]
        if api is None or not waiting or not api.serves(header.api_version):
            self._pass_on(exchange, frame, header)
            return
        message = _decoded(api, header, frame)
        if _hides_topics(message) and any(each.code is not None or each.topic is not None for each in waiting):
            session_lost = api.response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            self._answer(exchange, message, session_lost)
            return
        fault = next((each for each in waiting if self._names_topic(message, each.topic)), None)
        if fault is None:
            self._pass_on(exchange, frame, header)
            return
        fault.calls -= 1
        if not fault.calls:
            self._faults.remove(fault)
        if fault.code is None:
            exchange.connection.hold(exchange)
            at = self._clock.monotonic() + fault.delay_seconds
            self._timers.call_at(at, partial(self._handle_late, exchange, memoryview(bytes(frame)), header))
        else:
            self._refuse(api, exchange, message, fault.code)
        if not self._faults:
            self._server.intercept(None)

    def _pass_on(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        self._server.handle(exchange, frame, header)
        exchange.connection.shortcut = None  # the next request would take it past the faults

    def _handle_late(self, exchange: Exchange, frame: memoryview, header: RequestHeader) -> None:
        exchange.connection.release(exchange)
        try:
            self._server.handle(exchange, frame, header)
        except MalformedFrame as error:
            exchange.connection.refuse(str(error))
        if self._faults:
            exchange.connection.shortcut = None
        exchange.connection.flush()  # no turn of a store or of the network ends here

    def _names_topic(self, message: ProtocolMessage, topic: str | None) -> bool:
        return topic is None or not named_topics(message).isdisjoint({topic, self._topic_ids.id_of(topic)})

    def _refuse(self, api: Api, exchange: Exchange, message: Any, code: ErrorCode) -> None:
        if api.key in DESCRIBING:
            self._server.requests.handle_amended(api.key, exchange, message, lambda answer: spoil(answer, code))
        elif api.key is ApiKey.PRODUCE and message.acks == 0:
            exchange.connection.refuse(f"{TEXT}: {code.name}")  # as Kafka does where no answer can tell
        else:
            self._answer(exchange, message, refusal(message, api.response, exchange.api_version, code, TEXT))

    def _answer(self, exchange: Exchange, message: ProtocolMessage, answer: ProtocolMessage) -> None:
        request = Request(exchange, message, 0, lambda request, answer: request.send(request.encode(answer)))
        try:
            request.reply(answer)
        except InexpressibleMessage as error:
            exchange.connection.refuse(f"the answer cannot be sent: {error}")


def _of_client(fault: RequestFault, header: RequestHeader) -> bool:
    return fault.client_id is None or fault.client_id == header.client_id


def _hides_topics(message: Any) -> bool:
    """Whether a Fetch relies on its session for the partitions that it is about."""
    return getattr(message, "session_epoch", -1) > 0


def _decoded(api: Api, header: RequestHeader, frame: memoryview) -> ProtocolMessage:
    try:
        message, _ = decode(api.request, header.api_version, frame, header.body_start, elements_max=api.elements_max)
    except MalformedMessage as error:
        raise MalformedFrame(str(error)) from None
    return message


def _fault(
    api: str, calls: int, error: str | None, seconds: float, topic: str | None, client_id: str | None
) -> RequestFault:
    if not 1 <= calls <= CALLS_MAX:
        raise ValueError(f"calls is a number from 1 to {CALLS_MAX}, not {calls!r}")
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"seconds is a number from 0 to {SECONDS_MAX:.0f}, not {seconds!r}")
    key = _named(ApiKey, api, "API")
    code = None if error is None else _named(ErrorCode, error, "error")
    if code is ErrorCode.NONE:
        raise ValueError("the error NONE is no error")
    return RequestFault(key, calls, code, seconds, topic, client_id)


def _named(kinds: type[Named], name: str, what: str) -> Named:
    """The member of an enum with this name, in Kafka's spelling (`ListOffsets`) or that of the enum."""
    members = list(kinds)
    for each in members:
        if each.name.replace("_", "").lower() == name.replace("_", "").lower():
            return each
    close = get_close_matches(name.upper(), [each.name for each in members], 1, 0)
    raise ValueError(f"there is no {what} {name!r}: did you mean {close[0]!r}?")
