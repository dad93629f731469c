"""The codecs of record batches, in both directions; decompression never produces more than its limit.

1. Decompression writes into buffers of at most `bytes_max` bytes: a decompression bomb costs that memory and the time
   to fill it, even if it declares a larger size. Compression stops at the bytes that its caller allows.
2. `decompress` raises `CorruptData` for every fault of the input, `UnpackedTooLarge` for too much output, and nothing
   else.
3. Every Kafka client can read the output of `compress`: lz4 is written as frames of independent blocks (KIP-57), snappy
   as xerial's stream.
4. The same input gives the same bytes: a compressed stream contains no time and no randomness.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, Protocol

import cramjam

from gnomon.wire.kafka.primitives import Buffer

_INT32: Final = Struct(">i")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 64
"""A snappy element expands to at most 64 bytes, so a block that declares more than that per byte is corrupt."""
_FIRST_TRY_BYTES: Final = 64 * 1024
_PLAIN_BYTES_MAX: Final = 1024 * 1024
_BUFFER_FULL: Final = "failed to write whole buffer"
_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 6
_LZ4_LEVEL: Final = 1
_LZ4_PART_BYTES: Final = 256 * 1024
"""A multiple of the codec's blocks, so that the parts are compressed as the whole is."""
_GROWTH_PART: Final = 128
_GROWTH_BYTES: Final = 1024
"""gzip and zstd make at most this many bytes, and this part of the data, more than they are given."""
UNBOUNDED: Final = 1 << 40


class _StreamCodec(Protocol):
    """The interface shared by the modules of cramjam."""

    def decompress_into(self, input: Buffer, output: Buffer) -> int: ...

    def compress_into(self, input: Buffer, output: Buffer, level: int) -> int: ...


class UnpackedTooLarge(Exception):
    """The data would decompress to more bytes than allowed."""


class ResultTooLarge(Exception):
    """The data would compress to more bytes than allowed."""


class CorruptData(Exception):
    """The data is no stream of this codec."""


class Codec(IntEnum):
    """The number in a batch's attributes; the lower-case name is the value of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, bytes_max: int = UNBOUNDED) -> Buffer:
    """The data as a stream of the codec, one of `Codec`; for `Codec.NONE` the data itself.

    Args:
        bytes_max: the most bytes to produce; compression stops there. Not looked at for `Codec.NONE`.

    Raises:
        ResultTooLarge: the stream would be larger.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _compress_bounded(cramjam.gzip, data, _GZIP_LEVEL, bytes_max)
        case Codec.SNAPPY:
            return _joined(_compress_xerial(data), bytes_max)
        case Codec.LZ4:
            return _joined(_compress_lz4(data), bytes_max)
        case Codec.ZSTD:
            return _compress_bounded(cramjam.zstd, data, _ZSTD_LEVEL, bytes_max)
    raise ValueError(f"compression codec {codec} is unknown: use 0 to 4")


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The decompressed data; for `Codec.NONE` the data itself, which costs nothing and is not limited.

    Args:
        codec: the number from a batch's attributes.
        data: the whole stream.
        bytes_max: the most bytes to produce.

    Raises:
        UnpackedTooLarge: the stream holds more than `bytes_max` bytes.
        CorruptData: the stream is cut short, damaged, or of no known codec.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_bounded(cramjam.gzip, data, bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), bytes_max)
        case Codec.LZ4:
            return _decompress_bounded(cramjam.lz4, data, bytes_max)
        case Codec.ZSTD:
            return _decompress_bounded(cramjam.zstd, data, bytes_max)
    raise CorruptData(f"compression codec {codec} is unknown")


def _decompress_bounded(module: _StreamCodec, data: Buffer, bytes_max: int) -> memoryview:
    """Decompresses without trust in a declared size: while the output does not fit, retries with four times the space.

    The retries add a third of the work at most.
    """
    room = min(bytes_max, max(_FIRST_TRY_BYTES, 4 * len(data)))
    while True:
        output = _reserved(room)
        try:
            count = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _BUFFER_FULL:
                raise CorruptData(f"{len(data)} compressed bytes do not decompress: {error}") from None
        else:
            return output[:count]
        del output  # before the next one is made
        if room == bytes_max:
            raise UnpackedTooLarge(f"{len(data)} compressed bytes hold more than the {bytes_max} allowed")
        room = min(bytes_max, 4 * room)


def _reserved(room: int) -> memoryview:
    """Zeros. The pages of a large room take memory once they are written, and are returned to the system at the end."""
    if room <= _PLAIN_BYTES_MAX:
        return memoryview(bytearray(room))
    try:
        return memoryview(mmap.mmap(-1, room))
    except OSError as error:
        raise MemoryError(f"no memory for {room} bytes: {error}") from error


def _compress_bounded(module: _StreamCodec, data: Buffer, level: int, bytes_max: int) -> bytes:
    output = _reserved(min(bytes_max, len(data) + len(data) // _GROWTH_PART + _GROWTH_BYTES))
    try:
        return bytes(output[: module.compress_into(data, output, level)])
    except cramjam.CompressionError as error:
        if str(error) != _BUFFER_FULL:
            raise
        raise _result_too_large(bytes_max) from None


def _compress_lz4(data: Buffer) -> Iterator[bytes]:
    # Java's reader refuses linked blocks, which are the codec's default.
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PART_BYTES):
        compressor.compress(bytes(view[start : start + _LZ4_PART_BYTES]))
        yield bytes(compressor.flush())
    yield bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    yield _XERIAL_HEADER
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        yield _INT32.pack(len(block)) + block


def _joined(parts: Iterator[bytes], bytes_max: int) -> bytes:
    made, count = [], 0
    for part in parts:
        made.append(part)
        count += len(part)
        if count > bytes_max:
            raise _result_too_large(bytes_max)
    return b"".join(made)


def _result_too_large(bytes_max: int) -> ResultTooLarge:
    return ResultTooLarge(f"the compressed data has more than {bytes_max} bytes")


def _decompress_snappy(view: memoryview, bytes_max: int) -> Buffer:
    """Xerial's stream of blocks, which Java and most clients write, or one bare block, as librdkafka may."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(view, bytes_max)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptData(f"snappy stream ends at byte {len(view)}, within its header")
    blocks = []
    made = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _INT32.size
        size = _INT32.unpack_from(view, position)[0] if start <= len(view) else -1
        position = start + size
        if size <= 0 or position > len(view):
            raise CorruptData(f"snappy block at byte {start} declares {size} bytes, {len(view) - start} are left")
        block = _decompress_block(view[start:position], bytes_max - made)
        made += len(block)
        blocks.append(block)
    return b"".join(blocks)


def _decompress_block(block: memoryview, bytes_max: int) -> bytearray:
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > _SNAPPY_RATIO_MAX * len(block):
            raise CorruptData(f"a snappy block of {len(block)} bytes declares {declared} bytes, which cannot be")
        if declared > bytes_max:
            raise UnpackedTooLarge(f"a snappy block declares {declared} bytes, {bytes_max} are allowed")
        output = bytearray(declared)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptData(f"{len(block)} compressed bytes do not decompress: {error}") from None
    return output
