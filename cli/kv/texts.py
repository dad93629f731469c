"""Keys and values on the command line: UTF-8 text, or base64 for other bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from gnomon.cli.exit import Exit, Failure
from gnomon.log.tables.key_entry import ABSENT
from gnomon.log.tables.operations import DeleteKey, GetKey, IncrementKey, KeyOperation, PutKey
from gnomon.log.tables.table_entry import TableEntry, TxnResult

_WORDS: Mapping[type, str] = {PutKey: "put", DeleteKey: "delete", GetKey: "get", IncrementKey: "incr"}


def base64_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--base64` of a command that takes or shows keys and values."""
    return click.option(
        "--base64", "as_base64", is_flag=True, help="Keys and values are base64, given and shown, instead of text."
    )(command)


def given_bytes(text: str, as_base64: bool) -> bytes:
    """The bytes of an argument.

    Raises:
        Failure: it is no base64.
    """
    if not as_base64:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Failure(f"{text!r:.80} is no base64: {error}", Exit.USAGE) from None


def shown_bytes(data: bytes | None, as_base64: bool) -> str | None:
    """The text of a key or a value; bytes that are no UTF-8 are shown as \\xNN."""
    if data is None:
        return None
    return base64.b64encode(data).decode() if as_base64 else data.decode("utf-8", "backslashreplace")


def shown_entry(entry: TableEntry, as_base64: bool) -> Mapping[str, Any]:
    """An entry as a record of a command's output."""
    return {
        "key": shown_bytes(entry.key, as_base64),
        "value": shown_bytes(entry.value, as_base64),
        "revision": entry.revision,
        "create_revision": entry.create_revision,
        "version": entry.version,
        "expires_ms": entry.expires_ms,
        "partition": entry.partition,
    }


def shown_txn(operations: Sequence[KeyOperation], result: TxnResult, as_base64: bool) -> Mapping[str, Any]:
    """The outcome of a transaction as a record of a command's output; `operations` are those that were done."""
    answers = []
    for operation, answer in zip(operations, result.answers, strict=True):
        row: dict[str, Any] = {"operation": _WORDS[type(operation)], "key": shown_bytes(operation.key, as_base64)}
        row |= dict.fromkeys(("value", "revision", "create_revision", "version", "expires_ms"))
        if isinstance(answer, TableEntry):
            row |= {name: value for name, value in shown_entry(answer, as_base64).items() if name in row}
        elif isinstance(operation, GetKey):
            row |= {"revision": ABSENT.revision, "create_revision": ABSENT.create_revision, "version": ABSENT.version}
        else:
            row["value" if isinstance(operation, IncrementKey) else "revision"] = answer
        answers.append(row)
    return {"succeeded": result.succeeded, "revision": result.revision, "answers": answers}
