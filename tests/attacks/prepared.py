"""The topics and groups that the attacks find on the broker."""

from __future__ import annotations

import socket
import struct
import threading

from attack import GZIP_TOPIC, TOPIC, WIDE_PARTITIONS, WIDE_TOPIC
from confluent_kafka.admin import AdminClient, NewTopic
from frames import compact, kafka_frame, read_frame, text

GROUPS = 1_500
CONNECTIONS = 30
"""So many commits are in flight together."""
SECONDS_MAX = 30.0
CANARY_TOPIC = "canary"


def prepare(address: tuple[str, int]) -> None:
    """Creates the topics, and groups with one offset each."""
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*address)})
    topics = [NewTopic(name, 1) for name in (CANARY_TOPIC, TOPIC)]
    topics.append(NewTopic(GZIP_TOPIC, 1, config={"compression.type": "gzip"}))
    topics.append(NewTopic(WIDE_TOPIC, WIDE_PARTITIONS))
    for created in admin.create_topics(topics).values():
        created.result(SECONDS_MAX)
    found = admin.list_consumer_groups()  # creates the topic of offsets
    found.result(SECONDS_MAX)
    threads = [threading.Thread(target=_commit, args=(address, first)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admin.list_consumer_groups().result(SECONDS_MAX).valid) == GROUPS


def _commit(address: tuple[str, int], first: int) -> None:
    with socket.create_connection(address, timeout=SECONDS_MAX) as stream:
        for number in range(first, GROUPS, CONNECTIONS):
            partition = struct.pack(">iqi", 0, 1, -1) + b"\0\0"
            topics = compact(1) + text(TOPIC) + compact(1) + partition + b"\0"
            body = text(f"g{number:05d}") + struct.pack(">i", -1) + text("") + b"\0" + topics + b"\0"
            stream.sendall(kafka_frame(8, 8, body))
            read_frame(stream)
