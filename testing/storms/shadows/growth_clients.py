"""A storm client that grows a topic while its shadows are cast (created) and deleted. It compares the brokers' topics.

    scenario = LogScenario(..., beside={"grown": grow_shadowed})

1. Independent requests create and delete the topic, its shadows and their subscriptions meanwhile. Each request
   succeeds, or is refused with a correct error.
2. After the storm every broker shows the same topics, and each shadow with as many partitions as its source.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from gnomon.client.client import connect
from gnomon.client.errors import ConsumerClosed, NoSuchTopic, SubscriptionTaken, Unavailable
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.broker_cluster import KAFKA_PORT, NATIVE_PORT
from gnomon.testing.storms.kafka.log_clients import RETRY_SECONDS, ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import (
    CREATE_TOPICS_VERSION,
    DELETE_TOPICS_VERSION,
    ask_until,
    create_topic,
    delete_topic,
    expect,
)
from gnomon.testing.storms.kafka.wire_client import METADATA_VERSION, WireCluster, WireConnection
from gnomon.testing.storms.shadows.shadow_clients import CATCH_UP_SECONDS, SHADOW_SOURCE
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

CREATE_PARTITIONS_VERSION = 3
PARTITIONS_MAX = 12
CASTERS = 3
STEPS_A_SECOND = 3.0
"""The rate of each task that changes something."""
SUBSCRIBE_SECONDS_MAX = 2.0
AGREE_SECONDS_MAX = 30.0
"""Time for the brokers to agree, after CATCH_UP_SECONDS."""


async def grow_shadowed(cluster: WireCluster, seconds: float, *, source: str = "grown") -> None:
    """Grows a topic while its shadows are cast and deleted; then compares the topics that the brokers show."""
    await create_topic(cluster, source, {})
    async with trio.open_nursery() as nursery:
        for name, act in (("grow", _grow), ("delete", _delete_source), ("subscribe", _subscribe)):
            nursery.start_soon(_repeat, cluster, seconds, f"{source} {name}", partial(act, cluster, source))
        for number in range(CASTERS):
            act = partial(_cast_or_delete, cluster, source, f"{source}-{number}")
            nursery.start_soon(_repeat, cluster, seconds, f"{source} cast {number}", act)
    await cluster.world.clock.sleep(CATCH_UP_SECONDS)
    await _wait_for_agreement(cluster, source)


async def _repeat(cluster: WireCluster, seconds: float, name: str, act: Callable[[float], Awaitable[None]]) -> None:
    """Calls `act` repeatedly, each time with a number drawn from 0 to 1."""
    clock, stream = cluster.world.clock, cluster.world.random(name)
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        await clock.sleep(stream.expovariate(STEPS_A_SECOND))
        await act(stream.random())


async def _grow(cluster: WireCluster, source: str, drawn: float) -> None:
    async def ask(connection: WireConnection) -> None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=source)], allow_auto_topic_creation=False)
        shown = (await connection.request(asked, METADATA_VERSION, MetadataResponse)).topics[0]
        count = len(shown.partitions) + 1 + (drawn < 0.2)
        if shown.error_code or count > PARTITIONS_MAX:
            return
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=source, count=count, assignments=None)])
        answer = await connection.request(request, CREATE_PARTITIONS_VERSION, CreatePartitionsResponse)
        # The request of an earlier try may have grown the topic, or the topic may be deleted by now.
        allowed = (ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        expect(answer.results[0].error_code, f"growth of {source} to {count}", *allowed)

    await ask_until(cluster, ask)


async def _cast_or_delete(cluster: WireCluster, source: str, shadow: str, drawn: float) -> None:
    async def cast(connection: WireConnection) -> None:
        config = CreatableTopicConfig(name=SHADOW_SOURCE, value=source)
        topic = CreatableTopic(name=shadow, num_partitions=-1, replication_factor=-1, configs=[config])
        request = CreateTopicsRequest(topics=[topic])
        answer = await connection.request(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        # The source may be deleted at this moment.
        allowed = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_CONFIG)
        expect(answer.topics[0].error_code, f"casting {shadow}", *allowed)

    if drawn < 0.5:
        await ask_until(cluster, cast)
    else:
        await delete_topic(cluster, shadow)


async def _delete_source(cluster: WireCluster, source: str, drawn: float) -> None:
    async def delete(connection: WireConnection) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=source)])
        answer = await connection.request(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
        # The topic has shadows, or is already deleted.
        allowed = (ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        expect(answer.responses[0].error_code, f"deletion of {source}", *allowed)

    if drawn < 0.5:
        await ask_until(cluster, delete)
    else:
        await create_topic(cluster, source, {})


async def _subscribe(cluster: WireCluster, source: str, drawn: float) -> None:
    addresses = ",".join(f"{host}:{NATIVE_PORT}" for host in cluster.hosts)
    topic = source if drawn < 0.3 else f"{source}-{int(drawn * 100) % CASTERS}"
    with trio.move_on_after(SUBSCRIBE_SECONDS_MAX):
        async with connect(addresses, world=cluster.world, name=f"{source}/{drawn}") as client:
            try:
                consumer = await client.subscribe(topic, f"reader-{int(drawn * 1000) % 7}", type="shared")
                if drawn > 0.7:
                    await consumer.unsubscribe()
            except (NoSuchTopic, SubscriptionTaken, Unavailable, Unreachable, ConsumerClosed):
                pass  # the topic does not exist at this moment, or its broker is away


async def _wait_for_agreement(cluster: WireCluster, source: str) -> None:
    clock = cluster.world.clock
    end = clock.monotonic() + AGREE_SECONDS_MAX
    while (difference := await _difference(cluster, source)) and clock.monotonic() < end:
        await clock.sleep(RETRY_SECONDS)
    if difference:
        raise ProduceRefused(difference)


async def _shown(cluster: WireCluster, host: str, source: str) -> dict[str, tuple[ErrorCode, int]]:
    """The topic and its shadows as a broker shows them: error and number of partitions, by name."""

    async def ask(connection: WireConnection) -> dict[str, tuple[ErrorCode, int]]:
        answer = await connection.request(MetadataRequest(topics=None), METADATA_VERSION, MetadataResponse)
        shown = {topic.name or "": (ErrorCode(topic.error_code), len(topic.partitions)) for topic in answer.topics}
        return {name: found for name, found in shown.items() if name == source or name.startswith(f"{source}-")}

    connect_to = partial(WireConnection.open, cluster.world, host, KAFKA_PORT, cluster.client_id)
    return (await ask_until(cluster, ask, connect_to))[0]


async def _difference(cluster: WireCluster, source: str) -> str | None:
    """A difference between the brokers, or between a shadow and its source; None if there is none."""
    shown = {host: await _shown(cluster, host, source) for host in cluster.hosts}
    first = cluster.hosts[0]
    for host, topics in shown.items():
        if topics != shown[first]:
            return f"{first} shows {shown[first]}, and {host} shows {topics}"
        expected = topics.get(source)
        for name, found in topics.items():
            if found[0] is not ErrorCode.NONE or found != expected:
                return f"{host} shows {name} with {found}, and {source} with {expected}"
    return None
