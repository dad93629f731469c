"""The errors that libraries raise when the broker refuses: each has its own classes, with Kafka's codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from families.family import Family


def refused(family: Family, action: Callable[..., object], *arguments: object) -> int:
    """The code of the error that the call raises."""
    with pytest.raises(Exception) as error:  # noqa: PT011 - each library has its own; the code is checked
        action(*arguments)
    return family.code(error.value)
