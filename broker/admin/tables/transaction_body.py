"""The JSON document of a transaction over HTTP: comparisons and operations as lists of words. Pure.

    {
      "compare": [["value", "bGVhZGVy", "==", "b25l"], ["version", "Y29sb3Vy", ">", 0]],
      "then": [["put", "bGVhZGVy", "dHdv", 10], ["incr", "dmlzaXRz", 5], ["get", "Y29sb3Vy"]],
      "otherwise": [["get", "bGVhZGVy"]]
    }

1. Keys and values are base64. The value of an absent key is compared with null.
2. Each word counts, or the document is refused with the place of the mistake: nothing is dropped or guessed.
3. The cost of a document is checked before it is parsed: it has few brackets and commas, and short numbers. What it has
   besides are texts, which take about 5 ms for each MB.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from gnomon.broker.admin.tables.table_path import checked_key
from gnomon.broker.admin.tables.unfit_request import UnfitRequest
from gnomon.log.tables.changes import TTL_MS_MAX
from gnomon.log.tables.operations import (
    OPERATIONS_MAX,
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
    decode_operations,
    encode_operations,
)

T = TypeVar("T")

DOCUMENT_BYTES_MAX: Final = 3 << 19
"""Values of 1.1 MiB, more than a topic takes by default in one batch; some 7 ms."""
FIELDS: Final = ("compare", "then", "otherwise")
COMPARISON: Final = '["value", "version", "revision" or "create_revision", KEY, "==", "!=", "<" or ">", OPERAND]'
OPERATION: Final = '["put", KEY, VALUE] or with TTL_SECONDS, ["delete", KEY], ["get", KEY], ["incr", KEY] or with BY'
_LISTS_MAX: Final = OPERATIONS_MAX + len(FIELDS)
_COMMAS_MAX: Final = 4 * OPERATIONS_MAX + len(FIELDS)
_ESCAPES_SHARE: Final = 16
"""One byte of so many may be a backslash, with which some encoders write the slashes of base64."""
_DIGITS_MAX: Final = 30
_WORDS_SHOWN: Final = 6
_CHARACTERS_SHOWN: Final = 40
_TARGETS: Final = frozenset(each.value for each in CompareTarget)
_OPERATORS: Final = frozenset(each.value for each in CompareOperator)


class TransactionBody(NamedTuple):
    """A transaction without its number."""

    compare: list[Comparison]
    then: list[KeyOperation]
    otherwise: list[KeyOperation]

    @property
    def keys(self) -> list[bytes]:
        """The keys of all comparisons and operations."""
        return [each.key for each in (*self.compare, *self.then, *self.otherwise)]


def parse_transaction(body: bytes) -> TransactionBody:
    """The transaction of a document; the same as `load_document` and `transaction_of`, each of which takes some ms.

    Raises:
        UnfitRequest: it is none.
    """
    return transaction_of(load_document(body))


def transaction_of(found: Any) -> TransactionBody:
    """The transaction of a document that was loaded.

    Raises:
        UnfitRequest: it is none.
    """
    if type(found) is not dict:
        raise UnfitRequest(f"the body is no JSON object: send one with {', '.join(FIELDS)}")
    for name in found:
        if name not in FIELDS:
            raise UnfitRequest(f"the field {_shown(name)} is unknown: the fields are {', '.join(FIELDS)}")
    compare = _parsed(found, "compare", _comparison)
    then, otherwise = (_parsed(found, name, _operation) for name in FIELDS[1:])
    count = len(compare) + len(then) + len(otherwise)
    if not 0 < count <= OPERATIONS_MAX:
        raise UnfitRequest(f"a transaction has 1 to {OPERATIONS_MAX} operations and comparisons, not {count}")
    for name, operations in (("then", then), ("otherwise", otherwise)):
        try:
            check_operations(operations)
        except InvalidOperation as error:
            raise UnfitRequest(f"{name}: {error}") from None
    return TransactionBody(compare, then, otherwise)


def load_document(body: bytes) -> Any:
    """The JSON value of a body, which has few parts and short numbers.

    Raises:
        UnfitRequest: it is not JSON, or has too many parts.
    """
    if not body.isascii():
        raise UnfitRequest("the body has bytes beyond ASCII: keys and values are base64")
    if body.count(b"[") > _LISTS_MAX or body.count(b",") > _COMMAS_MAX:
        raise UnfitRequest(f"the body has too many lists: send at most {OPERATIONS_MAX} operations and comparisons")
    if body.count(b"{") > 1:
        raise UnfitRequest("the body has an object within another one: keys and values are base64 texts")
    if body.count(b"\\") * _ESCAPES_SHARE > len(body):
        raise UnfitRequest("the body has too many backslashes: base64 needs none")
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=_unique,
            parse_int=lambda text: int(_short(text)),
            parse_float=lambda text: float(_short(text)),
            parse_constant=_no_constant,
        )
    except UnfitRequest:
        raise
    except (ValueError, RecursionError) as error:
        raise UnfitRequest(f"the body is not JSON: {error}") from None


def _short(text: str) -> str:
    if len(text) > _DIGITS_MAX:
        raise UnfitRequest(f"the body has a number of {len(text)} characters: {_DIGITS_MAX} are allowed")
    return text


def _no_constant(name: str) -> None:
    raise UnfitRequest(f"the body is not JSON: {name} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnfitRequest("the body has a field twice")
    return found


def _parsed(found: dict[str, Any], name: str, parse: Callable[[Any], T]) -> list[T]:
    items = found.get(name, [])
    if type(items) is not list:
        raise UnfitRequest(f"{name}: write a list of lists")
    parsed = []
    for number, item in enumerate(items):
        try:
            parsed.append(parse(item))
        except (UnfitRequest, InvalidOperation) as error:
            raise UnfitRequest(f"{name}[{number}]: {error}") from None
    return parsed


def _comparison(item: Any) -> Comparison:
    match item:
        case [str(target), key, str(operator), operand] if target in _TARGETS and operator in _OPERATORS:
            if target == CompareTarget.VALUE.value and operand is not None:
                operand = _bytes("operand", operand)
            found = Comparison(_key(key), CompareTarget(target), CompareOperator(operator), operand)
        case _:
            raise UnfitRequest(f"{_shown(item)} is no comparison: write {COMPARISON}")
    check_operand(found)
    return found


def _operation(item: Any) -> KeyOperation:
    found: KeyOperation
    match item:
        case ["put", key, value, *ttl] if len(ttl) <= 1:
            found = PutKey(_key(key), _bytes("value", value), *map(_ttl_ms, ttl))
        case ["delete", key]:
            found = DeleteKey(_key(key))
        case ["get", key]:
            found = GetKey(_key(key))
        case ["incr", key, *by] if len(by) <= 1:
            found = IncrementKey(_key(key), *map(_number, by))
            decode_operations(encode_operations([found]))  # refuses a number beyond its range
        case _:
            raise UnfitRequest(f"{_shown(item)} is no operation: write {OPERATION}")
    return found


def _key(word: Any) -> bytes:
    return checked_key("the key", _bytes("key", word))


def _bytes(what: str, word: Any) -> bytes:
    if type(word) is not str:
        raise UnfitRequest(f"the {what} {_shown(word)} is no text of base64")
    try:
        return binascii.a2b_base64(word, strict_mode=True)
    except ValueError as error:
        raise UnfitRequest(f"the {what} {_shown(word)} is no base64: {error}") from None


def _number(word: Any) -> int:
    if type(word) is not int:
        raise UnfitRequest(f"{_shown(word)} is no whole number to add")
    return word


def _ttl_ms(word: Any) -> int:
    if type(word) not in (int, float) or not 0.001 <= word <= TTL_MS_MAX / 1_000:
        raise UnfitRequest(f"a time to live is 0.001 to {TTL_MS_MAX // 1_000} seconds, not {_shown(word)}")
    return round(float(word) * 1_000)


def _shown(word: Any) -> str:
    """A word of the document as a refusal quotes it, or a list of a few words."""
    if type(word) is not list:
        return _short_word(word)
    return f"[{', '.join(map(_short_word, word[:_WORDS_SHOWN]))}{', …' if len(word) > _WORDS_SHOWN else ''}]"


def _short_word(word: Any) -> str:
    if type(word) is str:
        text = word if len(word) <= _CHARACTERS_SHOWN else f"{word[:_CHARACTERS_SHOWN]}…"
        return json.dumps(text, ensure_ascii=False)
    return "[…]" if type(word) is list else "{…}" if type(word) is dict else json.dumps(word)
