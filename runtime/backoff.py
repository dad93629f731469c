"""Backoff: how long to wait before an operation that failed is tried again. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow by `factor` from `seconds_min` up to `seconds_max`; the caller adds jitter where it needs some.

    1. The pause after `failures` failures in a row is `seconds_min * factor ** (failures - 1)`, at most `seconds_max`.
    2. No number of failures is too large.
    """

    seconds_min: float
    seconds_max: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        assert 0 < self.seconds_min <= self.seconds_max, "a backoff grows from its minimum to its maximum"
        assert self.factor > 1, "a backoff grows"

    def seconds(self, failures: int) -> float:
        """The pause before the next try, after this many failures in a row (1 or more)."""
        doublings = max(failures, 1) - 1
        if doublings >= math.log(self.seconds_max / self.seconds_min, self.factor):
            return self.seconds_max  # without the power, which overflows for large numbers
        return self.seconds_min * self.factor**doublings
