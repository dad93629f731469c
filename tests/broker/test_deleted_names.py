"""The name of a deleted topic: it is free once no broker serves the topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio
from cluster_calls import LEASE_SECONDS, at, create, delete, latest, on_one_partition, produce_one

from gnomon.log.topic import Topic, deleted_key, topic_key
from gnomon.metadata.client import Delete, Put
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.errors import ErrorCode


@pytest.mark.parametrize("away_seconds", [0.0, 1.0, 20.0])  # the longest one ends the broker's lease
def test_a_topic_is_created_again_once_no_broker_serves_its_last_life(away_seconds: float) -> None:
    async def work(cluster: BrokerCluster, client: WireCluster) -> None:
        clock, network = cluster.simulation.clock, cluster.simulation.network
        old = cluster.leader("orders", 0)
        for _ in range(3):
            assert await produce_one(await at(client, old)) is ErrorCode.NONE
        network.clog("metadata", f"broker-{old}", away_seconds)
        assert await delete(client, 3 - old) is ErrorCode.NONE
        begun = clock.monotonic()
        await create(client, 1, 3 - old)
        waited_seconds = clock.monotonic() - begun
        assert min(away_seconds, 2.0) - 0.1 < waited_seconds < min(away_seconds, LEASE_SECONDS + 1) + 0.5
        leader = await at(client, cluster.leader_by(3 - old, "orders", 0))
        with trio.fail_after(10):
            while await produce_one(leader) is not ErrorCode.NONE:
                await clock.sleep(0.1)
        assert await latest(leader) == (ErrorCode.NONE, 1, 0)

    on_one_partition(1, 2, work)


def test_a_broker_does_not_confirm_a_later_deletion_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        records, metadata, key = node.records, node.storage.metadata, deleted_key("orders")
        other = Topic("other", UUID(int=1), 1, {})  # an event, so that the image reaches the revision of the deletion
        await metadata.txn((), (Put(key, b""), Put(topic_key("other"), other.encode())))
        write = records.write

        async def others_are_quicker(*args: Any) -> Any:
            monkeypatch.setattr(records, "write", write)
            await metadata.txn((), (Delete(key),))
            await metadata.txn((), (Put(key, b""),))
            return await write(*args)

        monkeypatch.setattr(records, "write", others_are_quicker)
        await node.deleted_topics._forget_offsets("orders")
        assert (await metadata.get(key)).value == b""

    simulate_broker(scenario)
