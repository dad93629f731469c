"""How a subscription is consumed, as a program says it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from gnomon.broker.native.errors import InvalidCall
from gnomon.broker.subscriptions.store import InvalidSubscriber, subscriber_in_key

if TYPE_CHECKING:
    from gnomon.broker.native.consumer import Consumer
    from gnomon.broker.native.errors import RecordsMissed
    from gnomon.broker.native.message import Message

Type: TypeAlias = Literal["exclusive", "failover", "shared", "key_shared"]
Position: TypeAlias = Literal["earliest", "latest"]
Listener: TypeAlias = "Callable[[Consumer, Message], None]"
OnMissed: TypeAlias = "Callable[[Consumer, RecordsMissed], None]"
QUEUE_RECORDS: Final = 1000
QUEUE_RECORDS_MAX: Final = 2**31 - 1
ACK_SECONDS_MIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Shared by all that were subscribed together; see `NativeClient.subscribe`.

    Raises:
        InvalidCall: one makes no sense.
    """

    kind: Type
    initial_position: Position
    queue_records: int
    ack_seconds: float | None
    listener: Listener | None
    on_missed: OnMissed | None

    def __post_init__(self) -> None:
        _check("type", self.kind in get_args(Type), " or ".join(get_args(Type)), self.kind)
        _check(
            "initial_position", self.initial_position in get_args(Position), "earliest or latest", self.initial_position
        )
        queue = self.queue_records
        fits = isinstance(queue, int) and 0 < queue <= QUEUE_RECORDS_MAX
        _check("queue_records", fits, f"a whole number from 1 to {QUEUE_RECORDS_MAX}", queue)
        seconds = self.ack_seconds
        fits = seconds is None or (isinstance(seconds, int | float) and ACK_SECONDS_MIN <= seconds < inf)
        _check("ack_seconds", fits, f"a number of at least {ACK_SECONDS_MIN}, or None for never", seconds)

    @property
    def shared(self) -> bool:
        """Whether several consumers get something."""
        return self.kind in ("shared", "key_shared")


def check_name(name: object) -> None:
    """Whether a subscription can have this name: a broker refuses all that come with one that cannot.

    Raises:
        InvalidCall: it cannot.
    """
    if not isinstance(name, str):
        raise InvalidCall(f"a subscription is named by text, not by {name!r}")
    try:
        subscriber_in_key(name)
    except InvalidSubscriber as error:
        raise InvalidCall(str(error)) from error


def _check(name: str, fits: bool, allowed: str, given: object) -> None:
    if not fits:
        raise InvalidCall(f"{name} is {allowed}, not {given!r}")
