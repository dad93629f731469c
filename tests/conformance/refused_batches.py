"""A refused batch, as a client sees it: the requests that it cost, the error, and what comes after it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from gnomon.testing import KafkaBroker

from families.program import JAVA

if TYPE_CHECKING:
    from cluster_broker import ClusterBroker

    from families.family import Producer
    from families.program import CommandedProducer

SHOWS_THE_MESSAGE = {"kafka-python", JAVA}
ENDS = {("kafka-python", True), ("aiokafka", True)}
"""Library and idempotence: a producer that takes nothing more after a refusal."""
INVALID_RECORD = 87
CODES = {"aiokafka": -1}
"""aiokafka has no name for INVALID_RECORD."""
SECONDS = 20
PRODUCED = re.compile(r'^gnomon_requests_total\{api="produce"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The outcome of a refused batch at a producer.

    Args:
        errors: the error of each record, as the client shows it.
        next_write: the offset of the next record that the same producer sends, or its error.
    """

    errors: Sequence[str]
    next_write: int | str

    def shows(self, message: str) -> bool:
        """Whether the client shows the broker's message with every record."""
        return all(message in error for error in self.errors)

    @property
    def goes_on(self) -> bool:
        """Whether the producer can be used further."""
        return isinstance(self.next_write, int)


REFUSALS: pytest.StashKey[list[tuple[str, str, Refusal]]] = pytest.StashKey()
"""Client and reason, idempotence and refusal, for the table at the end of the run."""


def note_refusal(config: pytest.Config, client: str, idempotent: bool, refusal: Refusal) -> None:
    """Adds a row to the table that ends the run."""
    idempotence = "on" if idempotent else "off"
    config.stash.setdefault(REFUSALS, []).append((client, idempotence, refusal))


def table_of_refusals(config: pytest.Config) -> list[str]:
    """The lines of the table; none if no client was refused."""
    lines = []
    for client, idempotence, refusal in config.stash.get(REFUSALS, []):
        after = "the producer goes on" if refusal.goes_on else f"the producer ends: {refusal.next_write}"
        lines += [f"{client}, idempotence {idempotence}: one request; {after}", f"    {refusal.errors[0]}"]
    return lines


def produced(broker: KafkaBroker | ClusterBroker) -> int:
    """The Produce requests that the brokers have answered."""
    count = 0.0
    addresses = [broker.addresses["admin"]] if isinstance(broker, KafkaBroker) else broker.admin_addresses
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS) as answer:
            count += sum(map(float, PRODUCED.findall(answer.read().decode())))
    return int(count)


def values(servers: str, topic: str) -> list[bytes]:
    """The values of the records of the topic's only partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, SECONDS)
    consumer.assign([place])
    found = [message.value() for message in consumer.consume(end, SECONDS)] if end else []
    consumer.close()
    return found


def refusal_of(
    send: Callable[[], Sequence[str]], next_write: Callable[[], int | str], count: Callable[[], int]
) -> Refusal:
    """Lets a producer send the batch that is refused, then another record.

    Args:
        send: sends the batch; returns the errors of its records.
        count: the Produce requests that were answered.

    Raises:
        AssertionError: the refused batch was not one Produce request.
    """
    before = count()
    errors = send()
    sent = count() - before
    assert sent == 1, f"the refused batch was sent {sent} times"
    return Refusal(errors, next_write())


def next_write(producer: Producer | CommandedProducer, topic: str, key: bytes | None = None) -> int | str:
    """Sends one record more to partition 0, and closes the producer; returns the offset or the error."""
    try:
        producer.send(topic, b"next", key=key, partition=0)
        (answer,) = producer.answers()
        producer.close()
    except Exception as error:  # each library has its own
        return repr(error)
    return answer if isinstance(answer, int) else repr(answer)
