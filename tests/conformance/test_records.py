"""Records are consumed as they were produced, with every client, its defaults and each codec."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from families.group import read
from families.refusal import refused

if TYPE_CHECKING:
    from families.family import Admin, Family

MESSAGE_TOO_LARGE = 10
MIB = 1 << 20


def test_a_producer_with_default_settings_gets_consecutive_offsets(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    producer = family.producer()
    for number in range(300):
        producer.send(topic, b"value %d" % number, key=b"key %d" % (number % 7))
    assert sorted(producer.flush()) == list(range(300))
    producer.close()
    reader = family.reader(topic, 0, "earliest")
    found = read(reader, 300)
    reader.close()
    assert [record.offset for record in found] == list(range(300))
    assert [record.value for record in found] == [b"value %d" % number for number in range(300)]
    assert [record.key for record in found] == [b"key %d" % (number % 7) for number in range(300)]


def test_keys_values_and_headers_may_be_null_or_empty(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again"), ("näme", "wört".encode()))
    if "null_header" not in family.lacks:
        headers += (("null", None),)
    producer = family.producer()
    producer.send(topic, None, key=b"deleted", timestamp_ms=1_000)
    producer.send(topic, b"", key=b"", timestamp_ms=2_000)
    producer.send(topic, b"no key", headers=headers, timestamp_ms=3_000)
    producer.flush()
    producer.close()
    reader = family.reader(topic, 0, "earliest")
    deleted, empty, plain = read(reader, 3)
    reader.close()
    assert (deleted.key, deleted.value, deleted.timestamp_ms) == (b"deleted", None, 1_000)
    assert (empty.key, empty.value, empty.timestamp_ms) == (b"", b"", 2_000)
    assert (plain.key, plain.headers, plain.timestamp_ms) == (None, headers, 3_000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_in_every_codec_are_read_back(family: Family, admin: Admin, topic: str, codec: str) -> None:
    if codec not in family.codecs():
        pytest.skip(f"{family.name} finds no library for {codec}: its optional dependencies are not installed")
    admin.create_topic(topic, 1)
    producer = family.producer(codec=codec)
    values = [b"%d " % number * 50 for number in range(200)]
    for value in values:
        producer.send(topic, value)
    producer.flush()
    producer.close()
    reader = family.reader(topic, 0, "earliest")
    assert [record.value for record in read(reader, 200)] == values
    reader.close()


def test_a_record_close_to_the_limit_is_accepted_and_a_larger_one_is_refused(
    family: Family, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1)
    producer = family.producer(codec="none", request_bytes_max=4 * MIB)
    big = random.Random(topic).randbytes(MIB - 1000)
    producer.send(topic, big)
    assert producer.flush() == [0]
    producer.send(topic, bytes(MIB + 1000))
    assert refused(family, producer.flush) == MESSAGE_TOO_LARGE
    producer.close()
    producer = family.producer(codec="none")
    producer.send(topic, b"small again")
    assert producer.flush() == [1]
    producer.close()
    reader = family.reader(topic, 0, "earliest")
    assert [record.value for record in read(reader, 2)] == [big, b"small again"]
    reader.close()


def test_a_reader_starts_at_the_given_position(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    producer = family.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=10_000 + 100 * number)
    producer.flush()
    middle = family.reader(topic, 0, 4)
    assert [record.offset for record in read(middle, 6)] == list(range(4, 10))
    middle.close()
    latest = family.reader(topic, 0, "latest")
    seen = latest.poll(0.1)
    while not seen:
        producer.send(topic, b"later")
        producer.flush()
        seen = latest.poll(0.2)
    latest.close()
    producer.close()
    assert {record.value for record in seen} == {b"later"}


def test_an_offset_is_found_by_its_time(family: Family, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    producer = family.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=10_000 + 100 * number)
        if number % 3 == 0:
            producer.flush()
    producer.flush()
    producer.close()
    assert family.offset_at(topic, 0, 0) == 0
    assert family.offset_at(topic, 0, 10_400) == 4
    assert family.offset_at(topic, 0, 10_401) == 5
    assert family.offset_at(topic, 0, 10_901) is None
