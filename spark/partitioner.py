"""Kafka's default partitioner, for a column of keys at a time. Pure.

1. The hash of a key is that of `Utils.murmur2` in Kafka's Java client.
2. It depends on the bytes of the key alone: neither on the other keys of the column nor on the column's place in its
   buffers.
3. The partition of a key is its hash, without the sign bit, modulo the number of partitions, as in Kafka's
   `BuiltInPartitioner.partitionForKey`. So records of one key are in one partition, whichever producer wrote them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WITHOUT_SIGN: Final = 0x7FFFFFFF
_WORD: Final = Struct("<I")
_ROUND_KEYS_MIN: Final = 8
"""The words of fewer keys than this are hashed one by one: a round over a column takes some 20 us."""

Hashes: TypeAlias = npt.NDArray[np.uint32]


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key.

    Args:
        keys: of the type binary, without nulls.
        partitions: the number of partitions of the topic.
    """
    return ((murmur2(keys) & np.uint32(_WITHOUT_SIGN)) % np.uint32(partitions)).astype(np.int32)


def murmur2(keys: pa.Array) -> Hashes:
    """The hash of each key (invariants 1 and 2), as a number without a sign.

    Args:
        keys: of the type binary, without nulls.
    """
    _, bounds, data = keys.buffers()
    ends = np.frombuffer(bounds, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    octets = np.frombuffer(data or b"", np.uint8)
    starts, sizes = ends[:-1].astype(np.int64), np.diff(ends)
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    words = sizes // _WORD.size
    left, number = np.flatnonzero(words), 0
    while len(left) >= _ROUND_KEYS_MIN:  # the next word of each key that has one
        at = starts[left] + number * _WORD.size
        hashes[left] = _mixed(hashes[left], _little_endian(octets, at, _WORD.size))
        number += 1
        left = left[words[left] > number]
    for key in left.tolist():
        start = int(starts[key]) + number * _WORD.size
        stop = int(starts[key]) + int(words[key]) * _WORD.size
        hashes[key] = _mixed_words(int(hashes[key]), octets[start:stop].tobytes())
    for rest in (1, 2, 3):
        ending = np.flatnonzero(sizes % _WORD.size == rest)
        tail = _little_endian(octets, starts[ending] + words[ending] * _WORD.size, rest)
        hashes[ending] = (hashes[ending] ^ tail) * np.uint32(_FACTOR)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_FACTOR)
    return hashes ^ (hashes >> np.uint32(15))


def _little_endian(octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> Hashes:
    """The numbers of `size` bytes at these positions."""
    numbers = np.zeros(len(at), np.uint32)
    for place in range(size):
        numbers |= octets[at + place].astype(np.uint32) << np.uint32(8 * place)
    return numbers


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    words = words * np.uint32(_FACTOR)
    words ^= words >> np.uint32(24)
    return (hashes * np.uint32(_FACTOR)) ^ (words * np.uint32(_FACTOR))


def _mixed_words(found: int, words: bytes) -> int:
    """The hash of one key after several words."""
    for (word,) in _WORD.iter_unpack(words):
        word = word * _FACTOR & 0xFFFFFFFF
        word = (word ^ word >> 24) * _FACTOR
        found = (found * _FACTOR ^ word) & 0xFFFFFFFF
    return found
