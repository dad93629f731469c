"""A data directory with records, copies of it with one flipped bit, and what a broker makes of each copy."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lmdb
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gnomon.testing import KafkaBroker
from gnomon.testing.kafka_broker import BrokerNotStarted

TOPICS = ("orders", "payments")
RECORDS = 40
GROUP = "readers"
COMMITTED = 7
ANSWER_SECONDS = 3.0
STORES = ("metadata", "bookie")


def value_of(topic: str, number: int) -> bytes:
    """The record of a topic at an offset; some are longer than a page."""
    return f"{topic} {number} ".encode() * (1 + number % 7 * 60)


def fill(directory: Path) -> None:
    """Writes RECORDS records to each topic, and commits an offset of GROUP."""
    with KafkaBroker(data_dir=directory) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            created.result(ANSWER_SECONDS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for number in range(RECORDS):
            for topic in TOPICS:
                producer.produce(topic, value_of(topic, number), partition=0)
            assert producer.flush(ANSWER_SECONDS) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPICS[0], 0, COMMITTED)], asynchronous=False)
        consumer.close()


@dataclass(frozen=True)
class Place:
    """A bit of a store's file."""

    store: str
    bit: int

    def flip(self, directory: Path) -> None:
        """Flips it in the store below a data directory."""
        with open(directory / self.store / "data.mdb", "r+b") as file:
            file.seek(self.bit // 8)
            (byte,) = file.read(1)
            file.seek(self.bit // 8)
            file.write(bytes([byte ^ 1 << self.bit % 8]))


def draw(stream: random.Random, sizes: Mapping[str, int]) -> Place:
    """A bit anywhere in either store; every second one in the first bytes of a page, which say what it holds."""
    store = stream.choice(STORES)
    byte = stream.randrange(sizes[store])
    if stream.random() < 0.5:
        byte = byte // 4096 * 4096 + stream.randrange(64)
    return Place(store, 8 * byte + stream.randrange(8))


@dataclass
class Outcome:
    """What became of a damaged copy.

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


@contextmanager
def damaged(sound: Path, place: Place, at: Path) -> Iterator[Path]:
    """A copy of a data directory with one flipped bit."""
    copy = at / f"{place.store}-{place.bit}"
    shutil.copytree(sound, copy)
    try:
        place.flip(copy)
        yield copy
    finally:
        shutil.rmtree(copy)


def judge(directory: Path) -> Outcome:
    """Starts a broker on a damaged directory, and reads and writes through it."""
    outcome = Outcome()
    broker = KafkaBroker(data_dir=directory)
    try:
        broker.start()
    except BrokerNotStarted as error:
        outcome.kind = "refused"
        words = str(error).splitlines()[-1]
        outcome.words.append(words)
        _check_log(str(error), outcome)
        if not words.startswith("Error: "):
            outcome.faults.append(f"ended without a word: {error}")
        broker.close()
        return outcome
    try:
        for topic in TOPICS:
            _read(broker, topic, outcome)
            _append(broker, topic, outcome)
        _ask_offset(broker, outcome)
        if not broker.running:
            outcome.kind = "refused"
            outcome.words.append(broker.log().splitlines()[-1])
        _check_log(broker.log(), outcome)
        if outcome.kind == "partly" and not broker.log().strip():
            outcome.faults.append(f"{outcome.words}, and the log has no line about it")
    finally:
        broker.close()
    return outcome


def _check_log(log: str, outcome: Outcome) -> None:
    if "Traceback" in log:
        outcome.faults.append("a traceback: " + log[log.index("Traceback") :][-600:])
    if "was silent for too long" in log:
        outcome.faults.append(f"the start hung: {log[-300:]!r}")


def _read(broker: KafkaBroker, topic: str, outcome: Outcome) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
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
        _consume(consumer, topic, outcome)
    except KafkaException as error:
        outcome.unserved(f"{topic}: {error}")
    finally:
        consumer.close()


def _consume(consumer: Consumer, topic: str, outcome: Outcome) -> None:
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
            if number < RECORDS:
                outcome.faults.append(f"{topic} ends after {number} of {RECORDS} records, without an error")
            return
        else:
            outcome.unserved(f"{topic} at {number}: {error}")
            return
    outcome.unserved(f"{topic} at {number}: no answer in {ANSWER_SECONDS} s")


def _append(broker: KafkaBroker, topic: str, outcome: Outcome) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": ANSWER_SECONDS * 1000})
    places: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            places.append(message.offset() or 0)
        else:
            outcome.unserved(f"produce to {topic}: {error}")

    producer.produce(topic, b"later", partition=0, on_delivery=delivered)
    producer.flush(2 * ANSWER_SECONDS)
    if places and places != [RECORDS]:
        outcome.faults.append(f"a record was appended to {topic} at {places[0]} instead of {RECORDS}")


def _ask_offset(broker: KafkaBroker, outcome: Outcome) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
    try:
        (found,) = consumer.committed([TopicPartition(TOPICS[0], 0)], timeout=ANSWER_SECONDS)
        if found.error is None and found.offset != COMMITTED:
            outcome.faults.append(f"the committed offset is {found.offset} instead of {COMMITTED}")
    except KafkaException as error:
        outcome.unserved(f"the offset of {GROUP}: {error}")
    finally:
        consumer.close()


def used_bytes(directory: Path) -> dict[str, int]:
    """The sizes of the stores' files, without the room that is allocated ahead of them."""
    found = {}
    for store in STORES:
        with lmdb.open(str(directory / store), readonly=True, lock=False) as environment:
            found[store] = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    return found
