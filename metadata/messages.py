"""Encodes arguments and results of the metadata interface as msgpack lists, and decodes them, for calls between
processes.

1. Decoding undoes encoding, exactly.
2. The types of received values are checked; anything else is a `MalformedMessage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    HistoryCompacted,
    InvalidRequest,
    KeyField,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    Operation,
    Put,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.wire.rpc import HeadLimit, HeadLimits

T = TypeVar("T")

SERVICE: Final = "metadata"
ERRORS: Final = ErrorTable(
    {
        HistoryCompacted: ("asked", "oldest"),
        LeaseNotFound: (),
        InvalidRequest: (),
        MetadataFull: (),
        MetadataUnavailable: (),
        MetadataError: (),
    }
)

HEADS: Final = HeadLimits({"txn": HeadLimit(2 << 20, 25_000)})
"""A transaction has at most 1.5 MiB of keys and values."""


class MalformedMessage(Exception):
    """The other side sent something unexpected."""


def checked(kind: type[T], value: Any) -> T:
    """`value`, if it has exactly this type.

    Raises:
        MalformedMessage: it has not.
    """
    if type(value) is not kind:
        raise MalformedMessage(f"a {kind.__name__} was expected, not {type(value).__name__}")
    return value


def encode_item(item: KeyValue | None) -> list[Any] | None:
    """One key, or None for an absent one."""
    if item is None:
        return None
    return [item.key, item.value, item.create_revision, item.mod_revision, item.version, item.lease]


def decode_item(form: Any) -> KeyValue | None:
    """Undoes `encode_item`."""
    return None if form is None else _item(form)


def encode_compare(compare: Sequence[Compare]) -> list[Any]:
    """The comparisons of a transaction."""
    return [[item.key, item.field.value, item.value] for item in compare]


def decode_compare(form: Any) -> list[Compare]:
    """Undoes `encode_compare`."""
    return [_compare(*_fields(item, 3)) for item in checked(list, form)]


def encode_operations(operations: Sequence[Operation]) -> list[Any]:
    """A branch of a transaction."""
    encoded: list[Any] = []
    for operation in operations:
        match operation:
            case Put(key, value, lease):
                encoded.append(["put", key, value, lease])
            case Delete(key):
                encoded.append(["delete", key])
            case DeletePrefix(prefix):
                encoded.append(["delete_prefix", prefix])
            case Get(key):
                encoded.append(["get", key])
    return encoded


def decode_operations(form: Any) -> list[Operation]:
    """Undoes `encode_operations`."""
    return [_operation(item) for item in checked(list, form)]


def encode_txn_result(result: TxnOutcome) -> list[Any]:
    """The result of a transaction."""
    results = [encode_item(item) if isinstance(item, KeyValue) else item for item in result.results]
    return [result.succeeded, result.revision, results]


def decode_txn_result(form: Any) -> TxnOutcome:
    """Undoes `encode_txn_result`."""
    succeeded, revision, results = _fields(form, 3)
    return TxnOutcome(
        checked(bool, succeeded),
        Revision(checked(int, revision)),
        tuple([item if type(item) is int else decode_item(item) for item in checked(list, results)]),
    )


def encode_range(result: RangeResult) -> list[Any]:
    """The keys of a range."""
    return [result.revision, [encode_item(item) for item in result.items]]


def decode_range(form: Any) -> RangeResult:
    """Undoes `encode_range`."""
    revision, items = _fields(form, 2)
    return RangeResult(Revision(checked(int, revision)), tuple([_item(item) for item in checked(list, items)]))


def encode_batch(batch: WatchBatch) -> list[Any]:
    """The events of one revision."""
    return [batch.revision, [[event.key, encode_item(event.current)] for event in batch.events]]


def decode_batch(form: Any) -> WatchBatch:
    """Undoes `encode_batch`."""
    revision, events = _fields(form, 2)
    return WatchBatch(
        Revision(checked(int, revision)), tuple([_event(*_fields(item, 2)) for item in checked(list, events)])
    )


def _fields(form: Any, count: int) -> list[Any]:
    if type(form) is not list or len(form) != count:
        raise MalformedMessage(f"a list of {count} was expected")
    return form


def _lease(lease: Any) -> LeaseId | None:
    return None if lease is None else LeaseId(checked(int, lease))


def _item(form: Any) -> KeyValue:
    key, value, created, modified, version, lease = _fields(form, 6)
    return KeyValue(
        checked(str, key),
        checked(bytes, value),
        Revision(checked(int, created)),
        Revision(checked(int, modified)),
        checked(int, version),
        _lease(lease),
    )


def _event(key: Any, current: Any) -> Event:
    return Event(checked(str, key), decode_item(current))


def _compare(key: Any, field: Any, value: Any) -> Compare:
    try:
        found = KeyField(field)
    except ValueError:
        raise MalformedMessage(f"no field {field!r:.200} can be compared") from None
    return Compare(checked(str, key), found, value if type(value) is int else checked(bytes, value))


def _operation(form: Any) -> Operation:
    match form:
        case ["put", str(key), bytes(value), lease]:
            return Put(key, value, _lease(lease))
        case ["delete", str(key)]:
            return Delete(key)
        case ["delete_prefix", str(prefix)]:
            return DeletePrefix(prefix)
        case ["get", str(key)]:
            return Get(key)
    raise MalformedMessage("an operation was expected")
