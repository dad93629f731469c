"""The name of a partition, and the numbers that name the ends of its log. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

LATEST: Final = -1
"""The end of the log, instead of an offset or a time."""
EARLIEST: Final = -2
"""The start of the log."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int
