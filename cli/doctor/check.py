"""One check of `gnomon doctor`."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class CheckStatus(Enum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """The finding, and advice where something can be done."""

    name: str
    status: CheckStatus
    found: str
    advice: str = ""
