"""Topics, configs and groups through each library's admin client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gnomon.testing import KafkaBroker

from families.aim import SETTINGS, connected
from families.group import Member, read, settle, wait_until
from families.refusal import refused

if TYPE_CHECKING:
    from families.family import Admin, Family, Producer

UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
OFFSET_OUT_OF_RANGE = 1
NON_EMPTY_GROUP = 68


def create_with_ten_records(family: Family, admin: Admin, topic: str) -> None:
    """Creates a topic of one partition with offsets 0 to 9."""
    admin.create_topic(topic, 1)
    producer = family.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush()
    producer.close()


def test_topics_are_created_described_grown_and_deleted(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 3, {"retention.ms": "60000"})
    assert topic in admin.topics()
    assert admin.partitions(topic) == 3
    assert refused(family, admin.create_topic, topic, 3) == TOPIC_ALREADY_EXISTS
    admin.grow(topic, 5)
    assert admin.partitions(topic) == 5
    assert refused(family, admin.grow, topic, 2) == INVALID_PARTITIONS
    admin.delete_topic(topic)
    assert topic not in admin.topics()
    assert refused(family, admin.delete_topic, topic) == UNKNOWN_TOPIC_OR_PARTITION


def test_topic_configs_are_described_and_altered(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1, {"retention.ms": "60000"})
    configs = admin.configs(topic)
    assert configs["retention.ms"] == "60000"
    assert configs["cleanup.policy"] == "delete"
    admin.set_config(topic, "retention.ms", "120000")
    # In a cluster, as in Kafka's, another broker than the one that changed the config may answer, a moment late.
    wait_until(lambda: admin.configs(topic)["retention.ms"] == "120000", "the new value is described")
    assert refused(family, admin.set_config, topic, "retention.ms", "soon") == INVALID_CONFIG
    wait_until(lambda: admin.configs(topic)["retention.ms"] == "120000", "the new value is kept")


def test_records_are_deleted_up_to_an_offset(family: Family, admin: Admin, topic: str) -> None:
    create_with_ten_records(family, admin, topic)
    assert admin.delete_records(topic, 0, 4) == 4
    reader = family.reader(topic, 0, "earliest")
    assert read(reader, 6)[0].offset == 4
    reader.close()
    assert refused(family, admin.delete_records, topic, 0, 11) == OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_reset_and_deleted(family: Family, admin: Admin, topic: str) -> None:
    create_with_ten_records(family, admin, topic)
    member = Member(lambda: family.member(topic, topic))
    settle([member], 1)
    wait_until(lambda: admin.committed(topic, topic) == {0: 10}, "the member commits")
    assert topic in admin.groups()
    described = admin.describe_group(topic)
    assert (described.state, described.members) == ("Stable", 1)
    if "delete_group" not in family.lacks:
        assert refused(family, admin.delete_group, topic) == NON_EMPTY_GROUP
    member.close()
    described = admin.describe_group(topic)
    assert (described.state, described.members) == ("Empty", 0)
    admin.set_committed(topic, topic, {0: 7})
    assert admin.committed(topic, topic) == {0: 7}
    again = family.member(topic, topic)
    assert read(again, 3)[0].offset == 7
    again.close()
    if "delete_group" not in family.lacks:
        admin.delete_group(topic)
        assert topic not in admin.groups()
        assert admin.committed(topic, topic) in ({}, {0: -1})


def test_a_write_creates_a_missing_topic(family: Family, admin: Admin, topic: str) -> None:
    producer = family.producer()
    producer.send(topic, b"first")
    assert producer.flush() == [0]
    producer.close()
    assert admin.partitions(topic) == SETTINGS["num.partitions"]


def test_an_unknown_topic_is_an_error_if_writes_create_no_topics(family_name: str) -> None:
    with KafkaBroker(settings={"auto.create.topics.enable": False}) as broker:
        family = connected(family_name, broker)
        admin = family.admin()
        assert refused(family, admin.partitions, "unknown") == UNKNOWN_TOPIC_OR_PARTITION
        producer = family.producer(give_up_seconds=2)
        assert refused(family, produce_one, producer, "unknown") != 0
        producer.close()
        assert admin.topics() == []
        admin.close()
        family.close()


def produce_one(producer: Producer, topic: str) -> None:
    producer.send(topic, b"value")
    producer.flush()


def test_transactions_are_refused_with_an_error(family: Family, topic: str) -> None:
    assert refused(family, family.begin_transactions, topic) != 0


def test_the_brokers_log_has_the_reason_why_transactions_are_refused(family_name: str) -> None:
    with KafkaBroker() as broker:
        family = connected(family_name, broker)
        assert refused(family, family.begin_transactions, "tx") != 0
        family.close()
        lines = [json.loads(line) for line in broker.log().splitlines()]
    reasons = [line["reason"] for line in lines if line["event"] == "not_built"]
    assert reasons == ["transactions are not built yet: unset transactional.id"]
