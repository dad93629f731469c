"""A storm client that casts (creates) a shadow and reads it: the shadow shows only records of its source, and in the
end all of them.

    scenario = LogScenario(..., beside={"shadow": read_shadow})

1. Every record that a shadow shows is at the same offset in the source.
2. A reader of a shadow is never reset: offsets rise, and only records that the source has deleted are skipped.
3. After the storm a shadow shows the records up to the source's end.
"""

from __future__ import annotations

from functools import partial

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import RETRY_SECONDS, ProduceRefused, SimulatedConsumer
from gnomon.testing.storms.kafka.storm_clients import (
    CREATE_TOPICS_VERSION,
    ask_until,
    delete_topic,
    expect,
    keep_short_log,
)
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

SHADOW_SOURCE = "gnomon.shadow.source"
CATCH_UP_SECONDS = 15.0
"""Time after the storm in which leases end, partitions are claimed and bookies are reached again."""


async def cast_shadow(cluster: WireCluster, source: str, shadow: str) -> None:
    """Casts a shadow of a topic; retries until the topic exists."""

    async def cast(connection: WireConnection) -> None:
        config = CreatableTopicConfig(name=SHADOW_SOURCE, value=source)
        topic = CreatableTopic(name=shadow, num_partitions=-1, replication_factor=-1, configs=[config])
        answer = await connection.request(
            CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION, CreateTopicsResponse
        )
        result = answer.topics[0]
        if result.error_code == ErrorCode.INVALID_CONFIG and "does not exist" in (result.error_message or ""):
            raise Unreachable("the source does not exist yet")
        # The request of an earlier try may have cast it.
        expect(result.error_code, f"casting {shadow}", ErrorCode.TOPIC_ALREADY_EXISTS)

    await ask_until(cluster, cast)


async def read_shadow(
    cluster: WireCluster, seconds: float, *, source: str = "orders", shadow: str = "shadow", partition: int = 0
) -> None:
    """Casts a shadow, reads a partition of it during the storm, and compares the records with the source."""
    clock = cluster.world.clock
    history = LogHistory()
    over = clock.monotonic() + seconds
    await cast_shadow(cluster, source, shadow)
    while clock.monotonic() < over:
        # A reader that begins again, as a restarted application does, gets the same records.
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
    cluster: WireCluster, seconds: float, *, source: str = "orders", shadow: str = "recast"
) -> None:
    """Casts a shadow, reads it for a while and deletes it, repeatedly: the source must not change."""
    clock, stream = cluster.world.clock, cluster.world.random("recast")
    end, life = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        life += 1
        name = f"{shadow}-{life}"  # late requests of an earlier life must not affect this one
        await cast_shadow(cluster, source, name)
        reader = SimulatedConsumer(cluster, name, 0, LogHistory(), name=name)
        reader.of_shadow = True
        with trio.move_on_after(stream.expovariate(0.5)):
            await reader.run()
        await delete_topic(cluster, name)
        await clock.sleep(stream.expovariate(1.0))


async def keep_short_log_with_shadow(cluster: WireCluster, seconds: float) -> None:
    """Runs a topic whose retention deletes segments all the time, and a shadow of it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_short_log, cluster, seconds)
        nursery.start_soon(partial(read_shadow, cluster, seconds, source="short", shadow="short-shadow"))


async def _end(cluster: WireCluster, source: str, partition: int, reader: SimulatedConsumer) -> int:
    async def ask(connection: WireConnection) -> int:
        return await reader.offset(connection, -1)

    return (await ask_until(cluster, ask, lambda: cluster.leader(source, partition)))[0]


def _compare(history: LogHistory, kept: dict[int, bytes], shown: list[tuple[int, bytes]]) -> None:
    first = min(kept, default=1 << 62)
    for name, polls in (*history.polls.items(), ("all", shown)):
        before = -1
        for offset, value in polls:
            if kept.get(offset, value) != value or (offset >= first and offset not in kept):
                raise ProduceRefused(
                    f"{name} got {value!r} at offset {offset}, where the source has {kept.get(offset)!r}"
                )
            if offset <= before:
                raise ProduceRefused(f"{name} got offset {offset} after {before}")
            if before >= first and offset != before + 1:
                raise ProduceRefused(f"{name} got no record between {before} and {offset}")
            before = offset
