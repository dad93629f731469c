"""Decodes record batches into Arrow columns: many batches at a time, without a Python object for each record.

1. The rows are the records of `wire.kafka.records.iterate_records` with an offset inside the range, in order.
2. No length or count is used before a comparison with the bytes that are there. A batch that `iterate_records` refuses
   is refused with the same reason. A batch is refused, too, if its offsets do not rise or are not within its header's
   bounds, or if a number has more than 64 bits.
3. A batch decompresses to at most `batch_bytes_max` bytes; decoding takes some 30 times as much memory.
4. Control batches have no rows.
5. All fields are validated, also those of columns that are not wanted.

A loop over the lengths of the records finds where they begin. All other fields are read column by column: each varint
of all records at once. This takes some 0.2 us a record. Since each call takes some 0.3 ms, batches are gathered.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnomon.wire.kafka.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
    BatchHeader,
    MalformedBatch,
    parse_batch,
)
from gnomon.wire.kafka.compression import CorruptData, UnpackedTooLarge, decompress
from gnomon.wire.kafka.primitives import Buffer
from gnomon.wire.kafka.records import iterate_records

GATHERED_BYTES: Final = 8 << 20
"""Bytes of records that are decoded together."""
BATCH_BYTES_MAX: Final = 64 << 20

_HEADER: Final = np.dtype(list(zip(BatchHeader._fields, [f">{code}" for code in HEADER.format[1:]], strict=True)))
"""The layout of HEADER."""
_PADDING: Final = bytes(64)
"""Follows the records, because a varint is read before its end is compared with the end of its record."""
_SHIFT_MAX: Final = 63
_HEADER_BYTES_MIN: Final = 2
_ROUND_RECORDS_MIN: Final = 16
"""Headers are read one by one if fewer records than this have more of them: a round over columns takes some 30 us."""
_HALF: Final = 1 << 62
_MILLISECONDS_MAX: Final = (1 << 63) // 1_000 - 1
"""The largest timestamp whose microseconds have 64 bits."""

Numbers: TypeAlias = npt.NDArray[np.int64]
"""One number for each record, or for each header."""

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
"""The columns of Spark's Kafka connector. `headers` is null for a record without any."""


class UnreadableBatch(Exception):
    """A batch cannot be decoded; the text names the partition, the batch's offsets and the reason."""


class Range(NamedTuple):
    """The offsets of a partition from `start` up to, but not including, `stop`."""

    topic: str
    partition: int
    start: int
    stop: int


class _Inconsistent(Exception):
    """A length, count or number contradicts the bytes that are there."""


class _Gathered(NamedTuple):
    header: BatchHeader
    batch: memoryview
    records: Buffer
    """Not compressed."""


