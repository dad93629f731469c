"""The partitions of keys against Kafka's clients."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from gnomon.spark.partitioner import murmur2, partitions_of

keys = st.lists(st.binary(max_size=40) | st.binary(min_size=900, max_size=1_000), max_size=40)


@settings(max_examples=200, deadline=None)
@given(keys, st.integers(0, 5))
def test_hashes_are_those_of_kafka(given_keys: list[bytes], skipped: int) -> None:
    column = pa.array(given_keys, pa.binary()).slice(min(skipped, len(given_keys)))
    assert murmur2(column).tolist() == [kafka_murmur2(key) for key in given_keys[skipped:]]


@pytest.mark.parametrize(
    ("key", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_hashes_are_those_of_the_java_client(key: bytes, signed: int) -> None:
    """The values are those of its `UtilsTest.testMurmur2`."""
    column = pa.array([key] * 9)
    assert murmur2(column).view("int32").tolist() == [signed] * 9
    assert partitions_of(column, 7).tolist() == [(signed & 0x7FFFFFFF) % 7] * 9
