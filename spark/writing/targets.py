"""Finds the topics that a sink writes to, with their rules.

The rules are checked before a batch is staged: no decided batch may be refused for its form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gnomon.client.kafka.admin import topic_configs
from gnomon.client.kafka.brokers import KafkaBrokers, UnknownTopic
from gnomon.spark.writing.target import RowRefused, Target, target_of

SINK_PREFIX: Final = "__gnomon_sink_"
_INTERNAL_PREFIX: Final = "__"


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
