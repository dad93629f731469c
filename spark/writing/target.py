"""One topic that a sink writes to, and the rules that its configs make for rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_SHADOW_SOURCE: Final = "gnomon.shadow.source"


class RowRefused(Exception):
    """A row that the sink cannot write, or a topic that takes none; the text names it."""


class Target(NamedTuple):
    """One topic, as its configs are."""

    name: str
    partitions: int
    batch_bytes_max: int
    """`max.message.bytes`."""
    compacted: bool
    """Whether each record needs a key."""
    past_ms_max: int | None
    """The largest age of a timestamp; None if the broker sets the timestamps."""
    future_ms_max: int | None


def target_of(name: str, partitions: int, configs: Mapping[str, str]) -> Target:
    """The rules of a topic.

    Raises:
        RowRefused: it is a shadow.
    """
    source = configs.get(_SHADOW_SOURCE)
    if source:
        raise RowRefused(f"topic {name!r} is a shadow: write to its source {source!r}")
    sets_times = configs.get("message.timestamp.type") == "LogAppendTime"
    return Target(
        name,
        partitions,
        int(configs["max.message.bytes"]),
        "compact" in configs.get("cleanup.policy", ""),
        None if sets_times else int(configs["message.timestamp.before.max.ms"]),
        None if sets_times else int(configs["message.timestamp.after.max.ms"]),
    )
