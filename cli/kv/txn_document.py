"""The JSON document of `gnomon kv txn`: comparisons and operations as lists of words, as on the command line. Pure.

    {
      "compare": [["value", "leader", "==", "one"], ["version", "colour", ">", 0]],
      "then": [["put", "leader", "two", 10], ["incr", "visits", 5], ["get", "colour"]],
      "otherwise": [["get", "leader"]]
    }

1. Keys and values are texts, or base64 if all of them are. A value is compared with null for an absent key.
2. Each word counts, or the document is refused with the place of the mistake: nothing is dropped or guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from gnomon.cli.exit import Failure
from gnomon.cli.kv.texts import given_bytes
from gnomon.log.tables.changes import TTL_MS_MAX
from gnomon.log.tables.operations import (
    CompareOperator,
    CompareTarget,
    Comparison,
    DeleteKey,
    GetKey,
    IncrementKey,
    InvalidOperation,
    KeyOperation,
    PutKey,
    check_operand,
    check_operations,
    checked_key,
    decode_operations,
    encode_operations,
)

T = TypeVar("T")

FIELDS: Final = ("compare", "then", "otherwise")
COMPARISON: Final = '["value", "version", "revision" or "create_revision", KEY, "==", "!=", "<" or ">", OPERAND]'
OPERATION: Final = '["put", KEY, VALUE] or with TTL_SECONDS, ["delete", KEY], ["get", KEY], ["incr", KEY] or with BY'

_TARGETS: Final = [each.value for each in CompareTarget]
_OPERATORS: Final = [each.value for each in CompareOperator]


class UnfitDocument(ValueError):
    """A document that is no transaction; the text says what is wrong with it, and where."""


class TxnDocument(NamedTuple):
    """The arguments of `Table.txn`."""

    compare: list[Comparison]
    then: list[KeyOperation]
    otherwise: list[KeyOperation]


def parse_document(data: bytes, *, as_base64: bool) -> TxnDocument:
    """The transaction of a document.

    Raises:
        UnfitDocument: it is none.
    """
    try:
        found = json.loads(data, object_pairs_hook=_unique)
    except UnfitDocument:
        raise
    except (ValueError, RecursionError) as error:
        raise UnfitDocument(f"it is no JSON: {error}") from None
    if type(found) is not dict:
        raise UnfitDocument(f"write an object with {', '.join(FIELDS)}")
    for name in found:
        if name not in FIELDS:
            raise UnfitDocument(f"the field {name!r} is unknown: the fields are {', '.join(FIELDS)}")
    compare = _parsed(found, "compare", lambda item: _comparison(item, as_base64))
    then, otherwise = (_parsed(found, name, lambda item: _operation(item, as_base64)) for name in FIELDS[1:])
    for name, operations in (("then", then), ("otherwise", otherwise)):
        try:
            check_operations(operations)
        except InvalidOperation as error:
            raise UnfitDocument(f"{name}: {error}") from None
    return TxnDocument(compare, then, otherwise)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnfitDocument(f"a field is given twice: {', '.join(name for name, _ in pairs)}")
    return found


def _parsed(found: dict[str, Any], name: str, parse: Callable[[Any], T]) -> list[T]:
    items = found.get(name, [])
    if type(items) is not list:
        raise UnfitDocument(f"{name}: write a list of lists")
    parsed = []
    for number, item in enumerate(items):
        try:
            parsed.append(parse(item))
        except (UnfitDocument, InvalidOperation) as error:
            raise UnfitDocument(f"{name}[{number}]: {error}") from None
    return parsed


def _comparison(item: Any, as_base64: bool) -> Comparison:
    match item:
        case [str(target), key, str(operator), operand] if target in _TARGETS and operator in _OPERATORS:
            if target == CompareTarget.VALUE.value and operand is not None:
                operand = _bytes("operand", operand, as_base64)
            found = Comparison(_key(key, as_base64), CompareTarget(target), CompareOperator(operator), operand)
        case _:
            raise UnfitDocument(f"{_shown(item)} is no comparison: write {COMPARISON}")
    check_operand(found)
    return found


def _operation(item: Any, as_base64: bool) -> KeyOperation:
    found: KeyOperation
    match item:
        case ["put", key, value, *ttl] if len(ttl) <= 1:
            found = PutKey(_key(key, as_base64), _bytes("value", value, as_base64), *map(_ttl_ms, ttl))
        case ["delete", key]:
            found = DeleteKey(_key(key, as_base64))
        case ["get", key]:
            found = GetKey(_key(key, as_base64))
        case ["incr", key, *by] if len(by) <= 1:
            found = IncrementKey(_key(key, as_base64), *map(_number, by))
        case _:
            raise UnfitDocument(f"{_shown(item)} is no operation: write {OPERATION}")
    decode_operations(encode_operations([found]))  # refuses numbers beyond their range
    return found


def _key(word: Any, as_base64: bool) -> bytes:
    return checked_key(_bytes("key", word, as_base64))


def _bytes(what: str, word: Any, as_base64: bool) -> bytes:
    if type(word) is not str:
        raise UnfitDocument(f"the {what} {_shown(word)} is no text")
    try:
        word.encode()
        return given_bytes(word, as_base64)
    except (Failure, UnicodeEncodeError) as error:
        raise UnfitDocument(f"the {what}: {error}") from None


def _number(word: Any) -> int:
    if type(word) is not int:
        raise UnfitDocument(f"{_shown(word)} is no whole number to add")
    return word


def _ttl_ms(word: Any) -> int:
    if type(word) not in (int, float) or not 0.001 <= word <= TTL_MS_MAX / 1_000:
        raise UnfitDocument(f"a time to live is 0.001 to {TTL_MS_MAX // 1_000} seconds, not {_shown(word)}")
    return round(float(word) * 1_000)


def _shown(word: Any) -> str:
    return f"{json.dumps(word, ensure_ascii=False):.80}"