class ColumnDecoder:
    """Decodes the batches of one range, which are added in their order."""

    def __init__(
        self,
        wanted: Range,
        columns: Sequence[str],
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        gathered_bytes: int = GATHERED_BYTES,
    ) -> None:
        """Starts without a batch.

        Args:
            wanted: the offsets whose records are rows.
            columns: names of `SCHEMA`, in the order of the result.
            batch_bytes_max: the most bytes of records, not compressed, of one batch.
            gathered_bytes: bytes of records that are decoded together; the last batch may exceed them.
        """
        self._range = wanted
        self._schema = pa.schema([SCHEMA.field(name) for name in columns])
        self._batch_bytes_max = batch_bytes_max
        self._gathered_bytes_max = gathered_bytes
        self._gathered: list[_Gathered] = []
        self._gathered_bytes = 0

    def add(self, batch: memoryview) -> pa.RecordBatch | None:
        """Takes the batch that fills `batch`, whose bytes stay as they are until the next result.

        Returns:
            The rows of all batches since the last result, once enough are gathered; there may be none.

        Raises:
            UnreadableBatch: of this batch, or of one that was gathered before.
        """
        try:
            header = parse_batch(batch)
            if header.is_control:
                return None
            records = decompress(header.compression, batch[HEADER_BYTES : header.size_bytes], self._batch_bytes_max)
            if len(records) > self._batch_bytes_max:
                raise UnpackedTooLarge(f"its records have {len(records)} bytes, {self._batch_bytes_max} are allowed")
        except UnpackedTooLarge as error:
            raise self._unreadable(batch, f"{error}; the option maxBatchBytes allows more") from None
        except (MalformedBatch, CorruptData) as error:
            raise self._unreadable(batch, error) from None
        self._gathered.append(_Gathered(header, batch, records))
        self._gathered_bytes += len(records)
        return self.flush() if self._gathered_bytes >= self._gathered_bytes_max else None

    def flush(self) -> pa.RecordBatch | None:
        """The rows of all batches since the last result; None without any batch.

        Raises:
            UnreadableBatch: of one of these batches.
        """
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not gathered:
            return None
        try:
            return self._rows(gathered)
        except _Inconsistent:
            raise self._first_unreadable(gathered) from None

    def _rows(self, gathered: Sequence[_Gathered]) -> pa.RecordBatch:
        records = _Records(gathered)
        first, last = np.searchsorted(records.offsets, (self._range.start, self._range.stop))
        whole = pa.RecordBatch.from_arrays(
            [self._column(field.name, records) for field in self._schema], schema=self._schema
        )
        return whole.slice(first, max(last - first, 0))

    def _column(self, name: str, records: _Records) -> pa.Array:
        match name:
            case "key":
                return records.bytes_at(records.keys)
            case "value":
                return records.bytes_at(records.values)
            case "topic":
                return pa.repeat(pa.scalar(self._range.topic, pa.string()), len(records.offsets))
            case "partition":
                return pa.repeat(pa.scalar(self._range.partition, pa.int32()), len(records.offsets))
            case "offset":
                return pa.array(records.offsets)
            case "timestamp":
                return pa.array(records.timestamps_ms * 1_000).view(SCHEMA.field(name).type)
            case "timestampType":
                return pa.array(records.timestamp_types)
            case _:
                return records.headers()

    def _first_unreadable(self, gathered: Sequence[_Gathered]) -> UnreadableBatch:
        """The error of the first batch that cannot be decoded, with the reason that `iterate_records` gives."""
        for each in gathered:
            try:
                for _ in iterate_records(each.batch, self._batch_bytes_max):
                    pass
                _Records([each])
            except (MalformedBatch, UnpackedTooLarge, CorruptData, _Inconsistent) as error:
                return self._unreadable(each.batch, error)
        return self._unreadable(
            gathered[-1].batch, _Inconsistent("its offsets are not above those of the batches before")
        )

    def _unreadable(self, batch: memoryview, reason: object) -> UnreadableBatch:
        place = f"topic {self._range.topic!r}, partition {self._range.partition}"
        try:
            header = parse_batch(batch)
        except MalformedBatch:
            return UnreadableBatch(f"{place}, offsets from {self._range.start} to {self._range.stop - 1}: {reason}")
        return UnreadableBatch(f"{place}, offsets {header.base_offset} to {header.next_offset - 1}: {reason}")


class _Fields(NamedTuple):
    """A field of several records: its positions, and its sizes, -1 if it is null."""

    start: Numbers
    size: Numbers


