"""Checks of the arguments of native calls: no input of a peer stops the broker. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack
from typing import Any, Final

from gnomon.broker.partition.conditions.terms import Terms
from gnomon.broker.subscriptions.subscription import SubscriptionType
from gnomon.client.errors import InvalidCall
from gnomon.client.protocol import (
    GROUPS_MAX,
    NUMBER_MAX,
    PLANNED_PARTITIONS_MAX,
    SUBSCRIBE_MAX,
    TEXT_CHARACTERS_MAX,
)
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import NAME_CHARACTERS_MAX, SECONDS_MAX, is_hold_name
from gnomon.log.sn import SN
from gnomon.log.term_headers import TOKEN_BYTES_MAX

CLIENT_CHARACTERS_MAX: Final = 100


def subscribe_args(args: list[Any]) -> tuple[str, int, SubscriptionType, str, list[Any]]:
    """Topic, partition, type, initial position; and for each consumer: subscription, number, client and permits.

    Raises:
        InvalidCall: the arguments have another form.
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


def plan_args(args: list[Any]) -> tuple[str, dict[int, tuple[Offset, Offset]], str, int]:
    """Topic, first offset and end of the range by partition, and name and seconds of the hold; no name for no hold.

    Raises:
        InvalidCall: the arguments have another form.
    """
    name, items, hold, seconds = checked(args, str, list, str, int)
    if not 0 < len(items) <= PLANNED_PARTITIONS_MAX:
        raise InvalidCall(f"plan 1 to {PLANNED_PARTITIONS_MAX} partitions at a time, not {len(items)}")
    ranges = {}
    for item in items:
        index, first, end = checked(item, int, int, int)
        if not 0 <= first <= end:
            raise InvalidCall(
                f"a range of offsets is from 0 on and does not end before it begins, not {first} to {end}"
            )
        ranges[index] = Offset(first), Offset(end)
    if len(ranges) != len(items):
        raise InvalidCall("a partition is named twice in one plan")
    if hold and not is_hold_name(hold):
        raise InvalidCall(f"a hold is named by 1 to {NAME_CHARACTERS_MAX} letters, digits and _.-, not by {hold!r}")
    if hold and not 1 <= seconds <= SECONDS_MAX:
        raise InvalidCall(f"a hold lasts 1 to {SECONDS_MAX} seconds, not {seconds}; renew it in time")
    return name, ranges, hold, seconds


def write_args(args: list[Any]) -> tuple[str, str, int, Terms, bool]:
    """Name and id of a topic, partition, terms, and whether the records have a transaction id.

    Raises:
        InvalidCall: the arguments have another form.
    """
    if len(args) != 6:
        raise InvalidCall("arguments are a topic's name and id, a partition, an expectation, a token and a flag")
    name, topic_id, index, has_transaction = checked([*args[:3], args[5]], str, str, int, bool)
    return name, topic_id, index, Terms(_expected(args[3]), _token(args[4])), has_transaction


def fence_args(args: list[Any]) -> tuple[str, int, Terms]:
    """Topic, partition, and the terms with the new token.

    Raises:
        InvalidCall: the arguments have another form.
    """
    if len(args) != 5:
        raise InvalidCall("arguments are topic, partition, new token, an expectation and the present token")
    name, index, new_token = checked(args[:3], str, int, bytes)
    if len(new_token) > TOKEN_BYTES_MAX:
        raise InvalidCall(f"a token has at most {TOKEN_BYTES_MAX} bytes, not {len(new_token)}")
    return name, index, Terms(_expected(args[3]), _token(args[4]), new_token)


def _expected(stored: Any) -> SN | None:
    if stored is None:
        return None
    try:
        expected = SN.decode(stored)
    except ValueError as error:
        raise InvalidCall(str(error)) from None
    if expected == SN():
        raise InvalidCall("an SN without fields expects nothing")
    return expected


def _token(token: Any) -> bytes | None:
    if token is not None and (type(token) is not bytes or not 0 < len(token) <= TOKEN_BYTES_MAX):
        raise InvalidCall(f"a token is 1 to {TOKEN_BYTES_MAX} bytes")
    return token


def checked(args: Any, *kinds: type) -> list[Any]:
    """The arguments, if they have these types in this order, every number is below NUMBER_MAX, and no text is longer
    than TEXT_CHARACTERS_MAX.

    Raises:
        InvalidCall: they do not.
    """
    if type(args) is not list or tuple(map(type, args)) != kinds or not all(map(_is_small, args)):
        raise InvalidCall(f"arguments are {', '.join(kind.__name__ for kind in kinds)}")
    return args


def _is_small(value: Any) -> bool:
    kind = type(value)
    if kind is str and len(value) > TEXT_CHARACTERS_MAX:
        raise InvalidCall(f"a text has {len(value)} characters, {TEXT_CHARACTERS_MAX} are allowed")
    return kind is not int or -NUMBER_MAX < value < NUMBER_MAX


def groups(args: list[Any], fields: int) -> Iterator[list[Any]]:
    """Groups of `fields` fields, each checked when it is its turn: numbers, then the packed numbers of consumers.

    Raises:
        InvalidCall: a group has another form.
    """
    if len(args) > GROUPS_MAX:
        raise InvalidCall(f"send at most {GROUPS_MAX} groups at a time, not {len(args)}")
    for group in args:
        checked(group, *[int] * (fields - 1), bytes)
        if any(number < 0 for number in group[:-1]):
            raise InvalidCall("offsets, permits and delays are not negative")
        if fields > 2 and group[0] > group[1]:
            raise InvalidCall(f"records {group[0]} to {group[1]} end before they begin")
        yield group


def numbers_of(packed: Any) -> Iterator[int]:
    """The distinct numbers of consumers in a call.

    Raises:
        InvalidCall: they are not packed as u32.
    """
    if type(packed) is not bytes or len(packed) % 4:
        raise InvalidCall("numbers of consumers are packed as u32")
    seen: set[int] = set()
    for (number,) in iter_unpack("<I", packed):
        if number not in seen:
            seen.add(number)
            yield number
