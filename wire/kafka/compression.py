"""The codecs of record batches, in both directions; decompression never produces more than its limit.

1. Decompression writes into buffers of at most `bytes_max` bytes: a decompression bomb costs that memory and the time
   to fill it, even if it declares a larger size.
2. `decompress` raises `CorruptData` for every fault of the input, `TooLarge` for too much output, and nothing else.
3. Every Kafka client can read the output of `compress`: lz4 is written as frames of independent blocks (KIP-57), snappy
   as xerial's stream.
4. The same input gives the same bytes: a compressed stream contains no time and no randomness.
"""

from __future__ import annotations

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
_BUFFER_FULL: Final = "failed to write whole buffer"
_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 6
_LZ4_LEVEL: Final = 1


class _StreamCodec(Protocol):
    """The interface shared by the modules of cramjam."""

    def decompress_into(self, input: Buffer, output: Buffer) -> int: ...


class TooLarge(Exception):
    """The data would decompress to more bytes than allowed."""


class CorruptData(Exception):
    """The data is no stream of this codec."""


class Codec(IntEnum):
    """The number in a batch's attributes; the lower-case name is the value of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer) -> Buffer:
    """The data as a stream of the codec, one of `Codec`; for `Codec.NONE` the data itself."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Java's reader refuses linked blocks, which are the codec's default.
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))
    raise ValueError(f"compression codec {codec} is unknown: use 0 to 4")


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The decompressed data; for `Codec.NONE` the data itself, which costs nothing and is not limited.

    Args:
        codec: the number from a batch's attributes.
        data: the whole stream.
        bytes_max: the most bytes to produce.

    Raises:
        TooLarge: the stream holds more than `bytes_max` bytes.
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
        output = bytearray(room)
        try:
            count = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _BUFFER_FULL:
                raise CorruptData(f"{len(data)} compressed bytes do not decompress: {error}") from None
        else:
            return memoryview(output)[:count]
        if room == bytes_max:
            raise TooLarge(f"{len(data)} compressed bytes hold more than the {bytes_max} allowed")
        room = min(bytes_max, 4 * room)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


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
            raise TooLarge(f"a snappy block declares {declared} bytes, {bytes_max} are allowed")
        output = bytearray(declared)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptData(f"{len(block)} compressed bytes do not decompress: {error}") from None
    return output