class _Records:
    """The records of several batches, as positions in their bytes; one number for each record in every array."""

    def __init__(self, gathered: Sequence[_Gathered]) -> None:
        """Reads the records.

        Raises:
            _Inconsistent: a batch is refused by invariant 2.
        """
        self._data = b"".join([*(each.records for each in gathered), _PADDING])
        self._octets = np.frombuffer(self._data, np.uint8)
        starts, stops = self._bounds(gathered)
        time_deltas, at = self._varints(starts + 1)  # a record begins with a byte of attributes, which mean nothing
        offset_deltas, at = self._varints(at)
        self.keys, at = self._fields(at, stops)
        self.values, at = self._fields(at, stops)
        self._header_counts, at = self._varints(at)
        self._header_keys, self._header_values = self._headers(at, stops)
        headers = _Headers(gathered)
        self.timestamps_ms, self.timestamp_types = _times(time_deltas, headers)
        self.offsets = _offsets(offset_deltas, headers)

    def _bounds(self, gathered: Sequence[_Gathered]) -> tuple[Numbers, Numbers]:
        """The positions where the records begin, after their lengths, and where they end."""
        places, position = array("q"), 0
        for header, _, records in gathered:
            end = position + len(records)
            if not 0 <= header.records_count <= len(records) // RECORD_BYTES_MIN:
                raise _Inconsistent("a batch declares more records than it has bytes for")
            position = _skip_records(self._data, position, header.records_count, places)
            if position != end:
                raise _Inconsistent("the records of a batch do not end where it ends")
        sizes, starts = self._varints(np.frombuffer(places, np.int64))
        return starts, starts + sizes

    def bytes_at(self, fields: _Fields) -> pa.Array:
        """The fields as one array of byte strings."""
        count = len(fields.start)
        bounds = np.empty(2 * count, np.int32)
        bounds[::2] = fields.start
        bounds[1::2] = fields.start + np.maximum(fields.size, 0)
        # Of the pieces between these bounds every second one is a field.
        pieces = pa.BinaryArray.from_buffers(
            pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        )
        is_null = fields.size < 0
        return pieces.take(pa.array(np.arange(0, 2 * count, 2), mask=is_null if is_null.any() else None))

    def headers(self) -> pa.Array:
        """The headers of each record; null for a record without any."""
        bounds = np.zeros(len(self._header_counts) + 1, np.int32)
        np.cumsum(self._header_counts, out=bounds[1:])
        pairs = pa.StructArray.from_arrays(
            [self._header_keys, self.bytes_at(self._header_values)], fields=list(HEADERS.value_type)
        )
        return pa.ListArray.from_arrays(bounds, pairs, type=HEADERS, mask=pa.array(self._header_counts == 0))

    def _varints(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """The zigzag varints at these positions, and the positions after them."""
        octets = self._octets
        octet = octets[at]
        value = (octet & 0x7F).astype(np.uint64)
        after = at + 1
        longer = np.flatnonzero(octet > 0x7F)
        shift = 7
        while len(longer):
            octet = octets[after[longer]]
            part = octet & 0x7F
            if shift > _SHIFT_MAX or (shift == _SHIFT_MAX and (part > 1).any()):
                raise _Inconsistent("a number of a record has more than 64 bits")
            value[longer] |= part.astype(np.uint64) << np.uint64(shift)
            after[longer] += 1
            longer = longer[octet > 0x7F]
            shift += 7
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after

    def _fields(self, at: Numbers, stops: Numbers) -> tuple[_Fields, Numbers]:
        """The byte strings at these positions, and the positions after them."""
        sizes, at = self._varints(at)
        if (sizes < -1).any() or (sizes > stops - at).any() or (at > stops).any():
            raise _Inconsistent("a field reaches beyond its record")
        return _Fields(at, sizes), at + np.maximum(sizes, 0)

    def _headers(self, at: Numbers, stops: Numbers) -> tuple[pa.Array, _Fields]:
        """The keys and values of all headers, which begin at these positions."""
        counts = self._header_counts
        if (counts < 0).any() or (counts > (stops - at) // _HEADER_BYTES_MIN).any() or (at > stops).any():
            raise _Inconsistent("a record declares more headers than it has bytes for")
        firsts = np.cumsum(counts) - counts
        keys, values = (_Fields(*np.zeros((2, int(counts.sum())), np.int64)) for _ in range(2))
        at = at.copy()
        left, number = np.flatnonzero(counts), 0
        while len(left) >= _ROUND_RECORDS_MIN:  # the next header of each record that has one
            places = firsts[left] + number
            (keys.start[places], keys.size[places]), after = self._fields(at[left], stops[left])
            (values.start[places], values.size[places]), at[left] = self._fields(after, stops[left])
            number += 1
            left = left[counts[left] > number]
        for record in left.tolist():
            starts, sizes = array("q"), array("q")
            count = int(counts[record]) - number
            at[record] = _skip_sized(self._data, int(at[record]), 2 * count, starts, sizes)
            these = slice(firsts[record] + number, firsts[record] + number + count)
            keys.start[these], keys.size[these] = starts[::2], sizes[::2]
            values.start[these], values.size[these] = starts[1::2], sizes[1::2]
        if (at != stops).any() or (keys.size < 0).any() or (values.size < -1).any():
            raise _Inconsistent("a record does not end where its last header ends")
        return self._names(keys), values

    def _names(self, keys: _Fields) -> pa.Array:
        try:
            return self.bytes_at(keys).cast(pa.string())
        except pa.ArrowInvalid:
            raise _Inconsistent("the key of a header is not UTF-8") from None


def _skip_records(data: bytes, position: int, count: int, places: array[int]) -> int:
    """Appends the places of `count` records, and returns the end of the last one.

    This loop takes a third of the decoding, so sizes of one and of two bytes are read without a call.
    """
    add = places.append
    try:
        for _ in range(count):
            add(position)
            size = data[position]
            if size <= 0x7F:
                position += 1
            elif (octet := data[position + 1]) <= 0x7F:
                size += (octet << 7) - 0x80
                position += 2
            else:
                size, position = _long_size(data, position)
            if size & 1:
                raise _Inconsistent("a record declares a size below 0")
            position += size >> 1
    except (IndexError, OverflowError):
        raise _Inconsistent("a size reaches beyond the end of a batch") from None
    return position


def _long_size(data: bytes, position: int) -> tuple[int, int]:
    """The varint at a position, as a number without its sign, and the position after it."""
    size, shift, octet = 0, 0, 0x80
    while octet > 0x7F:
        if shift > _SHIFT_MAX:
            raise _Inconsistent("a size has more than 64 bits")
        octet = data[position]
        position += 1
        size |= (octet & 0x7F) << shift
        shift += 7
    return size, position


def _skip_sized(data: bytes, position: int, count: int, starts: array[int], sizes: array[int]) -> int:
    """Appends the starts and sizes of `count` byte strings, each of which follows its size, and returns the end of the
    last one."""
    try:
        for _ in range(count):
            size, position = _long_size(data, position)
            size = (size >> 1) ^ -(size & 1)
            starts.append(position)
            sizes.append(size)
            position += max(size, 0)
    except (IndexError, OverflowError):
        raise _Inconsistent("a size reaches beyond the end of a batch") from None
    return position


class _Headers:
    """The headers of batches, as columns."""

    def __init__(self, gathered: Sequence[_Gathered]) -> None:
        self._each = np.frombuffer(b"".join([each.batch[:HEADER_BYTES] for each in gathered]), _HEADER)

    def of_records(self, name: str) -> Numbers:
        """A field of the header of each record's batch."""
        return np.repeat(self._each[name].astype(np.int64), self._each["records_count"])


def _times(deltas: Numbers, headers: _Headers) -> tuple[Numbers, npt.NDArray[np.int32]]:
    """The timestamp of each record in milliseconds, and its type: 0 for create time, 1 for log append time."""
    appended = headers.of_records("attributes") & LOG_APPEND_TIME != 0
    bases, latest = headers.of_records("base_timestamp"), headers.of_records("max_timestamp")
    if (np.maximum(np.abs(deltas), np.abs(bases)) >= _HALF).any():
        raise _Inconsistent("a timestamp has more than 64 bits")
    times = np.where(appended, latest, bases + deltas)
    if (np.abs(times) > _MILLISECONDS_MAX).any():
        raise _Inconsistent(f"a timestamp is more than {_MILLISECONDS_MAX} ms from 1970")
    return times, appended.astype(np.int32)


def _offsets(deltas: Numbers, headers: _Headers) -> Numbers:
    """The offset of each record."""
    if (deltas < 0).any() or (deltas > headers.of_records("last_offset_delta")).any():
        raise _Inconsistent("an offset is not within the bounds of its batch's header")
    offsets = headers.of_records("base_offset") + deltas
    if (np.diff(offsets) <= 0).any():
        raise _Inconsistent("an offset is not above the offset before it")
    return offsets
