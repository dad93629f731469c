"""The requests to the metadata state machine, and the checks that do not depend on the store's content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gnomon.metadata.client import (
    KEY_BYTES_MAX,
    TXN_BYTES_MAX,
    Compare,
    Delete,
    DeletePrefix,
    KeyField,
    LeaseId,
    MetadataError,
    Operation,
    Put,
    Revision,
    TxnOutcome,
)


@dataclass(frozen=True, slots=True)
class Txn:
    """`Metadata.txn`."""

    compare: tuple[Compare, ...]
    then: tuple[Operation, ...]
    otherwise: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """`Metadata.lease`."""

    ttl_seconds: float


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """`Metadata.keep_alive`."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Revoke:
    """`Metadata.revoke`."""

    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Compact:
    """`Metadata.compact`."""

    revision: Revision


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: ends the due leases, as every request does."""


Request: TypeAlias = Txn | Grant | KeepAlive | Revoke | Compact | Tick
Reply: TypeAlias = TxnOutcome | LeaseId | MetadataError | None
"""TxnOutcome for Txn, LeaseId for Grant, None for the others; a MetadataError for a refused request."""


def refusal(request: Txn) -> str | None:
    """Why a transaction is refused independent of the store's content; None if it is not."""
    for compare in request.compare:
        if isinstance(compare.value, bytes) != (compare.field is KeyField.VALUE):
            return f"{compare.field.value} of {compare.key!r} is compared with a {type(compare.value).__name__}"
    for branch in (request.then, request.otherwise):
        put: set[str] = set()
        for operation in branch:
            if isinstance(operation, Put):
                if operation.key in put:
                    return f"it puts {operation.key!r} twice in one branch: put each key once"
                if (reason := _bad_key(operation.key)) is not None:
                    return reason
                put.add(operation.key)
        for operation in branch:
            if isinstance(operation, Delete) and operation.key in put:
                return f"it both puts and deletes {operation.key!r} in one branch"
            if isinstance(operation, DeletePrefix) and not operation.prefix:
                return "it deletes every key: name a prefix"
            if isinstance(operation, DeletePrefix) and any(key.startswith(operation.prefix) for key in put):
                return f"it puts a key below {operation.prefix!r} and deletes that prefix in one branch"
    size_bytes = _size_bytes(request)
    if size_bytes > TXN_BYTES_MAX:
        return f"its keys and values have {size_bytes} bytes, {TXN_BYTES_MAX} are allowed: divide it"
    return None


def _size_bytes(request: Txn) -> int:
    """The bytes of all keys and values."""
    size_bytes = 0
    for compare in request.compare:
        size_bytes += len(compare.key) + (len(compare.value) if isinstance(compare.value, bytes) else 0)
    for operation in (*request.then, *request.otherwise):
        if isinstance(operation, Put):
            size_bytes += len(operation.key) + len(operation.value)
        else:
            size_bytes += len(operation.prefix if isinstance(operation, DeletePrefix) else operation.key)
    return size_bytes


def _bad_key(key: str) -> str | None:
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        return f"the key {key!r} has no UTF-8 form"
    if not 0 < size_bytes <= KEY_BYTES_MAX:
        return f"the key {key[:40]!r} has {size_bytes} bytes: 1 to {KEY_BYTES_MAX} are allowed"
    return None
