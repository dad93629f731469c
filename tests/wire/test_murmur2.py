"""The partition of a key against Kafka's clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from gnomon.wire.kafka.partitioner import murmur2, partition_of


@given(st.binary(max_size=40) | st.binary(min_size=490, max_size=500))
def test_the_hash_of_a_key_is_that_of_kafka(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key)


@pytest.mark.parametrize(
    ("key", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_the_hash_of_a_key_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    """The values are those of its `UtilsTest.testMurmur2`."""
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert partition_of(key, 7) == (signed & 0x7FFFFFFF) % 7
