"""The answers of the REST API of tables: headers of a key, and JSON of entries, transactions, pages and events. Pure.

1. Keys and values in JSON are base64; the fields of an entry have the names of `gnomon kv`.
2. Long answers come in pieces of about PIECE_BYTES, also in the middle of a value: nobody waits for a whole one.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gnomon.broker.admin.tables.key_condition import tag_of
from gnomon.broker.admin.tables.merged_page import FoundKey, MergedPage
from gnomon.log.tables.key_entry import ABSENT, NEVER, KeyEntry, unpack_entry
from gnomon.log.tables.operations import DeleteKey, GetKey, IncrementKey, KeyOperation, PutKey

PIECE_BYTES: Final = 64 << 10
ROWS_PER_PIECE: Final = 500
"""Some 2 ms."""
_SLICE_BYTES: Final = 48 << 10
"""Divisible by three: base64 of slices is that of the whole."""
_WORDS: Final[Mapping[type, str]] = {PutKey: "put", DeleteKey: "delete", GetKey: "get", IncrementKey: "incr"}


def base64_text(data: bytes) -> str:
    """Bytes as they are in JSON."""
    return b2a_base64(data, newline=False).decode()


def entry_headers(entry: KeyEntry, partition: int) -> dict[str, str]:
    """The headers of an answer that shows a present key."""
    headers = {
        **revision_headers(entry.revision, partition),
        "Gnomon-Create-Revision": str(entry.create_revision),
        "Gnomon-Version": str(entry.version),
    }
    if entry.expires_ms != NEVER:
        headers["Gnomon-Expires-Ms"] = str(entry.expires_ms)
    return headers


def revision_headers(revision: int, partition: int) -> dict[str, str]:
    """The headers of an answer that shows the revision of a key."""
    return {"ETag": tag_of(revision), "Gnomon-Revision": str(revision), "Gnomon-Partition": str(partition)}


def deletion_headers(revision: int, partition: int) -> dict[str, str]:
    """The headers of an answer to a deletion; an absent key has no entity tag."""
    return {"Gnomon-Revision": str(revision), "Gnomon-Partition": str(partition)}


def list_pieces(tables: Iterable[Mapping[str, Any]], after: str | None) -> Iterator[bytes]:
    """The answer of a list of tables."""
    return _with_rows({"after": after}, "tables", tables)


class _Row(NamedTuple):
    """One object of a long answer: its fields, and the value, which comes last and may be large."""

    fields: Mapping[str, Any]
    value: bytes | None


def page_pieces(page: MergedPage, next_path: str | None, *, keys_only: bool) -> Iterator[bytes]:
    """The answer of a scan."""
    after = None if page.after is None else base64_text(page.after)
    head = {"revisions": page.revisions, "ages_ms": page.ages_ms, "after": after, "next": next_path}
    rows = map(_key_row, page.entries) if keys_only else map(_entry_row, page.entries)
    return _with_rows(head, "entries", rows)


def _key_row(found: FoundKey) -> Mapping[str, Any]:
    return {"key": base64_text(found.key), "partition": found.partition}


def _entry_row(found: FoundKey) -> _Row:
    entry = unpack_entry(found.packed)
    return _Row(
        {"key": base64_text(found.key), "partition": found.partition, **_numbers(entry)},
        entry.value,
    )


def _numbers(entry: KeyEntry) -> Mapping[str, Any]:
    return {
        "revision": entry.revision,
        "create_revision": entry.create_revision,
        "version": entry.version,
        "expires_ms": None if entry.expires_ms == NEVER else entry.expires_ms,
    }


def transaction_pieces(
    operations: Sequence[KeyOperation], answers: Sequence[Any], partition: int, *, succeeded: bool
) -> Iterator[bytes]:
    """The answer of a transaction.

    Args:
        operations: those that were done.
        answers: as their leader gave them.
    """
    written = [
        answer[0] if isinstance(operation, IncrementKey) else answer
        for operation, answer in zip(operations, answers, strict=True)
        if not isinstance(operation, GetKey)
    ]
    head = {"succeeded": succeeded, "revision": max(written, default=ABSENT.revision), "partition": partition}
    return _with_rows(head, "answers", map(_answer_row, operations, answers))


def _answer_row(operation: KeyOperation, answer: Any) -> _Row:
    value: bytes | None = None
    row: dict[str, Any] = {"operation": _WORDS[type(operation)], "key": base64_text(operation.key)}
    row |= dict.fromkeys(("revision", "create_revision", "version", "expires_ms"))
    if isinstance(operation, GetKey):
        entry = ABSENT if answer is None else unpack_entry(answer)
        row |= _numbers(entry)
        value = entry.value if entry.version else None
    elif isinstance(operation, IncrementKey):
        row["revision"], total = answer
        value = b"%d" % total
    else:
        row["revision"] = answer
    return _Row(row, value)


def event_pieces(kind: str, key: bytes, value: bytes | None, revision: int, partition: int) -> Iterator[bytes]:
    """The line of one event of a watch."""
    fields = {"kind": kind, "key": base64_text(key), "revision": revision, "partition": partition}
    piece = bytearray()
    yield from _row_pieces(piece, _Row(fields, value))
    yield bytes(piece + b"\n")


def json_line(row: Mapping[str, Any]) -> bytes:
    """One object on a line."""
    return _json(row) + b"\n"


def _with_rows(head: Mapping[str, Any], name: str, rows: Iterable[_Row | Mapping[str, Any]]) -> Iterator[bytes]:
    """An object with a last field that is a long array, in pieces."""
    piece = bytearray(_json(head)[:-1] + f',"{name}":['.encode())
    for number, row in enumerate(rows):
        if number:
            piece += b","
        if isinstance(row, _Row):
            yield from _row_pieces(piece, row)
        else:
            piece += _json(row)
        if len(piece) >= PIECE_BYTES or not (number + 1) % ROWS_PER_PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + b"]}")


def _row_pieces(piece: bytearray, row: _Row) -> Iterator[bytes]:
    """Adds a row to a piece; pieces that are full are yielded, and cleared."""
    piece += _json(row.fields)[:-1] + b',"value":'
    if row.value is None:
        piece += b"null}"
        return
    piece += b'"'
    for at in range(0, len(row.value), _SLICE_BYTES):
        piece += b2a_base64(row.value[at : at + _SLICE_BYTES], newline=False)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    piece += b'"}'


def _json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
