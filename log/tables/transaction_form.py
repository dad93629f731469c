"""The words of a transaction in a JSON document: comparisons and operations as lists, and the texts of refusals. Pure.

    ["value", KEY, "==", "one"], ["version", KEY, ">", 0], ["put", KEY, "two", 10], ["incr", KEY, 5], ["get", KEY]

1. The value of an absent key is compared with null.
2. Each word counts, or the document is refused with the place of the mistake: nothing is dropped or guessed.
3. The caller decodes keys and values: they are texts or base64.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

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
Decoded = Callable[[str, Any], bytes]
"""The bytes of a word; the first argument says what the word is. Raises UnfitTransaction if it has none."""

FIELDS: Final = ("compare", "then", "otherwise")
COMPARISON: Final = '["value", "version", "revision" or "create_revision", KEY, "==", "!=", "<" or ">", OPERAND]'
OPERATION: Final = '["put", KEY, VALUE] or with TTL_SECONDS, ["delete", KEY], ["get", KEY], ["incr", KEY] or with BY'
_TARGETS: Final = frozenset(each.value for each in CompareTarget)
_OPERATORS: Final = frozenset(each.value for each in CompareOperator)
_WORDS_SHOWN: Final = 6
_CHARACTERS_SHOWN: Final = 40


class UnfitTransaction(ValueError):
    """A document that is no transaction; the text says what is wrong with it, and where."""


class TransactionForm(NamedTuple):
    """The arguments of a transaction."""

    compare: list[Comparison]
    then: list[KeyOperation]
    otherwise: list[KeyOperation]

    @property
    def keys(self) -> list[bytes]:
        """The keys of all comparisons and operations."""
        return [each.key for each in (*self.compare, *self.then, *self.otherwise)]


def parse_fields(found: Mapping[str, Any], decoded: Decoded) -> TransactionForm:
    """The transaction of a document's fields; those that are left out are empty, other ones are ignored.

    Raises:
        UnfitTransaction: it is none.
    """
    compare = _parsed(found, "compare", partial(_comparison, decoded))
    then, otherwise = (_parsed(found, name, partial(_operation, decoded)) for name in FIELDS[1:])
    for name, operations in (("then", then), ("otherwise", otherwise)):
        try:
            check_operations(operations)
        except InvalidOperation as error:
            raise UnfitTransaction(f"{name}: {error}") from None
    return TransactionForm(compare, then, otherwise)


def shown(word: Any) -> str:
    """A word of the document as a refusal quotes it, or a list of a few words."""
    if type(word) is not list:
        return _short_word(word)
    return f"[{', '.join(map(_short_word, word[:_WORDS_SHOWN]))}{', …' if len(word) > _WORDS_SHOWN else ''}]"


def _parsed(found: Mapping[str, Any], name: str, parse: Callable[[Any], T]) -> list[T]:
    items = found.get(name, [])
    if type(items) is not list:
        raise UnfitTransaction(f"{name}: write a list of lists")
    parsed = []
    for number, item in enumerate(items):
        try:
            parsed.append(parse(item))
        except (UnfitTransaction, InvalidOperation) as error:
            raise UnfitTransaction(f"{name}[{number}]: {error}") from None
    return parsed


def _comparison(decoded: Decoded, item: Any) -> Comparison:
    match item:
        case [str(target), key, str(operator), operand] if target in _TARGETS and operator in _OPERATORS:
            if target == CompareTarget.VALUE.value and operand is not None:
                operand = decoded("operand", operand)
            found = Comparison(_key(decoded, key), CompareTarget(target), CompareOperator(operator), operand)
        case _:
            raise UnfitTransaction(f"{shown(item)} is no comparison: write {COMPARISON}")
    check_operand(found)
    return found


def _operation(decoded: Decoded, item: Any) -> KeyOperation:
    found: KeyOperation
    match item:
        case ["put", key, value, *ttl] if len(ttl) <= 1:
            found = PutKey(_key(decoded, key), decoded("value", value), *map(_ttl_ms, ttl))
        case ["delete", key]:
            found = DeleteKey(_key(decoded, key))
        case ["get", key]:
            found = GetKey(_key(decoded, key))
        case ["incr", key, *by] if len(by) <= 1:
            found = IncrementKey(_key(decoded, key), *map(_number, by))
            decode_operations(encode_operations([found]))  # refuses a number beyond its range
        case _:
            raise UnfitTransaction(f"{shown(item)} is no operation: write {OPERATION}")
    return found


def _key(decoded: Decoded, word: Any) -> bytes:
    return checked_key(decoded("key", word))


def _number(word: Any) -> int:
    if type(word) is not int:
        raise UnfitTransaction(f"{shown(word)} is no whole number to add")
    return word


def _ttl_ms(word: Any) -> int:
    if type(word) not in (int, float) or not 0.001 <= word <= TTL_MS_MAX / 1_000:
        raise UnfitTransaction(f"a time to live is 0.001 to {TTL_MS_MAX // 1_000} seconds, not {shown(word)}")
    return round(float(word) * 1_000)


def _short_word(word: Any) -> str:
    if type(word) is str:
        text = word if len(word) <= _CHARACTERS_SHOWN else f"{word[:_CHARACTERS_SHOWN]}…"
        return json.dumps(text, ensure_ascii=False)
    return "[…]" if type(word) is list else "{…}" if type(word) is dict else json.dumps(word)
