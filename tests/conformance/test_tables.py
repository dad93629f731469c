"""A table that other people's clients write and read: what they produce is in the table, and its history is in the log.

With `--all-clients` the clients of other languages run as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from decoded_topics import codecs
from tables import PARTITIONS, TTL, contents, history, keys_of

import gnomon
from gnomon.client.tables.blocking_table import BlockingTable

from families.group import read

if TYPE_CHECKING:
    from conftest import Broker, Client


KEYS = [b"key %d" % number for number in range(12)]
CODECS = ["gzip", "snappy", "lz4", "zstd"]
TTL_MS = 300
HOUR_MS = 3_600_000


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_table_has_the_newest_value_of_each_produced_key(
    client: Client, table: BlockingTable, idempotent: bool
) -> None:
    producer = client.producer(idempotent=idempotent, kafka_partitioner=True)
    for value in (b"first", b"second"):
        for key in KEYS:
            producer.send(table.topic, value, key=key)
    offsets = producer.flush()
    entries = [table.get(key) for key in KEYS]
    assert [(entry.value, entry.version) for entry in entries if entry] == [(b"second", 2)] * len(KEYS)
    assert [entry.revision for entry in entries if entry] == offsets[len(KEYS) :]
    assert [entry.create_revision for entry in entries if entry] == offsets[: len(KEYS)]
    assert {entry.partition for entry in entries if entry} == set(range(PARTITIONS))
    producer.close()


def test_a_null_value_deletes_the_key(client: Client, table: BlockingTable) -> None:
    producer = client.producer(kafka_partitioner=True)
    written = []
    for value in (b"first", None, b"again"):
        producer.send(table.topic, value, key=b"key")
        written += producer.flush()
        if value is None:
            assert table.get(b"key") is None
    producer.close()
    entry = table.get(b"key")
    assert entry is not None
    assert (entry.value, entry.version) == (b"again", 1)
    assert entry.revision == entry.create_revision == written[-1]


@pytest.mark.parametrize("codec", CODECS)
def test_a_table_has_the_values_of_compressed_batches(
    client: Client, broker: Broker, table: BlockingTable, codec: str
) -> None:
    if codec not in client.codecs():
        pytest.skip(f"{client.name} has no {codec} here")
    producer = client.producer(codec=codec, linger_ms=20, kafka_partitioner=True)
    values = {b"key %d" % number: b"value %d " % number * 50 for number in range(60)}
    for key, value in values.items():
        producer.send(table.topic, value, key=key)
    offsets = producer.flush()
    producer.close()
    assert contents(table) == {key: (values[key], offset) for key, offset in zip(values, offsets, strict=True)}
    assert codecs(broker.bootstrap_servers, table.topic) == {codec}


def test_a_client_reads_each_effect_once_whoever_wrote_it(client: Client, table: BlockingTable) -> None:
    one, other = keys_of(1, 2)
    revisions = [table.put(one, b"1"), table.compare_and_set(one, expected=b"1", value=b"2")]
    with pytest.raises(gnomon.CompareFailed):
        table.compare_and_set(one, expected=b"1", value=b"lost")
    assert table.increment(one, 40) == 42
    then = [gnomon.DeleteKey(one), gnomon.PutKey(other, b"moved")]
    assert table.txn(compare=[table.value(one) == b"42"], then=then).succeeded
    assert not table.txn(compare=[table.value(one) == b"42"], then=then).succeeded
    revisions += [table.delete(other), table.put(other, b"last")]
    assert table.delete(one) == -1
    producer = client.producer(kafka_partitioner=True)
    for value in (b"mine", None, b""):
        producer.send(table.topic, value, key=one)
    assert producer.flush() == [7, 8, 9]
    producer.close()
    found = history(client, table.topic, 1, 10)
    assert [(record.key, record.value) for record in found] == [
        *((one, b"1"), (one, b"2"), (one, b"42"), (one, None)),
        *((other, b"moved"), (other, None), (other, b"last")),
        *((one, b"mine"), (one, None), (one, b"")),
    ]
    assert [record.offset for record in found] == list(range(10))
    assert revisions == [0, 1, 5, 6]
    assert contents(table) == {one: (b"", 9), other: (b"last", 6)}


def test_a_time_to_live_ends_in_a_deletion_after_it_and_not_before(client: Client, table: BlockingTable) -> None:
    short, long = keys_of(0, 2)
    assert table.get(short) is None  # the partition is in use from now on
    producer = client.producer(kafka_partitioner=True)
    producer.send(table.topic, b"long", key=long, headers=((TTL, b"%d" % HOUR_MS),))
    producer.send(table.topic, b"short", key=short, headers=((TTL, b"%d" % TTL_MS),))
    assert producer.flush() == [0, 1]
    producer.close()
    reader = client.reader(table.topic, 0, "earliest")
    lasting, put, deleted = read(reader, 3)
    reader.close()
    assert put.headers == ((TTL, b"%d" % TTL_MS),)
    assert (deleted.key, deleted.value) == (short, None)
    assert ("gnomon.expired", b"") in deleted.headers
    assert deleted.timestamp_ms - put.timestamp_ms >= TTL_MS
    assert table.get(short) is None
    entry = table.get(long)
    assert entry is not None
    assert entry.expires_ms == lasting.timestamp_ms + HOUR_MS


def test_a_key_expires_without_a_native_call(client: Client, table: BlockingTable) -> None:
    (key,) = keys_of(1)
    producer = client.producer(kafka_partitioner=True)
    producer.send(table.topic, b"short", key=key, headers=((TTL, b"1"),))
    producer.flush()
    producer.close()
    put, deleted = history(client, table.topic, 1, 2)
    assert (deleted.key, deleted.value) == (key, None)
    assert deleted.timestamp_ms > put.timestamp_ms
    assert table.get(key) is None
