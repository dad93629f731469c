"""The topics and groups that the attacks find on the broker."""

from __future__ import annotations

import base64
import socket
import struct
import threading

from attack import (
    CONDITIONAL_PARTITIONS,
    CONDITIONAL_TOPIC,
    DISK_TABLE_TOPIC,
    GZIP_PARTITIONS,
    GZIP_TOPIC,
    HEALTHY_GZIP_TOPIC,
    TABLE_IDS,
    TABLE_KEYS,
    TABLE_TOPIC,
    TIMED_MS,
    TIMED_RECORDS,
    TIMED_TOPIC,
    TOPIC,
    WATCHED_TOPIC,
    WIDE_PARTITIONS,
    WIDE_TOPIC,
)
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from frames import compact, kafka_frame, produce_body, read_frame, text

from gnomon.cli.kafka.topic_description import topic_id
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import Record, build_batch

GROUPS = 1_500
CONNECTIONS = 30
"""Commits in flight together."""
SECONDS_MAX = 30.0
CANARY_TOPIC = "canary"


def prepare(address: tuple[str, int]) -> None:
    """Creates the topics, a batch of many records, and groups with one offset each."""
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*address)})
    topics = [NewTopic(name, 1) for name in (CANARY_TOPIC, TOPIC, TIMED_TOPIC)]
    topics.append(NewTopic(GZIP_TOPIC, GZIP_PARTITIONS, config={"compression.type": "gzip"}))
    topics.append(NewTopic(HEALTHY_GZIP_TOPIC, 1, config={"compression.type": "gzip"}))
    topics.append(NewTopic(WIDE_TOPIC, WIDE_PARTITIONS))
    conditional = {"gnomon.conditional.write": "true"}
    topics.append(NewTopic(CONDITIONAL_TOPIC, CONDITIONAL_PARTITIONS, config=conditional))
    table = {"gnomon.view": "kv", "gnomon.view.engine": "memory"}
    topics += [NewTopic(name, 1, config=table) for name in (TABLE_TOPIC, WATCHED_TOPIC)]
    topics.append(NewTopic(DISK_TABLE_TOPIC, 1, config={"gnomon.view": "kv"}))
    for created in admin.create_topics(topics).values():
        created.result(SECONDS_MAX)
    _produce_timed(address)
    _fill_table(admin, address)
    found = admin.list_consumer_groups()  # creates the topic of offsets
    found.result(SECONDS_MAX)
    threads = [threading.Thread(target=_commit, args=(address, first)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admin.list_consumer_groups().result(SECONDS_MAX).valid) == GROUPS


def _produce_timed(address: tuple[str, int]) -> None:
    last = TIMED_RECORDS - 1
    records = [
        Record(offset_delta=number, timestamp_delta=TIMED_MS if number == last else 0, value=bytes(120))
        for number in range(TIMED_RECORDS)
    ]
    batch = build_batch(records, base_timestamp=0, compression=Codec.ZSTD)
    with socket.create_connection(address, timeout=SECONDS_MAX) as stream:
        stream.sendall(kafka_frame(0, 9, produce_body({TIMED_TOPIC: [batch]})))
        read_frame(stream)


def _fill_table(admin: AdminClient, address: tuple[str, int]) -> None:
    for name, found in admin.describe_topics(TopicCollection([TABLE_TOPIC, WATCHED_TOPIC])).items():
        TABLE_IDS[name] = base64.urlsafe_b64decode(topic_id(found.result(SECONDS_MAX)) + "==").hex()
    for first in range(0, TABLE_KEYS, 5_000):
        records = [Record(delta, 0, b"key %05d" % (first + delta), b"v" * 60) for delta in range(5_000)]
        with socket.create_connection(address, timeout=SECONDS_MAX) as stream:
            stream.sendall(kafka_frame(0, 9, produce_body({TABLE_TOPIC: [build_batch(records, base_timestamp=1)]})))
            read_frame(stream)


def _commit(address: tuple[str, int], first: int) -> None:
    with socket.create_connection(address, timeout=SECONDS_MAX) as stream:
        for number in range(first, GROUPS, CONNECTIONS):
            partition = struct.pack(">iqi", 0, 1, -1) + b"\0\0"
            topics = compact(1) + text(TOPIC) + compact(1) + partition + b"\0"
            body = text(f"g{number:05d}") + struct.pack(">i", -1) + text("") + b"\0" + topics + b"\0"
            stream.sendall(kafka_frame(8, 8, body))
            read_frame(stream)
