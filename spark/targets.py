"""The topics that a sink writes to, and the rules that their configs make for its rows.

The rules are checked before a batch is staged: no decided batch may be refused for its form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gnomon.client.kafka.admin import topic_configs
from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic

SINK_PREFIX: Final = "__gnomon_sink_"
_INTERNAL_PREFIX: Final = "__"
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
    """How far in the past a timestamp may be; None if the broker sets the timestamps."""
    future_ms_max: int | None


async def find_targets(cluster: KafkaBrokers, names: Iterable[str]) -> dict[str, Target]:
    """The topics of these names.

    Raises:
        RowRefused: one of them does not exist, is a shadow, or is internal.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    wanted = sorted(set(names))
    for name in wanted:
        if name.startswith(_INTERNAL_PREFIX):
            raise RowRefused(f"topic {name!r} is internal: the sink does not write to it")
    try:
        topics = await cluster.retried("", lambda: cluster.topics(wanted))
    except UnknownTopic as error:
        raise RowRefused(f"{error}; the sink creates no topics of rows") from None
    configs = await topic_configs(cluster, wanted)
    return {name: target_of(name, len(topics[name].leaders), configs[name]) for name in wanted}


def target_of(name: str, partitions: int, configs: dict[str, str]) -> Target:
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
