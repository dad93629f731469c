"""The arguments of calls, checked: what a peer sends never stops the broker. Pure."""

from __future__ import annotations

from struct import unpack_from
from typing import Any, Final

from gnomon.broker.native.errors import SUBSCRIBE_MAX, InvalidCall
from gnomon.broker.subscriptions.subscription import SubscriptionType

CLIENT_CHARACTERS_MAX: Final = 100
GROUPS_MAX: Final = 10_000
"""Of one call, during which nobody else is served: some 3 us each."""
NUMBER_MAX: Final = 2**62
"""What every number in a call is below, so that sums of two stay within 64 bits."""


def subscribe_args(args: list[Any]) -> tuple[str, int, SubscriptionType, str, list[Any]]:
    """Topic, partition, type, initial position, and of each consumer: subscription, number, client and permits.

    Raises:
        InvalidCall: that is not what they are.
    """
    name, index, kind, initial, items = checked(args, str, int, str, str, list)
    if kind not in [each.value for each in SubscriptionType]:
        raise InvalidCall(f"a subscription is {', '.join(each.value for each in SubscriptionType)}, not {kind!r}")
    if initial not in ("earliest", "latest"):
        raise InvalidCall(f"a subscription begins at 'earliest' or 'latest', not at {initial!r}")
    if len(items) > SUBSCRIBE_MAX:
        raise InvalidCall(f"subscribe at most {SUBSCRIBE_MAX} at a time, not {len(items)}")
    for item in items:
        _, number, client, _ = checked(item, str, int, str, int)
        if not 0 <= number < 1 << 32 or len(client) > CLIENT_CHARACTERS_MAX:
            raise InvalidCall("a consumer's number is an u32, and its client has at most 100 characters")
    return name, index, SubscriptionType(kind), initial, items


def checked(args: Any, *kinds: type) -> list[Any]:
    """As many arguments, each of its kind; numbers are below NUMBER_MAX.

    Raises:
        InvalidCall: that is not what they are.
    """
    if type(args) is not list or len(args) != len(kinds) or not all(map(_is, args, kinds)):
        raise InvalidCall(f"arguments are {', '.join(kind.__name__ for kind in kinds)}")
    return args


def _is(value: object, kind: type) -> bool:
    return type(value) is kind and not (isinstance(value, int) and abs(value) >= NUMBER_MAX)


def groups(args: list[Any], fields: int) -> list[list[Any]]:
    """Groups of so many fields: numbers, with the consumers that each is of.

    Raises:
        InvalidCall: that is not what they are.
    """
    if len(args) > GROUPS_MAX:
        raise InvalidCall(f"send at most {GROUPS_MAX} groups at a time, not {len(args)}")
    for group in args:
        checked(group, *[int] * (fields - 1), bytes)
        if any(number < 0 for number in group[:-1]):
            raise InvalidCall("offsets, permits and delays are not negative")
        if fields > 2 and group[0] > group[1]:
            raise InvalidCall(f"records {group[0]} to {group[1]} end before they begin")
    return args


def numbers_of(packed: Any) -> tuple[int, ...]:
    """The consumers' numbers in a call.

    Raises:
        InvalidCall: it holds none.
    """
    if type(packed) is not bytes or len(packed) % 4:
        raise InvalidCall("numbers of consumers are packed as u32")
    return tuple(dict.fromkeys(unpack_from(f"<{len(packed) // 4}I", packed)))  # each counts once
