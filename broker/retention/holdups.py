"""The subscriptions that kept records from retention, as the last pass of retention found. Pure.

1. There is one for each partition at most: the slowest subscription. The others become visible once it has read on.
2. A subscription may have read on, or have been deleted, since then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gnomon.log.entry import Offset


class Holdup(NamedTuple):
    """A subscription that kept records of one partition."""

    topic: str
    """The topic of the subscription: that of the records, or one of its shadows."""
    partition: int
    subscription: str
    first: Offset
    """The position of the subscription."""
    end: Offset
    """Retention would have deleted the records before this offset."""

    @property
    def records(self) -> int:
        """The records that it kept, besides those that it had read in the same segment."""
        return self.end - self.first


class Holdups:
    """The holdups of one broker's partitions."""

    def __init__(self) -> None:
        self._found: Mapping[tuple[uuid.UUID, int], Holdup] = {}

    def __iter__(self) -> Iterator[Holdup]:
        return iter(list(self._found.values()))

    def replace(self, found: Mapping[tuple[uuid.UUID, int], Holdup]) -> None:
        """Takes the holdups of a whole pass, by topic id and number of the partitions."""
        self._found = found
