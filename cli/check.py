"""One thing that `gnomon doctor` looks at."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Status(Enum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """What was found, and what to do about it where anything is to be done."""

    name: str
    status: Status
    found: str
    advice: str = ""
