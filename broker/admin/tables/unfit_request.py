"""Refusals of requests for tables, and the numbers and bytes in their texts. Pure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

NUMBER_DIGITS_MAX: Final = 18
SHOWN_CHARACTERS_MAX: Final = 80
_NOT_ESCAPED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


class UnfitRequest(ValueError):
    """A request that is refused as it is; the text says what is wrong with it, and what to send instead."""

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.status = status


def percent_decoded(what: str, raw: bytes) -> bytes:
    """The bytes of a percent-encoded text.

    Raises:
        UnfitRequest: a percent sign is not followed by two hexadecimal digits, or a byte is not ASCII.
    """
    wrong = _NOT_ESCAPED.search(raw)
    if wrong is not None:
        found = raw[wrong.start() : wrong.start() + 3].decode("ascii", "replace")
        raise UnfitRequest(f"{what} has {found!r}: two hexadecimal digits follow a %, and a % itself is %25")
    if not raw.isascii():
        raise UnfitRequest(f"{what} has bytes beyond ASCII: percent-encode them")
    return unquote_to_bytes(raw)


def natural_number(what: str, text: str) -> int:
    """A number from 0 on.

    Raises:
        UnfitRequest: it is none.
    """
    if _DIGITS.fullmatch(text) is None:
        raise UnfitRequest(f"{what} is a number of 1 to {NUMBER_DIGITS_MAX} digits, not {shown(text)}")
    return int(text)


def shown(text: str) -> str:
    """A text of a request, as a refusal quotes it."""
    return repr(text) if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]!r}…"
