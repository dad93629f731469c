"""Batches that a table refuses, with other people's clients: one request for each, and an error that the client shows.

With `--all-clients` the clients of other languages run as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from refused_batches import (
    CODES,
    ENDS,
    INVALID_RECORD,
    SHOWS_THE_MESSAGE,
    Refusal,
    next_write,
    note_refusal,
    produced,
    refusal_of,
    values,
)
from tables import PARTITIONS, TTL, contents, keys_of

from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.testing import KafkaBroker
from gnomon.wire.kafka.partitioner import partition_of

from families.program import KAFKAJS

if TYPE_CHECKING:
    from conftest import Broker, Client

    from families.family import Family, Headers

(FIRST,), (SECOND,), (THIRD,) = (keys_of(partition) for partition in range(PARTITIONS))
MISPLACED = "a key of another partition"
REFUSED: dict[str, tuple[bytes | None, Headers, str]] = {
    "no key": (None, (), "record 0 has no key"),
    "a key of 501 bytes": (b"k" * 501, (), "the key of record 0 has 501 bytes: 500 are allowed"),
    MISPLACED: (SECOND, (), "the key of record 0 belongs in partition 1, not in 0"),
    "a time to live without a number": (FIRST, ((TTL, b"soon"),), "the header gnomon.ttl.ms of record 0"),
}
"""Key and headers of a record for partition 0, and the message of the broker."""
ONE_ERROR_FOR_ALL = {KAFKAJS}
"""Libraries with one error for all batches of a call, also for those that are written."""
LIBRDKAFKAS_TEXT = 'KafkaError{code=INVALID_RECORD,val=87,str="Broker: Broker failed to validate record"}'


def refused(
    client: Client, broker: Broker, topic: str, idempotent: bool, key: bytes | None, headers: Headers
) -> Refusal:
    """Sends a good record, one that is refused, and a good one again, all to partition 0 and with one producer."""
    producer = client.producer(idempotent=idempotent)
    producer.send(topic, b"first", key=FIRST, partition=0)
    producer.flush()

    def send() -> Sequence[str]:
        producer.send(topic, b"refused", key=key, headers=headers, partition=0)
        (error,) = producer.answers()
        assert isinstance(error, BaseException)
        assert client.code(error) == CODES.get(client.name, INVALID_RECORD)
        return [str(error)]

    return refusal_of(send, lambda: next_write(producer, topic, FIRST), lambda: produced(broker))


@pytest.mark.parametrize(("reason", "idempotent"), [*((reason, False) for reason in REFUSED), (MISPLACED, True)])
def test_a_refused_record_is_one_request(
    client: Client,
    broker: Broker,
    table: BlockingTable,
    reason: str,
    idempotent: bool,
    request: pytest.FixtureRequest,
) -> None:
    key, headers, message = REFUSED[reason]
    refusal = refused(client, broker, table.topic, idempotent, key, headers)
    note_refusal(request.config, f"{client.name}, {reason}", idempotent, refusal)
    assert refusal.shows(message) == (client.name in SHOWS_THE_MESSAGE), refusal
    assert refusal.goes_on == ((client.name, idempotent) not in ENDS), refusal
    written = [b"first", b"next"] if refusal.goes_on else [b"first"]
    assert values(broker.bootstrap_servers, table.topic) == written
    assert contents(table) == {FIRST: (written[-1], len(written) - 1)}


def test_one_wrong_record_refuses_its_batch_and_no_other(client: Client, table: BlockingTable) -> None:
    """The library's default for idempotence; the batches of the three partitions may share a request."""
    producer = client.producer(linger_ms=200)
    producer.send(table.topic, b"value", key=SECOND, partition=1)
    producer.send(table.topic, b"value", key=THIRD, partition=2)
    for key in (FIRST, SECOND, FIRST):
        producer.send(table.topic, b"refused", key=key, partition=0)
    answers = producer.answers()
    failed = [client.code(each) for each in answers if isinstance(each, BaseException)]
    assert failed == [CODES.get(client.name, INVALID_RECORD)] * (5 if client.name in ONE_ERROR_FOR_ALL else 3)
    assert contents(table) == {SECOND: (b"value", 0), THIRD: (b"value", 0)}


def test_batches_around_a_refusal_are_written_once_or_not_at_all(
    client: Client, broker: Broker, table: BlockingTable
) -> None:
    """Of values of some 6,000 bytes most libraries make many batches, several of them in flight."""
    producer = client.producer(idempotent=(client.name, True) not in ENDS)
    for number in range(60):
        key = None if number % 7 == 3 else FIRST
        producer.send(table.topic, b"%d " % number * 2_000, key=key, partition=0)
    answers = producer.answers()
    assert all(isinstance(answers[number], BaseException) for number in range(3, 60, 7))
    written = [int(value.split()[0]) for value in values(broker.bootstrap_servers, table.topic)]
    acknowledged = {number: answer for number, answer in enumerate(answers) if isinstance(answer, int)}
    assert {number: offset for offset, number in enumerate(written)} == acknowledged
    assert len(written) == len(acknowledged)
    producer.close()


def test_librdkafkas_default_partitioner_misplaces_keys(
    confluent: Family, broker: Broker, table: BlockingTable
) -> None:
    """It is CRC32. In a batch of several keys one is nearly always misplaced, and all of them are refused."""
    keys = [b"key %d" % number for number in range(30)]
    fits = [zlib.crc32(key) % PARTITIONS == partition_of(key, PARTITIONS) for key in keys]
    assert any(fits)
    producer = confluent.producer()
    before = produced(broker)
    answers: list[int | BaseException] = []
    for key in keys:
        producer.send(table.topic, b"value", key=key)
        answers += producer.answers()
    assert produced(broker) - before == len(keys)
    assert [isinstance(answer, int) for answer in answers] == fits
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {confluent.code(error) for error in errors} == {INVALID_RECORD}
    assert {str(error) for error in errors} == {LIBRDKAFKAS_TEXT}
    assert set(contents(table)) == {key for key, fit in zip(keys, fits, strict=True) if fit}
    producer.close()
    if isinstance(broker, KafkaBroker):  # librdkafka does not show the reason
        lines = [line for line in broker.log().splitlines() if "batch_refused" in line and table.topic in line]
        assert lines
        assert all("partitioner=murmur2_random" in line for line in lines)
