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
from typing import Any

from gnomon.cli.exit import Failure
from gnomon.cli.kv.texts import given_bytes
from gnomon.log.tables.transaction_form import FIELDS, TransactionForm, UnfitTransaction, parse_fields, shown


def parse_document(data: bytes, *, as_base64: bool) -> TransactionForm:
    """The transaction of a document.

    Raises:
        UnfitTransaction: it is none.
    """
    try:
        found = json.loads(data, object_pairs_hook=_unique)
    except UnfitTransaction:
        raise
    except (ValueError, RecursionError) as error:
        raise UnfitTransaction(f"it is no JSON: {error}") from None
    if type(found) is not dict:
        raise UnfitTransaction(f"write an object with {', '.join(FIELDS)}")
    for name in found:
        if name not in FIELDS:
            raise UnfitTransaction(f"the field {name!r} is unknown: the fields are {', '.join(FIELDS)}")
    return parse_fields(found, lambda what, word: _bytes(what, word, as_base64))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnfitTransaction(f"a field is given twice: {', '.join(name for name, _ in pairs)}")
    return found


def _bytes(what: str, word: Any, as_base64: bool) -> bytes:
    if type(word) is not str:
        raise UnfitTransaction(f"the {what} {shown(word)} is no text")
    try:
        word.encode()
        return given_bytes(word, as_base64)
    except (Failure, UnicodeEncodeError) as error:
        raise UnfitTransaction(f"the {what}: {error}") from None
