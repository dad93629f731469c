"""confluent-kafka: librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from families.family import (
    REJOIN,
    Admin,
    Consumer,
    DescribedGroup,
    Headers,
    Producer,
    Record,
    Start,
    first_error,
    offsets,
)

ANSWER_SECONDS = 20
HEARTBEAT_MS = 300

QUIET = logging.getLogger("conformance.librdkafka")
"""A silent logger: librdkafka reports lost brokers to standard error, and some tests kill brokers on purpose."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class ConfluentKafka:
    name = "confluent-kafka"
    lacks: frozenset[str] = frozenset()

    def __init__(self, bootstrap_servers: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "error_cb": lambda error: None,
            "reconnect.backoff.max.ms": 500,
        }

    def codecs(self) -> set[str]:
        return {"none", "gzip", "snappy", "lz4", "zstd"}

    def producer(
        self,
        *,
        codec: str | None = None,
        idempotent: bool | None = None,
        request_bytes_max: int | None = None,
        give_up_seconds: float | None = None,
        linger_ms: int | None = None,
        kafka_partitioner: bool = False,
    ) -> Producer:
        settings = dict(self._settings)
        if codec is not None:
            settings["compression.type"] = codec
        if idempotent is not None:
            settings["enable.idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["message.max.bytes"] = request_bytes_max
        if linger_ms is not None:
            settings["linger.ms"] = linger_ms
        if kafka_partitioner:
            settings["partitioner"] = "murmur2_random"
        if give_up_seconds is not None:
            settings["message.timeout.ms"] = int(give_up_seconds * 1000)
            settings["topic.metadata.propagation.max.ms"] = int(give_up_seconds * 500)
        return ConfluentProducer(confluent_kafka.Producer(settings, logger=QUIET))

    def reader(self, topic: str, partition: int, start: Start) -> Consumer:
        consumer = self._consumer({"group.id": "unused", "enable.auto.commit": False})
        named: dict[Start, Start] = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
        offset = named.get(start, start)
        consumer.assign([TopicPartition(topic, partition, offset)])
        return ConfluentConsumer(consumer)

    def _consumer(self, settings: Mapping[str, Any]) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer({**self._settings, **settings}, logger=QUIET)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer({"group.id": "unused"})
        try:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], ANSWER_SECONDS)
        finally:
            consumer.close()
        return None if found.offset < 0 else found.offset

    def member(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        cooperative: bool = False,
        session_ms: int = 6000,
    ) -> Consumer:
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        if cooperative:
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        consumer = self._consumer(settings)
        consumer.subscribe([topic])
        return ConfluentConsumer(consumer)

    def begin_transactions(self, transactional_id: str) -> None:
        settings = {**self._settings, "transactional.id": transactional_id}
        confluent_kafka.Producer(settings, logger=QUIET).init_transactions(ANSWER_SECONDS)

    def admin(self) -> Admin:
        return ConfluentAdmin(AdminClient(self._settings, logger=QUIET), self)

    def code(self, error: BaseException) -> int:
        assert isinstance(error, KafkaException), error
        code: int = error.args[0].code()
        return code

    def close(self) -> None:
        pass


class ConfluentProducer:
    def __init__(self, producer: confluent_kafka.Producer) -> None:
        self._producer = producer
        self._sent = 0
        self._answers: dict[int, int | BaseException] = {}
        """By the number of the record, in the order of the answers."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        given = {"partition": partition, "timestamp": timestamp_ms}
        self._producer.produce(
            topic,
            value,
            key,
            headers=list(headers),
            on_delivery=partial(self._delivered, self._sent),
            **{name: number for name, number in given.items() if number is not None},
        )
        self._sent += 1
        self._producer.poll(0)

    def _delivered(self, number: int, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        self._answers[number] = message.offset() if error is None else KafkaException(error)

    def answers(self) -> list[int | BaseException]:
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were not answered"
        answers, self._answers = self._answers, {}
        return [answers[number] for number in sorted(answers)]

    def flush(self) -> list[int]:
        return offsets(self.answers())

    def close(self) -> None:
        self._producer.flush(ANSWER_SECONDS)


class ConfluentConsumer:
    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Record]:
        records = []
        for message in self._consumer.consume(1000, seconds):
            if (error := message.error()) is not None:
                if error.code() < 0 or error.retriable():
                    continue
                raise KafkaException(error)
            records.append(
                Record(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
        return records

    def owned(self) -> frozenset[int]:
        return frozenset(each.partition for each in self._consumer.assignment())

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in {*REJOIN, KafkaError._NO_OFFSET}:
                raise

    def close(self) -> None:
        self._consumer.close()


class ConfluentAdmin:
    def __init__(self, admin: AdminClient, family: ConfluentKafka) -> None:
        self._admin = admin
        self._family = family

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None:
        topic = NewTopic(name, partitions, -1, config=dict(configs))
        self._admin.create_topics([topic])[name].result(ANSWER_SECONDS)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(ANSWER_SECONDS)

    def topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=ANSWER_SECONDS).topics)

    def partitions(self, topic: str) -> int:
        topics = confluent_kafka.TopicCollection([topic])
        return len(self._admin.describe_topics(topics)[topic].result(ANSWER_SECONDS).partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(ANSWER_SECONDS)

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(ANSWER_SECONDS)
        return {name: entry.value for name, entry in entries.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = TopicPartition(topic, partition, before_offset)
        return int(self._admin.delete_records([asked])[asked].result(ANSWER_SECONDS).low_watermark)

    def groups(self) -> list[str]:
        return [each.group_id for each in self._admin.list_consumer_groups().result(ANSWER_SECONDS).valid]

    def describe_group(self, group: str) -> DescribedGroup:
        found = self._admin.describe_consumer_groups([group])[group].result(ANSWER_SECONDS)
        return DescribedGroup(found.state.name.title(), len(found.members))

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(ANSWER_SECONDS)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([asked])[group].result(ANSWER_SECONDS)
        return {each.partition: each.offset for each in found.topic_partitions if each.topic == topic}

    def set_committed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, positions)
        answer = self._admin.alter_consumer_group_offsets([asked])[group].result(ANSWER_SECONDS)
        first_error([KafkaException(each.error) for each in answer.topic_partitions if each.error is not None])

    def close(self) -> None:
        pass
