"""Codecs against aiokafka's, bombs, and damaged streams; numbers are the invariants of compression.py."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.wire.kafka.compression import Codec, CorruptData, ResultTooLarge, UnpackedTooLarge, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ENCODERS = {
    Codec.GZIP: aiokafka.gzip_encode,
    Codec.SNAPPY: aiokafka.snappy_encode,
    Codec.LZ4: aiokafka.lz4_encode,
    Codec.ZSTD: aiokafka.zstd_encode,
}
DECODERS = {
    Codec.GZIP: aiokafka.gzip_decode,
    Codec.SNAPPY: aiokafka.snappy_decode,
    Codec.LZ4: aiokafka.lz4_decode,
    Codec.ZSTD: aiokafka.zstd_decode,
}
texts = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=30), st.integers(1, 5_000)
)


def bomb(codec: Codec, size: int) -> bytes:
    return bytes(ENCODERS[codec](bytes(size)))


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=40)
@given(data=texts)
def test_streams_survive_a_round_trip_and_agree_with_aiokafka(codec: Codec, data: bytes) -> None:
    ours = bytes(compress(codec, memoryview(data)))
    assert decompress(codec, memoryview(ours), len(data)) == data
    if data:
        assert bytes(DECODERS[codec](ours)) == data
        assert decompress(codec, bytes(ENCODERS[codec](data)), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compression_stops_at_the_bytes_that_are_allowed(codec: Codec) -> None:
    """1."""
    for data in (b"", b"abc" * 100_000, os.urandom(700_000)):
        whole = bytes(compress(codec, data))
        assert decompress(codec, whole, len(data)) == data
        assert bytes(compress(codec, data, len(whole))) == whole
        with pytest.raises(ResultTooLarge, match=f"more than {len(whole) - 1} bytes"):
            compress(codec, data, len(whole) - 1)


@given(texts)
def test_a_bare_snappy_block_is_read_too(data: bytes) -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_no_compression_gives_the_data_itself() -> None:
    view = memoryview(b"data")
    assert compress(Codec.NONE, view) is view
    assert decompress(Codec.NONE, view, 1) is view


def test_lz4_frames_have_independent_blocks() -> None:
    """3: Java refuses a frame without bit 5 of the flag byte."""
    frame = bytes(compress(Codec.LZ4, b"abc" * 100_000))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_same_input_gives_the_same_bytes(codec: Codec) -> None:
    """4."""
    data = b"the same input" * 1_000
    assert compress(codec, data) == compress(codec, data)
    if codec is Codec.GZIP:
        assert bytes(compress(codec, data))[4:8] == bytes(4)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_of_exactly_the_limit_passes_and_one_byte_more_does_not(codec: Codec) -> None:
    for size in (1, 1_000, 65_536, 65_537, 300_000):
        stream = bomb(codec, size)
        assert decompress(codec, stream, size) == bytes(size)
        with pytest.raises(UnpackedTooLarge, match=r"allowed"):
            decompress(codec, stream, size - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_stopped_with_bounded_memory(codec: Codec) -> None:
    """1."""
    stream = bomb(codec, 64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(UnpackedTooLarge):
            decompress(codec, stream, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_declares_an_impossible_size_allocates_nothing() -> None:
    """1: the declared size of a bare block is checked against the largest output of that many bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="cannot be"):
            decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0fabc", 1 << 31)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_of_a_stream_is_corrupt(codec: Codec) -> None:
    stream = bytes(compress(codec, bytes(range(256)) * 3))
    for size in range(len(stream)):
        # An xerial header without blocks is the empty stream.
        if codec is Codec.SNAPPY and size == 16:
            assert decompress(codec, stream[:size], 10_000) == b""
            continue
        with pytest.raises(CorruptData):
            decompress(codec, stream[:size], 10_000)


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_streams_give_the_declared_exceptions_only(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(bytes(compress(codec, b"some text, some more text" * 20)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = decompress(codec, bytes(stream), 2_000)
    except (UnpackedTooLarge, CorruptData):
        return
    assert len(made) <= 2_000


@given(st.sampled_from(COMPRESSED), st.binary(max_size=80))
def test_random_bytes_give_the_declared_exceptions_only(codec: Codec, raw: bytes) -> None:
    try:
        decompress(codec, raw, 1_000)
    except (UnpackedTooLarge, CorruptData):
        return


@pytest.mark.parametrize("size", [-1, 0, 100, 2**31 - 1])
def test_an_xerial_block_with_a_nonsense_length_is_corrupt(size: int) -> None:
    stream = bytes(compress(Codec.SNAPPY, b""))[:16] + struct.pack(">i", size) + b"ab"
    with pytest.raises(CorruptData, match=f"declares {size} bytes"):
        decompress(Codec.SNAPPY, stream, 1_000)


def test_gzip_members_in_a_row_are_one_stream() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 6) == b"onetwo"


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(CorruptData, match="codec 5"):
        decompress(5, b"", 10)
    with pytest.raises(ValueError, match="codec 5"):
        compress(5, b"")
