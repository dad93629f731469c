"""The options with which a program consumes a subscription. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TypeAlias, get_args

from gnomon.client.errors import InvalidCall
from gnomon.log.subscription_keys import InvalidSubscriber, subscriber_in_key

Type: TypeAlias = Literal["exclusive", "failover", "shared", "key_shared"]
Position: TypeAlias = Literal["earliest", "latest"]
QUEUE_RECORDS: Final = 1000
QUEUE_RECORDS_MAX: Final = 2**31 - 1
ACK_SECONDS_MIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of all consumers that one call subscribed; see `NativeClient.subscribe`.

    Raises:
        InvalidCall: an option has no valid value.
    """

    kind: Type
    initial_position: Position
    queue_records: int
    ack_seconds: float | None

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
        """Whether several consumers may receive records at the same time."""
        return self.kind in ("shared", "key_shared")


def check_name(name: object) -> None:
    """Checks a subscription's name: a broker refuses a whole call because of one invalid name.

    Raises:
        InvalidCall: a subscription cannot have this name.
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
