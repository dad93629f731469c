"""Clients of a cluster with more copies than brokers: some ids of replicas are those of no broker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaProducer
from programs import run

from gnomon.testing.storms.processes.cluster_processes import ClusterProcesses
from gnomon.testing.storms.processes.ledger_processes import wait_until

SECONDS = 20
REPLICAS = [1, 2, 3]
SETTINGS = {"bookie_service.lease_seconds": 1, "broker_service.lease_seconds": 1, "bookie.durability": "none"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Two brokers and three bookies, with the topic `t` of three copies."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(directory, None, bookies=3, brokers=2, disk_bytes=0, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(SECONDS)
        with pytest.raises(KafkaException, match="3 bookies keep the copies"):
            admin.create_topics([NewTopic("u", 2, 4)])["u"].result(SECONDS)
        yield cluster


def test_librdkafka_describes_and_uses_a_topic_with_ids_of_no_broker(cluster: ClusterProcesses) -> None:
    at = {"bootstrap.servers": cluster.bootstrap_servers}
    admin = AdminClient(at)
    described = admin.describe_topics(TopicCollection(["t"]))["t"].result(SECONDS)
    for partition in described.partitions:
        assert sorted(node.id for node in partition.replicas) == sorted(node.id for node in partition.isr) == REPLICAS
        assert partition.leader.id == partition.replicas[0].id
    producer = Producer(at)
    for partition_id in (0, 1):
        producer.produce("t", b"v", partition=partition_id)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**at, "group.id": "g", "auto.offset.reset": "smallest"})
    consumer.subscribe(["t"])
    assert [(consumer.poll(SECONDS) or pytest.fail("no record")).error() for _ in range(2)] == [None, None]
    consumer.close()


def test_kafka_python_describes_and_uses_a_topic_with_ids_of_no_broker(cluster: ClusterProcesses) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    (topic,) = admin.describe_topics(["t"])
    assert {tuple(sorted(part["replica_nodes"])) for part in topic["partitions"]} == {tuple(REPLICAS)}
    admin.close()
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    assert producer.send("t", b"v").get(SECONDS).topic == "t"
    producer.close()


def test_aiokafka_describes_and_uses_a_topic_with_ids_of_no_broker(cluster: ClusterProcesses) -> None:
    async def use() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await admin.start()
        (topic,) = await admin.describe_topics(["t"])
        assert {tuple(sorted(part["isr"])) for part in topic["partitions"]} == {tuple(REPLICAS)}
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        assert (await producer.send_and_wait("t", b"v")).topic == "t"
        await producer.stop()

    asyncio.run(use())


def under_replicated(admin: AdminClient) -> set[int]:
    """The partitions that kminion, Kafka's exporters and kafka-topics.sh count as under-replicated."""
    partitions = admin.list_topics("t", timeout=SECONDS).topics["t"].partitions
    return {number for number, found in partitions.items() if len(found.isrs) < len(found.replicas)}


def test_partitions_are_under_replicated_while_a_bookie_with_their_copies_is_away(cluster: ClusterProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("t", b"v", partition=0)  # the other partition may have no ledger yet
    assert producer.flush(SECONDS) == 0
    assert under_replicated(admin) == set()
    bookie = cluster.nodes["bookie-2"]
    bookie.signal(signal.SIGSTOP)
    wait_until(lambda: 0 in under_replicated(admin), "the partition lacks a copy", SECONDS)
    bookie.signal(signal.SIGCONT)
    wait_until(lambda: not under_replicated(admin), "all copies are there", SECONDS)


def test_kafkas_console_tool_shows_the_copies(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--all-clients"):
        pytest.skip("NOT TESTED: Kafka's console tools are tested by `make conformance`")
    java: list[str] = request.getfixturevalue("java")
    topics = [*java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap_servers]
    run([*topics, "--create", "--topic", "console", "--replication-factor", "3"])
    described = run([*topics, "--describe", "--topic", "console"])
    assert "ReplicationFactor: 3" in described
    assert run([*topics, "--describe", "--under-replicated-partitions"]).strip() == ""
