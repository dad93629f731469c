"""The longest times that a cluster may take in calm conditions, with their reasons. Pure.

The drill sets links and disks so that a message or a sync takes a millisecond on average. Each bound is far above the
sum of the messages and syncs of its path, and below the time of any fallback (a timer, a poll, a pause), which would
otherwise hide that the path failed.
"""

from __future__ import annotations

from enum import Enum


class Latency(Enum):
    """A time that the drill measures; its value is the name in reports, and its bound in virtual seconds."""

    PRODUCE = ("produce", 0.05)
    """From the request to its answer, on an open connection: four messages and a sync."""
    WAKE = ("wake of a fetch", 0.1)
    """From a Produce request to the answer of a fetch that waits at the end of the log."""
    POLL_END = ("end of a long poll", 0.05)
    """By which the answer of a fetch without records differs from its `max_wait_ms`, in both directions."""
    SHADOW = ("source to shadow", 0.1)
    """From a Produce request to the source to the answer of a fetch that waits at the end of the shadow."""
    RECONNECT = ("reconnect", 1.0)
    """From a reset of all streams of the leader until it acknowledges again: its writer has lost all bookies, and the
    log is opened again; a failed opening is repeated after 0.5 s."""
    FAIL_OVER = ("fail-over", 1.5)
    """From the kill of the leader until another broker (or its next process) acknowledges, without the lease of the
    killed one: the end of the lease is noticed, the news spreads, the log is claimed."""
    BACK_OFF = ("back-off", 0.4)
    """From a reset of the streams between brokers and metadata until there are new ones. The metadata was away for
    seconds before: pauses grew up to a second, and have to begin small again."""

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.value[0]

    @property
    def seconds_max(self) -> float:
        """The bound."""
        return self.value[1]
