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
from typing import Any, Final

from gnomon.broker.admin.tables.unfit_request import UnfitRequest
from gnomon.log.tables.operations import OPERATIONS_MAX
from gnomon.log.tables.transaction_form import FIELDS, TransactionForm, UnfitTransaction, parse_fields, shown

DOCUMENT_BYTES_MAX: Final = 3 << 19
"""Values of 1.1 MiB, more than a topic takes by default in one batch; some 7 ms."""
_LISTS_MAX: Final = OPERATIONS_MAX + len(FIELDS)
_COMMAS_MAX: Final = 4 * OPERATIONS_MAX + len(FIELDS)
_ESCAPES_SHARE: Final = 16
"""One byte of so many may be a backslash, with which some encoders write the slashes of base64."""
_DIGITS_MAX: Final = 30


def parse_transaction(body: bytes) -> TransactionForm:
    """The transaction of a document; the same as `load_document` and `transaction_of`, each of which takes some ms.

    Raises:
        UnfitRequest: it is none.
    """
    return transaction_of(load_document(body))


def transaction_of(found: Any) -> TransactionForm:
    """The transaction of a document that was loaded.

    Raises:
        UnfitRequest: it is none.
    """
    if type(found) is not dict:
        raise UnfitRequest(f"the body is no JSON object: send one with {', '.join(FIELDS)}")
    for name in found:
        if name not in FIELDS:
            raise UnfitRequest(f"the field {shown(name)} is unknown: the fields are {', '.join(FIELDS)}")
    try:
        transaction = parse_fields(found, _bytes)
    except UnfitTransaction as error:
        raise UnfitRequest(str(error)) from None
    count = len(transaction.keys)
    if not 0 < count <= OPERATIONS_MAX:
        raise UnfitRequest(f"a transaction has 1 to {OPERATIONS_MAX} operations and comparisons, not {count}")
    return transaction


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


def _bytes(what: str, word: Any) -> bytes:
    if type(word) is not str:
        raise UnfitTransaction(f"the {what} {shown(word)} is no text of base64")
    try:
        return binascii.a2b_base64(word, strict_mode=True)
    except ValueError as error:
        raise UnfitTransaction(f"the {what} {shown(word)} is no base64: {error}") from None
