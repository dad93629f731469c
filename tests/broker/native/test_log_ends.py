"""The lag of a group over the partitions of several brokers (numbers: invariants of `log_ends`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest
import trio
from cluster_calls import create, produce
from prometheus_client.parser import text_string_to_metric_families

from gnomon.broker.native import log_ends
from gnomon.broker.native.log_ends import LogEnds
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.topic_metrics import COLLECT_SECONDS
from gnomon.log.topic import Topic
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

PARTITIONS = 7
UNUSED = 6
COLLECTED_SECONDS = 3 * COLLECT_SECONDS
SILENT_SECONDS = COLLECTED_SECONDS + 2 * log_ends.SECONDS_MAX


class Lagging:
    """A cluster whose group `billing` is 2 records behind in each partition of `orders`, except an unused one."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.coordinator = 0

    async def start(self, client: WireCluster) -> None:
        await create(client, PARTITIONS)
        for partition in range(UNUSED):
            await produce(client, LogHistory(), "p", partition, 3)
        partitions = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=0 if each == UNUSED else 1)
            for each in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id="billing", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
        )
        connection = await client.coordinator("billing")
        self.coordinator = int(connection.connection.peer.split(":")[0].removeprefix("broker-"))
        answer = await connection.request(request, 7, OffsetCommitResponse)
        assert {each.error_code for each in answer.topics[0].partitions} == {0}

    def led_by(self, broker: int) -> int:
        """The number of used partitions that a broker leads."""
        return sum(self.cluster.leader("orders", partition) == broker for partition in range(UNUSED))

    @property
    def other(self) -> int:
        """A broker, not the coordinator, that leads partitions."""
        return next(each for each in self.cluster.brokers if each != self.coordinator and self.led_by(each))

    def shown(self) -> tuple[float, float]:
        """The lag of the group at its coordinator, and the number of partitions whose ends are unknown."""
        page = self.cluster.serving[self.coordinator].metrics.render()[0].decode()
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.labels == {"group": "billing", "topic": "orders"}
        }
        return values["gnomon_group_lag_records"], values["gnomon_group_lag_unknown_partitions"]


def on_lagging(work: Callable[[Lagging, Simulation], Awaitable[None]]) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = BrokerCluster(simulation, 3, label_sets_max=10)
        await cluster.start()
        lagging = Lagging(cluster)
        await cluster.run_client("client", lagging.start)
        await work(lagging, simulation)

    simulate(3, scenario)


def test_the_lag_of_a_group_counts_the_partitions_that_other_brokers_lead() -> None:
    async def work(lagging: Lagging, simulation: Simulation) -> None:
        assert 0 < lagging.led_by(lagging.coordinator) < UNUSED
        await simulation.clock.sleep(COLLECTED_SECONDS)
        assert lagging.shown() == (2 * UNUSED, 1)
        opened = lagging.cluster.serving[lagging.cluster.leader("orders", UNUSED)].broker
        assert opened.partitions.log(opened.topics.find("orders"), UNUSED) is None, "invariant 1"

    on_lagging(work)


def test_a_silent_broker_makes_its_partitions_unknown_and_no_other() -> None:
    async def work(lagging: Lagging, simulation: Simulation) -> None:
        await simulation.clock.sleep(COLLECTED_SECONDS)
        silent = lagging.other
        link = (f"broker-{lagging.coordinator}", f"broker-{silent}")
        simulation.network.block(*link)
        simulation.network.block(*reversed(link))
        await simulation.clock.sleep(SILENT_SECONDS)
        assert lagging.shown() == (2 * (UNUSED - lagging.led_by(silent)), 1 + lagging.led_by(silent))
        simulation.network.unblock(*link)
        simulation.network.unblock(*reversed(link))
        await simulation.clock.sleep(SILENT_SECONDS)
        assert lagging.shown() == (2 * UNUSED, 1)

    on_lagging(work)


@pytest.mark.parametrize(("bound", "value"), [("PARTITIONS_MAX", PARTITIONS - 1), ("TOPICS_MAX", 0)])
def test_topics_beyond_the_bounds_are_not_asked_for(  # invariant 2
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(lagging: Lagging, simulation: Simulation) -> None:
        await simulation.clock.sleep(COLLECTED_SECONDS)
        own = lagging.led_by(lagging.coordinator)
        assert lagging.shown() == (2 * own, PARTITIONS - own)

    monkeypatch.setattr(log_ends, bound, value)
    on_lagging(work)


class TwoBrokers:
    """The placement and the peers of broker 1. Broker 2 leads the partitions with odd numbers, and ends all at 5."""

    node_id = 1

    def __init__(self) -> None:
        self.looked_up = [0]
        """The number of partitions whose leaders were looked up, in each turn."""
        self.asked: list[str] = []
        """The topics that broker 2 was asked for, in order."""

    async def sleep(self, seconds: float) -> None:
        """Ends a turn."""
        self.looked_up.append(0)

    def others(self) -> list[LiveBroker]:
        """See `Placement.others`."""
        return [self.broker(2)]

    def broker(self, broker_id: int) -> LiveBroker:
        """See `Placement.broker`."""
        return LiveBroker(broker_id, "host", 9092)

    def leader(self, topic: Topic, index: int) -> int:
        """See `Placement.leader`."""
        return 1 + index % 2

    def leaders(self, topic: Topic, partitions: int) -> Sequence[int]:
        """See `Placement.leaders`."""
        self.looked_up[-1] += partitions
        return [self.leader(topic, index) for index in range(partitions)]

    @asynccontextmanager
    async def connected(self, peer: LiveBroker) -> AsyncIterator[TwoBrokers]:
        """See `Peers.connected`."""
        yield self

    async def call(self, method: str, name: str) -> list[Any]:
        """Answers as broker 2, which has all partitions open, including those that broker 1 leads."""
        self.asked.append(name)
        return [None, [[index, 0, 5] for index in range(4)]]

    def elsewhere(self, topics: Sequence[Topic]) -> dict[tuple[str, int], int]:
        """One collection of ends."""
        parts = cast("Any", self)
        return trio.run(LogEnds(parts, parts, parts).elsewhere, topics)


def topics(count: int, partitions: int) -> list[Topic]:
    return [Topic(f"topic-{number}", UUID(int=number), partitions, {}) for number in range(count)]


def test_an_end_counts_only_from_the_broker_that_leads_the_partition() -> None:  # invariant 3
    assert TwoBrokers().elsewhere(topics(1, 4)) == {("topic-0", 1): 5, ("topic-0", 3): 5}


def test_each_collection_asks_for_the_same_topics() -> None:  # invariant 2
    brokers = TwoBrokers()
    for _ in range(2):
        brokers.asked.clear()
        brokers.elsewhere([*topics(1, log_ends.PARTITIONS_MAX + 1), *topics(log_ends.TOPICS_MAX + 5, 4)])
        assert brokers.asked == [topic.name for topic in topics(log_ends.TOPICS_MAX, 4)]


def test_no_turn_looks_up_the_leaders_of_more_than_6000_partitions() -> None:
    """Those of 6,000 take some 6 ms on three brokers if none is remembered."""
    brokers = TwoBrokers()
    brokers.elsewhere(topics(40, log_ends.PARTITIONS_MAX - 1))
    assert sum(brokers.looked_up) == 40 * (log_ends.PARTITIONS_MAX - 1)
    assert max(brokers.looked_up) <= 6_000
