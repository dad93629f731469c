"""The partitions of keys against Kafka's clients; numbers cite the invariants of `partitioner`."""

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
def test_hashes_are_those_of_kafka(given_keys: list[bytes], skipped: int) -> None:  # 1
    column = pa.array(given_keys, pa.binary()).slice(min(skipped, len(given_keys)))
    assert murmur2(column).tolist() == [kafka_murmur2(key) for key in given_keys[skipped:]]


@pytest.mark.parametrize(
    ("key", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_hashes_are_those_of_the_java_client(key: bytes, signed: int) -> None:  # 1, 3
    """The values are those of its `UtilsTest.testMurmur2`."""
    column = pa.array([key] * 9)
    assert murmur2(column).view("int32").tolist() == [signed] * 9
    assert partitions_of(column, 7).tolist() == [(signed & 0x7FFFFFFF) % 7] * 9


@settings(max_examples=50, deadline=None)
@given(keys, st.integers(0, 5), st.integers(0, 5))
def test_a_hash_depends_on_the_bytes_of_its_key_alone(given_keys: list[bytes], before: int, behind: int) -> None:  # 2
    """The other keys decide whether words are hashed by column or one by one."""
    alone = [int(murmur2(pa.array([key], pa.binary()))[0]) for key in given_keys]
    around = [b"other" * 30] * before, [b"other" * 70] * behind
    column = pa.array([*around[0], *given_keys, *around[1]], pa.binary())
    assert murmur2(column.slice(before, len(given_keys))).tolist() == alone
    assert murmur2(column).tolist()[before : before + len(given_keys)] == alone


@settings(max_examples=50, deadline=None)
@given(keys, st.integers(1, 5_000))
def test_the_partition_is_the_hash_without_its_sign_bit_modulo_their_number(
    given_keys: list[bytes], partitions: int
) -> None:  # 3
    found = partitions_of(pa.array(given_keys, pa.binary()), partitions).tolist()
    assert found == [(kafka_murmur2(key) & 0x7FFFFFFF) % partitions for key in given_keys]
