"""Records that are written before the damage, and what clients of a broker on the damaged copy get."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ("orders", "payments")
GROUP = "readers"
ANSWER_SECONDS = 5.0
NO_OFFSET = -1001
"""The committed offset of a group that has none."""


@dataclass(frozen=True)
class Written:
    """The state of a data directory.

    Attributes:
        records: in each topic.
        committed: the offset of GROUP in the first topic.
    """

    records: int
    committed: int


FIRST = Written(20, 3)
"""When the older copy is made."""
ALL = Written(40, 7)


@dataclass
class Outcome:
    """The outcome for a damaged copy.

    Attributes:
        kind: `correct`: nothing is missing; `refused`: the node does not start; `partly`: something is not served.
        words: the refusal, or the errors.
        faults: what must never happen.
    """

    kind: str = "correct"
    words: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def unserved(self, words: str) -> None:
        """Something is not served, and the client is told so."""
        self.kind = "partly"
        self.words.append(words)

    def check_log(self, log: str) -> None:
        """Checks that the log has no traceback."""
        if "Traceback" in log:
            self.faults.append("a traceback: " + log[log.index("Traceback") :][-600:])
        if "was silent for too long" in log:
            self.faults.append(f"the start hung: {log[-300:]!r}")


def value_of(topic: str, number: int) -> bytes:
    """The record of a topic at an offset; some are longer than a page."""
    return f"{topic} {number} ".encode() * (1 + number % 7 * 60)


def fill(servers: str, before: int, after: Written) -> None:
    """Writes records to each topic up to `after`, the first time to new topics, and commits the offset."""
    if not before:
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            created.result(ANSWER_SECONDS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number in range(before, after.records):
        for topic in TOPICS:
            producer.produce(topic, value_of(topic, number), partition=0)
        assert producer.flush(10 * ANSWER_SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPICS[0], 0, after.committed)], asynchronous=False)
    consumer.close()


def judge_records(servers: str, written: Written, outcome: Outcome) -> None:
    """Reads every record, appends one to each topic, and asks for the committed offset."""
    for topic in TOPICS:
        _read(servers, topic, written, outcome)
        _append(servers, topic, written, outcome)
    _ask_offset(servers, written, outcome)


def _read(servers: str, topic: str, written: Written, outcome: Outcome) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        known = consumer.list_topics(timeout=ANSWER_SECONDS).topics
        if topic not in known:
            outcome.faults.append(f"topic {topic} is gone")
            return
        consumer.assign([TopicPartition(topic, 0, 0)])
        _consume(consumer, topic, written, outcome)
    except KafkaException as error:
        outcome.unserved(f"{topic}: {error}")
    finally:
        consumer.close()


def _consume(consumer: Consumer, topic: str, written: Written, outcome: Outcome) -> None:
    number, until = 0, time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        message: Message | None = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            if message.offset() != number or message.value() != value_of(topic, number):
                outcome.faults.append(f"{topic} at {message.offset()}: another record than was written at {number}")
                return
            number += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            if number != written.records:
                outcome.faults.append(f"{topic} ends after {number} of {written.records} records, without an error")
            return
        else:
            outcome.unserved(f"{topic} at {number}: {error}")
            return
    outcome.unserved(f"{topic} at {number}: no answer in {ANSWER_SECONDS} s")


def _append(servers: str, topic: str, written: Written, outcome: Outcome) -> None:
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": ANSWER_SECONDS * 1000})
    places: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            places.append(message.offset() or 0)
        else:
            outcome.unserved(f"produce to {topic}: {error}")

    producer.produce(topic, b"later", partition=0, on_delivery=delivered)
    producer.flush(2 * ANSWER_SECONDS)
    if places and places != [written.records]:
        outcome.faults.append(f"a record was appended to {topic} at {places[0]} instead of {written.records}")


def _ask_offset(servers: str, written: Written, outcome: Outcome) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        (found,) = consumer.committed([TopicPartition(TOPICS[0], 0)], timeout=ANSWER_SECONDS)
        if found.error is None and found.offset != written.committed:
            outcome.faults.append(f"the committed offset is {found.offset} instead of {written.committed}")
    except KafkaException as error:
        outcome.unserved(f"the offset of {GROUP}: {error}")
    finally:
        consumer.close()


def last_line(log: str) -> str:
    """The last line of a process's output, which says why it ended."""
    lines = log.strip().splitlines()
    return lines[-1] if lines else ""


def file_of(folder: Path) -> Path:
    """The file of a store."""
    return folder / "data.mdb"
