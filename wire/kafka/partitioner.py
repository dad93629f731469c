"""Kafka's default partitioner: the partition of a key, as each of Kafka's clients computes it. Pure.

The hash is that of `Utils.murmur2` in Kafka's Java client, a murmur2 of 32 bits with a fixed seed. The partition is the
hash, without the sign bit, modulo the number of partitions (`BuiltInPartitioner.partitionForKey`). librdkafka computes
the same with `partitioner=murmur2_random`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD_BITS: Final = 0xFFFFFFFF
_WITHOUT_SIGN: Final = 0x7FFFFFFF
_WORD: Final = Struct("<I")


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic with this many partitions."""
    return (murmur2(key) & _WITHOUT_SIGN) % partitions


def murmur2(key: bytes) -> int:
    """The hash of a key, as a number without a sign."""
    size, factor = len(key), _FACTOR
    found = _SEED ^ size
    rest_at = size & ~3
    for (word,) in _WORD.iter_unpack(key[:rest_at]):
        word = word * factor & _WORD_BITS
        word = (word ^ word >> 24) * factor & _WORD_BITS
        found = (found * factor & _WORD_BITS) ^ word
    if rest_at < size:
        found = (found ^ int.from_bytes(key[rest_at:], "little")) * factor & _WORD_BITS
    found = (found ^ found >> 13) * factor & _WORD_BITS
    return found ^ found >> 15
