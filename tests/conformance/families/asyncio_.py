"""aiokafka, with its event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError, KafkaError, for_code
from aiokafka.structs import OffsetAndMetadata

from families.family import REJOIN, Admin, Consumer, DescribedGroup, Headers, Producer, Record, Start, offsets

ANSWER_SECONDS = 20
HEARTBEAT_MS = 300
T = TypeVar("T")

logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)


class AioKafka:
    name = "aiokafka"
    lacks = frozenset({"cooperative", "delete_group"})

    def __init__(self, bootstrap_servers: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap_servers": bootstrap_servers}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

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
        if codec not in (None, "none"):
            settings["compression_type"] = codec
        if idempotent is not None:
            settings["enable_idempotence"] = idempotent
        if request_bytes_max is not None:
            settings["max_request_size"] = request_bytes_max
        if linger_ms is not None:
            settings["linger_ms"] = linger_ms
        if give_up_seconds is not None:
            settings["request_timeout_ms"] = int(give_up_seconds * 1000)

        async def started() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(**settings)
            await producer.start()
            return producer

        return AioProducer(self, self.run(started()))

    async def _consumer(self, *topics: str, **settings: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(*topics, **self._settings, **settings)
        await consumer.start()
        return consumer

    def reader(self, topic: str, partition: int, start: Start) -> Consumer:
        position = TopicPartition(topic, partition)

        async def placed() -> aiokafka.AIOKafkaConsumer:
            consumer = await self._consumer()
            consumer.assign([position])
            if start == "earliest":
                await consumer.seek_to_beginning(position)
            elif start == "latest":
                await consumer.seek_to_end(position)
            else:
                consumer.seek(position, start)
            return consumer

        return AioConsumer(self, self.run(placed()))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        position = TopicPartition(topic, partition)

        async def asked() -> int | None:
            consumer = await self._consumer()
            try:
                found = (await consumer.offsets_for_times({position: timestamp_ms}))[position]
            finally:
                await consumer.stop()
            return None if found is None else found.offset

        return self.run(asked())

    def member(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        cooperative: bool = False,
        session_ms: int = 6000,
    ) -> Consumer:
        assert not cooperative
        started = self._consumer(
            topic,
            group_id=group,
            group_instance_id=instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        return AioConsumer(self, self.run(started))

    def begin_transactions(self, transactional_id: str) -> None:
        async def begin() -> None:
            producer = aiokafka.AIOKafkaProducer(**self._settings, transactional_id=transactional_id)
            try:
                await producer.start()
            finally:
                await producer.stop()

        self.run(begin(), ANSWER_SECONDS)

    def admin(self) -> Admin:
        async def started() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(**self._settings)
            await admin.start()
            return admin

        return AioAdmin(self, self.run(started()))

    async def assigned(self, group: str, topic: str, partitions: list[int]) -> aiokafka.AIOKafkaConsumer:
        """A consumer that names a group without being a member, and so may commit for the group."""
        consumer = await self._consumer(group_id=group, enable_auto_commit=False)
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        return consumer

    def code(self, error: BaseException) -> int:
        assert isinstance(error, KafkaError), error
        return int(getattr(error, "errno", None) or -1)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AioProducer:
    def __init__(self, family: AioKafka, producer: aiokafka.AIOKafkaProducer) -> None:
        self._family = family
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
        work = self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=list(headers)
        )
        self._sent.append(self._family.run(work))

    def answers(self) -> list[int | BaseException]:
        async def answered(sent: list[Any]) -> list[Any]:
            return await asyncio.gather(*sent, return_exceptions=True)

        sent, self._sent = self._sent, []
        answers = self._family.run(answered(sent))
        return [each if isinstance(each, BaseException) else each.offset for each in answers]

    def flush(self) -> list[int]:
        return offsets(self.answers())

    def close(self) -> None:
        self._family.run(self._producer.stop())


class AioConsumer:
    def __init__(self, family: AioKafka, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self._family = family
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Record]:
        polled = self._family.run(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        return [
            Record(each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
            for records in polled.values()
            for each in records
        ]

    def owned(self) -> frozenset[int]:
        return frozenset(each.partition for each in self._consumer.assignment())

    def commit(self) -> None:
        try:
            self._family.run(self._consumer.commit())
        except CommitFailedError:
            pass
        except KafkaError as error:
            if error.errno not in REJOIN:
                raise

    def close(self) -> None:
        self._family.run(self._consumer.stop())


class AioAdmin:
    def __init__(self, family: AioKafka, admin: AIOKafkaAdminClient) -> None:
        self._family = family
        self._admin = admin

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None:
        topic = NewTopic(name, partitions, -1, {}, topic_configs=dict(configs))  # without assignments it takes no -1
        answer = self._family.run(self._admin.create_topics([topic]))
        _check(answer.topic_errors[0][1])

    def delete_topic(self, name: str) -> None:
        answer = self._family.run(self._admin.delete_topics([name]))
        _check(answer.topic_error_codes[0][1])

    def topics(self) -> list[str]:
        return list(self._family.run(self._admin.list_topics()))

    def partitions(self, topic: str) -> int:
        [found] = self._family.run(self._admin.describe_topics([topic]))
        _check(found["error_code"])
        return len(found["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self._family.run(self._admin.create_partitions({topic: NewPartitions(partitions)}))

    def configs(self, topic: str) -> dict[str, str]:
        [answer] = self._family.run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        [(code, _, _, _, entries)] = answer.resources
        _check(code)
        return {entry[0]: entry[1] for entry in entries}

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        [answer] = self._family.run(self._admin.alter_configs([resource]))
        _check(answer.resources[0][0])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        position = TopicPartition(topic, partition)
        answer = self._family.run(self._admin.delete_records({position: RecordsToDelete(before_offset)}))
        return int(answer[position])

    def groups(self) -> list[str]:
        return [name for name, *_ in self._family.run(self._admin.list_consumer_groups())]

    def describe_group(self, group: str) -> DescribedGroup:
        [answer] = self._family.run(self._admin.describe_consumer_groups([group]))
        [(code, _, state, _, _, members, *_)] = answer.groups
        _check(code)
        return DescribedGroup(state, len(members))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError("aiokafka's admin client has no call for it")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._family.run(self._admin.list_consumer_group_offsets(group))
        return {position.partition: each.offset for position, each in found.items() if position.topic == topic}

    def set_committed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        async def commit() -> None:
            consumer = await self._family.assigned(group, topic, list(offsets))
            try:
                positions = {
                    TopicPartition(topic, partition): OffsetAndMetadata(offset, "")
                    for partition, offset in offsets.items()
                }
                await consumer.commit(positions)
            finally:
                await consumer.stop()

        self._family.run(commit())

    def close(self) -> None:
        self._family.run(self._admin.close())


def _check(code: int) -> None:
    if code:
        raise for_code(code)()
