"""The cluster for tests: members are killed, paused and started again, one by one."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import gnomon
from gnomon.testing import KafkaCluster


def produce(cluster: KafkaCluster, value: bytes) -> None:
    """Produces one record, within the time that a takeover needs."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", value)
    assert producer.flush(30) == 0


def read(cluster: KafkaCluster, count: int) -> list[bytes | None]:
    """The first values of the topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    found = [message.value() for message in consumer.consume(count, 30)]
    consumer.close()
    return found


def test_a_cluster_survives_its_members_one_by_one_and_a_stop_of_all() -> None:
    with KafkaCluster(brokers=2, bookies=3) as cluster:
        assert len(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers) == 2
        produce(cluster, b"0")
        addresses = cluster.bootstrap_servers
        cluster.brokers[0].kill()
        produce(cluster, b"1")  # the other broker takes over
        cluster.start()
        cluster.bookies[0].pause()
        produce(cluster, b"2")  # on two of three bookies
        cluster.bookies[0].resume()
        for broker in cluster.brokers:
            broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
        produce(cluster, b"3")
        assert sum(broker.faults_left for broker in cluster.brokers) == 1
        with gnomon.connect_ledgers_blocking(cluster.metadata_address) as ledgers:
            assert ledgers.list()
        cluster.stop()
        assert not any(member.running for member in cluster.members)
        cluster.start()
        assert cluster.bootstrap_servers == addresses
        assert read(cluster, 4) == [b"0", b"1", b"2", b"3"]
    assert not any(member.running for member in cluster.members)


def test_the_plugin_provides_clusters(kafka_cluster_factory: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster_factory(brokers=1, bookies=1, settings={"num.partitions": 3})
    produce(cluster, b"0")
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    assert len(found.topics["orders"].partitions) == 3


def test_a_cluster_has_a_broker_and_a_bookie_at_least() -> None:
    with pytest.raises(ValueError, match="at least one broker and one bookie, not 0 and 3"):
        KafkaCluster(brokers=0)
