"""Compresses produced batches with the codec of their topic (`compression.type`). Pure.

1. A batch is recompressed within the turn only if neither its size nor the size of its records is above
   AT_ONCE_BYTES_MAX. All others are recompressed in a thread (`batch_thread`).
2. The records of a batch decompress to at most RECODED_BYTES_MAX, and compression stops at `max.message.bytes`.
"""

from __future__ import annotations

from gnomon.wire.kafka.batch import BatchRejected
from gnomon.wire.kafka.compression import CorruptData, ResultTooLarge, UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import recompressed

AT_ONCE_BYTES_MAX = 256 << 10
"""Recompressing this many bytes takes some 8 ms with the slowest codec, gzip."""
RECODED_BYTES_MAX = 64 << 20


class TakesLong(Exception):
    """The batch has to be unpacked in a thread: it is recompressed, or searched for terms."""


def recoded_at_once(batch: memoryview, codec: int, batch_bytes_max: int) -> memoryview:
    """The batch in the codec, if that takes less than a turn of the event loop.

    Raises:
        TakesLong: it takes longer.
        BatchRejected: as `recoded`.
    """
    if len(batch) > AT_ONCE_BYTES_MAX:
        raise TakesLong
    try:
        return recoded(batch, codec, batch_bytes_max, AT_ONCE_BYTES_MAX)
    except UnpackedTooLarge:
        raise TakesLong from None


def too_large(error: UnpackedTooLarge) -> BatchRejected:
    """The refusal of a batch whose records decompress to more than RECODED_BYTES_MAX."""
    return BatchRejected(
        ErrorCode.MESSAGE_TOO_LARGE, f"compression.type or gnomon.conditional.write of the topic: {error}"
    )


def recoded(batch: memoryview, codec: int, batch_bytes_max: int, records_bytes_max: int) -> memoryview:
    """The batch in the codec.

    Args:
        batch: a batch that `check_produced` accepts.
        codec: one of `Codec`.
        batch_bytes_max: `max.message.bytes` of the topic.
        records_bytes_max: the most bytes that its records may decompress to.

    Raises:
        UnpackedTooLarge: its records decompress to more.
        BatchRejected: its records do not decompress, or the result is too large.
    """
    try:
        recoded = memoryview(recompressed(batch, codec, records_bytes_max, batch_bytes_max))
    except CorruptData as error:
        raise BatchRejected(ErrorCode.INVALID_RECORD, f"compression.type of the topic: {error}") from None
    except ResultTooLarge:
        raise _refused_result(batch_bytes_max) from None
    if len(recoded) > batch_bytes_max:
        raise _refused_result(batch_bytes_max)
    return recoded


def _refused_result(batch_bytes_max: int) -> BatchRejected:
    return BatchRejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"with the topic's compression.type the batch has more than the {batch_bytes_max} bytes that max.message.bytes "
        "allows: send smaller batches",
    )
