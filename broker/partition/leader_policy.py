"""The policy of a partition's leader toward clients that another leader may have served before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaderPolicy:
    """One policy serves all partitions of a broker."""

    tells_epochs: bool
    """Whether Metadata answers contain the leader epoch of a partition that was used.

    Where any broker may answer, no answer contains it: a broker knows the epochs of its own partitions only, and a
    client that got an epoch from one broker (librdkafka before 2.5) never considers an answer without an epoch newer.
    """
    confirms_leadership: bool
    """Whether the metadata service is asked before a negative answer: another broker may have claimed the log."""
