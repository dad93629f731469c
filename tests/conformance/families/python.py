"""kafka-python."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import kafka
import kafka.errors
from kafka import TopicPartition
from kafka import codec as codecs
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import CommitFailedError, KafkaError, for_code
from kafka.structs import OffsetAndMetadata

from families.family import REJOIN, Admin, Consumer, DescribedGroup, Headers, Producer, Record, Start, offsets

ANSWER_SECONDS = 20
HEARTBEAT_MS = 300
MEMBER_POLL_SECONDS_MIN = 1.0
"""A poll that times out during a join may forget the join (one in forty with 0.1 s); the member then waits for ever
without partitions."""

logging.getLogger("kafka").setLevel(logging.CRITICAL)


class KafkaPython:
    name = "kafka-python"
    lacks = frozenset({"null_header"})

    def __init__(self, bootstrap_servers: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap_servers,
            "reconnect_backoff_max_ms": 500,
        }

    def codecs(self) -> set[str]:
        present = {"none": True, "gzip": codecs.has_gzip(), "snappy": codecs.has_snappy()}
        present |= {"lz4": codecs.has_lz4(), "zstd": codecs.has_zstd()}
        return {name for name, is_present in present.items() if is_present}

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
        if codec not in (None, "none"):
            settings["compression_type"] = codec
        if idempotent is not None:
            settings["enable_idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["max_request_size"] = request_bytes_max
        if linger_ms is not None:
            settings["linger_ms"] = linger_ms
        if give_up_seconds is not None:
            settings["max_block_ms"] = int(give_up_seconds * 1000)
        return PythonProducer(kafka.KafkaProducer(**settings))

    def reader(self, topic: str, partition: int, start: Start) -> Consumer:
        consumer = kafka.KafkaConsumer(**self._settings)
        position = TopicPartition(topic, partition)
        consumer.assign([position])
        if start == "earliest":
            consumer.seek_to_beginning(position)
        elif start == "latest":
            consumer.seek_to_end(position)
        else:
            consumer.seek(position, start)
        return PythonConsumer(consumer)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        position = TopicPartition(topic, partition)
        consumer = kafka.KafkaConsumer(**self._settings)
        try:
            found = consumer.offsets_for_times({position: timestamp_ms})[position]
        finally:
            consumer.close()
        return None if found is None else found.offset

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
            **self._settings,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        if instance is not None:
            settings["group_instance_id"] = instance
        if cooperative:
            settings["partition_assignment_strategy"] = (CooperativeStickyAssignor,)
        return PythonConsumer(kafka.KafkaConsumer(topic, **settings), MEMBER_POLL_SECONDS_MIN)

    def begin_transactions(self, transactional_id: str) -> None:
        settings = {**self._settings, "max_block_ms": ANSWER_SECONDS * 1000}
        producer = kafka.KafkaProducer(transactional_id=transactional_id, **settings)
        try:
            producer.init_transactions()
        finally:
            producer.close(timeout=0)

    def admin(self) -> Admin:
        return PythonAdmin(kafka.KafkaAdminClient(**self._settings))

    def code(self, error: BaseException) -> int:
        assert isinstance(error, KafkaError), error
        return int(getattr(error, "errno", None) or -1)

    def close(self) -> None:
        pass


class PythonProducer:
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self._producer = producer
        self._sent: list[Any] = []

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
        sent = self._producer.send(
            topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
        )
        self._sent.append(sent)

    def answers(self) -> list[int | BaseException]:
        self._producer.flush(timeout=60)
        sent, self._sent = self._sent, []
        return [each.exception if each.failed() else each.value.offset for each in sent]

    def flush(self) -> list[int]:
        return offsets(self.answers())

    def close(self) -> None:
        self._producer.close(timeout=ANSWER_SECONDS)


class PythonConsumer:
    def __init__(self, consumer: kafka.KafkaConsumer, poll_seconds_min: float = 0) -> None:
        self._consumer = consumer
        self._poll_seconds_min = poll_seconds_min

    def poll(self, seconds: float) -> list[Record]:
        polled = self._consumer.poll(timeout_ms=int(max(seconds, self._poll_seconds_min) * 1000))
        return [
            Record(each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
            for records in polled.values()
            for each in records
        ]

    def owned(self) -> frozenset[int]:
        return frozenset(each.partition for each in self._consumer.assignment())

    def commit(self) -> None:
        try:
            self._consumer.commit()
        except CommitFailedError:
            pass
        except KafkaError as error:
            if error.errno not in REJOIN:
                raise

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class PythonAdmin:
    def __init__(self, admin: kafka.KafkaAdminClient) -> None:
        self._admin = admin

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None:
        self._admin.create_topics({name: {"num_partitions": partitions, "configs": dict(configs)}})

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])

    def topics(self) -> list[str]:
        return list(self._admin.list_topics())

    def partitions(self, topic: str) -> int:
        [found] = self._admin.describe_topics([topic])
        _check(found["error_code"])
        return len(found["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: partitions})

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        answer = self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
        _check_text(answer["topic"][topic])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        position = TopicPartition(topic, partition)
        answer = self._admin.delete_records({position: before_offset})[position]
        return int(answer["low_watermark"])

    def groups(self) -> list[str]:
        return [each["group_id"] for each in self._admin.list_groups()]

    def describe_group(self, group: str) -> DescribedGroup:
        found = self._admin.describe_groups([group])[group]
        return DescribedGroup(found["group_state"], len(found["members"]))

    def delete_group(self, group: str) -> None:
        _check_text(self._admin.delete_groups([group])[group])

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._admin.list_group_offsets({group: None})[group]
        return {position.partition: each.offset for position, each in found.items() if position.topic == topic}

    def set_committed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        positions = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()
        }
        for error in self._admin.alter_group_offsets(group, positions).values():
            _check(error.errno)

    def close(self) -> None:
        self._admin.close()


def _check(code: int) -> None:
    if code:
        raise for_code(code)()


def _check_text(result: str) -> None:
    """Raises the error of a call that returns only its name and text: `[Error 40] InvalidConfigurationError: ...`."""
    if result != "OK":
        name = re.search(r"\w+Error", result)
        assert name is not None, result
        raise getattr(kafka.errors, name[0])(result)
