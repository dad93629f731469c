"""A client of a storm that casts a shadow and reads it: what that shows is the source's, and in the end all of it.

    scenario = LogScenario(..., beside={"shadow": read_shadow})

1. Every record that a shadow shows stands at the same offset in the source.
2. A shadow's reader is never sent away: offsets rise, nothing is skipped but what the source cut off.
3. Once all is calm a shadow shows up to the source's end.
"""

from __future__ import annotations

from functools import partial

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.log_checker import LogHistory
from gnomon.testing.log_clients import RETRY_SECONDS, Refused, SimulatedConsumer
from gnomon.testing.storm_clients import CREATE_TOPICS_VERSION, ask_until, delete_topic, expect, keep_short_log
from gnomon.testing.wire_client import KafkaCluster, KafkaConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

SHADOW_SOURCE = "gnomon.shadow.source"
CATCH_UP_SECONDS = 15.0
"""After the storm: leases end, partitions are claimed, bookies are heard."""


async def cast_shadow(cluster: KafkaCluster, source: str, shadow: str) -> None:
    """Casts a shadow of a topic that may be about to be created."""

    async def cast(connection: KafkaConnection) -> None:
        config = CreatableTopicConfig(name=SHADOW_SOURCE, value=source)
        topic = CreatableTopic(name=shadow, num_partitions=-1, replication_factor=-1, configs=[config])
        answer = await connection.request(
            CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION, CreateTopicsResponse
        )
        result = answer.topics[0]
        if result.error_code == ErrorCode.INVALID_CONFIG and "does not exist" in (result.error_message or ""):
            raise Unreachable("the source is not there yet")
        # The request that a try before left behind may have cast it.
        expect(result.error_code, f"casting {shadow}", ErrorCode.TOPIC_ALREADY_EXISTS)

    await ask_until(cluster, cast)


async def read_shadow(
    cluster: KafkaCluster, seconds: float, *, source: str = "orders", shadow: str = "shadow", partition: int = 0
) -> None:
    """Casts a shadow, reads a partition while the storm lasts, and compares it with the source."""
    clock = cluster.world.clock
    history = LogHistory()
    over = clock.monotonic() + seconds
    await cast_shadow(cluster, source, shadow)
    while clock.monotonic() < over:
        # Whoever begins anew, as an application that is restarted does, is shown the same.
        name = f"{shadow} from {clock.monotonic():.3f}"
        with trio.move_on_after(cluster.world.random("shadow").uniform(0.5, seconds)):
            reader = SimulatedConsumer(cluster, shadow, partition, history, name=name)
            reader.of_shadow = True
            await reader.run()
    final = partial(SimulatedConsumer, cluster, partition=partition, history=LogHistory())
    await clock.sleep(CATCH_UP_SECONDS)
    while True:
        end = await _end(cluster, source, partition, final(topic=source, name="end"))
        shown = await final(topic=shadow, name="shown").read_all()
        kept = await final(topic=source, name="kept").read_all()
        _compare(history, dict(kept), shown)
        if (shown[-1][0] + 1 if shown else 0) >= end or (kept and end <= kept[0][0]) or not kept:
            return
        await clock.sleep(RETRY_SECONDS)


async def recast_shadow(
    cluster: KafkaCluster, seconds: float, *, source: str = "orders", shadow: str = "recast"
) -> None:
    """Casts a shadow, reads it for a while and deletes it, again and again: the source has to stay what it is."""
    clock, stream = cluster.world.clock, cluster.world.random("recast")
    end, life = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        life += 1
        name = f"{shadow}-{life}"  # what is left behind of a life before must not meet this one
        await cast_shadow(cluster, source, name)
        reader = SimulatedConsumer(cluster, name, 0, LogHistory(), name=name)
        reader.of_shadow = True
        with trio.move_on_after(stream.expovariate(0.5)):
            await reader.run()
        await delete_topic(cluster, name)
        await clock.sleep(stream.expovariate(1.0))


async def keep_short_log_with_shadow(cluster: KafkaCluster, seconds: float) -> None:
    """A topic that gives up segments all the time, and a shadow of it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_short_log, cluster, seconds)
        nursery.start_soon(partial(read_shadow, cluster, seconds, source="short", shadow="short-shadow"))


async def _end(cluster: KafkaCluster, source: str, partition: int, reader: SimulatedConsumer) -> int:
    async def ask(connection: KafkaConnection) -> int:
        return await reader.offset(connection, -1)

    return (await ask_until(cluster, ask, lambda: cluster.leader(source, partition)))[0]


def _compare(history: LogHistory, kept: dict[int, bytes], shown: list[tuple[int, bytes]]) -> None:
    first = min(kept, default=1 << 62)
    for name, polls in (*history.polls.items(), ("all", shown)):
        before = -1
        for offset, value in polls:
            if kept.get(offset, value) != value or (offset >= first and offset not in kept):
                raise Refused(
                    f"{name} was shown {value!r} at offset {offset}, where the source has {kept.get(offset)!r}"
                )
            if offset <= before:
                raise Refused(f"{name} was shown offset {offset} after {before}")
            if before >= first and offset != before + 1:
                raise Refused(f"{name} was shown nothing between {before} and {offset}")
            before = offset
