"""Checks of the arguments of calls on tables. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from gnomon.broker.native.arguments import checked
from gnomon.broker.tables.engines.memory_engine import prefix_end
from gnomon.broker.tables.transaction import Transaction
from gnomon.client.errors import InvalidCall
from gnomon.client.protocol import OUTSTANDING_MAX, SCAN_ENTRIES_MAX
from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import WRITER_BYTES, OperationId
from gnomon.log.tables.operations import (
    OPERATIONS_MAX,
    InvalidOperation,
    checked_key,
    decode_comparisons,
    decode_operations,
)


class TablePlace(NamedTuple):
    """The partition that a call asks for."""

    topic: str
    topic_id: str
    partition: int


class KeyRange(NamedTuple):
    """The keys from `first` to below `end`."""

    first: bytes
    end: bytes | None


def write_args(args: list[Any]) -> tuple[TablePlace, Transaction]:
    """The partition, and the transaction with its number.

    Raises:
        InvalidCall: the arguments have another form.
    """
    if len(args) != 9:
        raise InvalidCall("arguments are a topic's name and id, a partition, a number's three fields, and three lists")
    name, topic_id, index, writer, number, answered_below = checked(args[:6], str, str, int, bytes, int, int)
    if len(writer) != WRITER_BYTES or not 0 <= answered_below <= number < answered_below + OUTSTANDING_MAX:
        raise InvalidCall(
            f"a number is one of {OUTSTANDING_MAX} from the lowest open one on, of a client with an id of"
            f" {WRITER_BYTES} bytes"
        )
    try:
        comparisons = decode_comparisons(args[6])
        then, otherwise = decode_operations(args[7]), decode_operations(args[8])
    except InvalidOperation as error:
        raise InvalidCall(str(error)) from None
    size_bytes = sum(len(field) for each in (*then, *otherwise) for field in each if isinstance(field, bytes))
    operation = OperationId(writer, number, answered_below)
    transaction = Transaction(comparisons, then, otherwise, operation, size_bytes)
    if transaction.parts > OPERATIONS_MAX:
        raise InvalidCall(
            f"a transaction has at most {OPERATIONS_MAX} operations and comparisons, not {transaction.parts}"
        )
    return TablePlace(name, topic_id, index), transaction


def get_args(args: list[Any]) -> tuple[TablePlace, bytes, bool]:
    """The partition, the key, and whether an older value will do.

    Raises:
        InvalidCall: the arguments have another form.
    """
    name, topic_id, index, key, stale = checked(args, str, str, int, bytes, bool)
    return TablePlace(name, topic_id, index), _key(key), stale


def scan_args(args: list[Any]) -> tuple[TablePlace, KeyRange, int, bool, bool]:
    """The partition, the keys, the limit, whether to leave out the entries, and whether older ones will do.

    Raises:
        InvalidCall: the arguments have another form.
    """
    if len(args) != 8:
        raise InvalidCall("arguments are a topic's name and id, a partition, a prefix, a key, a limit and two flags")
    name, topic_id, index, limit, keys_only, stale = checked([*args[:3], *args[5:]], str, str, int, int, bool, bool)
    if not 1 <= limit <= SCAN_ENTRIES_MAX:
        raise InvalidCall(f"a scan returns 1 to {SCAN_ENTRIES_MAX} entries at a time, not {limit}")
    prefix = _key(args[3])
    after = None if args[4] is None else _key(args[4])
    first = prefix if after is None else max(prefix, after + b"\0")
    return TablePlace(name, topic_id, index), KeyRange(first, prefix_end(prefix)), limit, keys_only, stale


def count_args(args: list[Any]) -> tuple[TablePlace, KeyRange, bool]:
    """The partition, the keys to count, and whether an older number will do.

    Raises:
        InvalidCall: the arguments have another form.
    """
    name, topic_id, index, prefix, stale = checked(args, str, str, int, bytes, bool)
    return TablePlace(name, topic_id, index), KeyRange(_key(prefix), prefix_end(prefix)), stale


def watch_args(args: list[Any]) -> tuple[TablePlace, bytes, Offset]:
    """The partition, the prefix, and the first revision.

    Raises:
        InvalidCall: the arguments have another form.
    """
    name, topic_id, index, prefix, revision = checked(args, str, str, int, bytes, int)
    if revision < 0:
        raise InvalidCall(f"a watch begins at a revision from 0 on, not at {revision}")
    return TablePlace(name, topic_id, index), _key(prefix), Offset(revision)


def place_args(args: list[Any]) -> TablePlace:
    """The partition.

    Raises:
        InvalidCall: the arguments have another form.
    """
    return TablePlace(*checked(args, str, str, int))


def status_args(args: list[Any]) -> tuple[TablePlace, bool]:
    """The partition, and whether to compute the digest.

    Raises:
        InvalidCall: the arguments have another form.
    """
    name, topic_id, index, with_digest = checked(args, str, str, int, bool)
    return TablePlace(name, topic_id, index), with_digest


def _key(key: Any) -> bytes:
    try:
        return checked_key(key)
    except InvalidOperation as error:
        raise InvalidCall(str(error)) from None
