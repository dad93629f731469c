"""The form of the file that a table is exported to, written and read in parts. Pure.

| in the file | content |
|---|---|
| 8 bytes, 4 bytes | `gnomonKV`, the number of the format |
| `H` | [topic, number of partitions, time of the export] |
| `P`, for each partition in order | [partition, revision, keys, bytes of keys and values, digest (`table_digest`)] |
| `E`, after the `P` of their partition | entries, as in a snapshot (`snapshot_form`) |
| `S` | SHA-256 over everything before |

1. A part is three numbers of 4 bytes, its length, the CRC32C of its content and the CRC32C of these two, and then the
   content: a letter and msgpack. No length counts before its CRC was compared.
2. A file that was cut off, changed or continued is refused with the position (`ExportDamaged`). Its keys are in order,
   and the digest of each partition is the one in its `P`.
3. The reader keeps at most one part in memory, of at most PART_BYTES_MAX.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
from crc32c import crc32c

from gnomon.log.tables.key_entry import KEY_BYTES_MAX
from gnomon.log.tables.snapshot_form import ENTRIES, SnapshotDamaged, decode_part
from gnomon.log.tables.table_digest import TableDigest

MAGIC: Final = b"gnomonKV"
EXPORT_FORMAT: Final = 1
PART_BYTES_MAX: Final = 256 << 20
"""Larger than the largest part of a snapshot: a page and one value."""
_HEAD, _PARTITION, _SUM = b"H", b"P", b"S"
_BEGINNING: Final = Struct(">8sI")
_LENGTHS: Final = Struct(">II")
_CRC: Final = Struct(">I")
_FRAME_BYTES: Final = _LENGTHS.size + _CRC.size
_NUMBER_MAX: Final = (1 << 63) - 1


class ExportDamaged(Exception):
    """A file is no export of a table, or not as it was written; the text says what is wrong and where."""


class ExportHead(NamedTuple):
    """The beginning of an export."""

    topic: str
    partitions: int
    exported_ms: int
    """The time of the export in milliseconds since 1970."""


class ExportedPartition(NamedTuple):
    """One partition of an export; its entries follow."""

    partition: int
    revision: int
    """The revision of which the entries are; -1 for a partition without records."""
    keys: int
    bytes_used: int
    """The bytes of keys and values."""
    digest: bytes


Entries: TypeAlias = Sequence[tuple[bytes, bytes]]
ExportEvent: TypeAlias = ExportHead | ExportedPartition | Entries


class ExportMark(NamedTuple):
    """A place in a file that is being written."""

    size_bytes: int
    sha: Any


class ExportWriter:
    """The bytes of one export; each method returns those that follow."""

    def __init__(self) -> None:
        """Nothing is written."""
        self._sha = hashlib.sha256()
        self.size_bytes = 0

    def begin(self, head: ExportHead) -> bytes:
        """The beginning of the file."""
        return self._written(_BEGINNING.pack(MAGIC, EXPORT_FORMAT) + _framed(_HEAD, msgpack.packb(list(head))))

    def partition(self, found: ExportedPartition) -> bytes:
        """The beginning of the next partition."""
        return self._written(_framed(_PARTITION, msgpack.packb(list(found))))

    def entries(self, part: bytes) -> bytes:
        """The next entries of the partition, in the form of a snapshot (`encode_entries`)."""
        assert part[:1] == ENTRIES, "a part without entries is not exported"
        return self._written(_framed(part[:1], part[1:]))

    def end(self) -> bytes:
        """The end of the file."""
        return self._written(_framed(_SUM, msgpack.packb(self._sha.digest())))

    def mark(self) -> ExportMark:
        """The present place."""
        return ExportMark(self.size_bytes, self._sha.copy())

    def back_to(self, mark: ExportMark) -> None:
        """Goes on from a mark, as if nothing had been written since; the file has to be cut there."""
        self.size_bytes, self._sha = mark.size_bytes, mark.sha.copy()

    def _written(self, data: bytes) -> bytes:
        self._sha.update(data)
        self.size_bytes += len(data)
        return data


class ExportReader:
    """Reads one export, however its bytes are divided: `feed` until the end, then `close`."""

    def __init__(self) -> None:
        """Nothing is read."""
        self._sha = hashlib.sha256()
        self._buffer = bytearray()
        self._at = 0
        """The position in the file of the first byte of the buffer."""
        self._has_begun = False
        self._head: ExportHead | None = None
        self._partition: ExportedPartition | None = None
        self._digest = TableDigest()
        self._last_key: bytes | None = None
        self._has_ended = False

    def feed(self, data: bytes) -> Iterator[ExportEvent]:
        """The events that further bytes complete.

        Raises:
            ExportDamaged: the file is not as it was written, or no export.
        """
        self._buffer += data
        if not self._has_begun:
            self._begin(is_over=False)
        while self._has_begun:
            content = self._next_part()
            if content is None:
                break
            event = self._event(content)
            self._at += _FRAME_BYTES + len(content)
            if event is not None:
                yield event

    def close(self) -> None:
        """The file ends here.

        Raises:
            ExportDamaged: it should not.
        """
        if not self._has_begun:
            self._begin(is_over=True)
        if not self._has_ended:
            raise ExportDamaged(
                f"the file is cut off: it ends at byte {self._at + len(self._buffer)}, without the sum at its end"
            )

    def _begin(self, *, is_over: bool) -> None:
        given = bytes(self._buffer[: _BEGINNING.size])
        if given[: len(MAGIC)] != MAGIC[: len(given)] or (is_over and not given):
            raise ExportDamaged(f"the file is no export of a table: it begins with {given[: len(MAGIC)]!r}")
        if len(given) < _BEGINNING.size:
            return
        _, number = _BEGINNING.unpack(given)
        if number != EXPORT_FORMAT:
            advice = "upgrade gnomon" if number > EXPORT_FORMAT else "the file is damaged"
            raise ExportDamaged(f"the file has format {number}, this gnomon reads {EXPORT_FORMAT}: {advice}")
        self._sha.update(given)
        del self._buffer[: _BEGINNING.size]
        self._at += _BEGINNING.size
        self._has_begun = True

    def _next_part(self) -> bytes | None:
        """The content of the next part, taken from the buffer; None if it is not there as a whole."""
        buffer = self._buffer
        if self._has_ended and buffer:
            raise self._damaged("something follows the end of the export")
        if len(buffer) < _FRAME_BYTES:
            return None
        frame = bytes(buffer[:_FRAME_BYTES])
        length, content_crc = _LENGTHS.unpack_from(frame)
        if _CRC.unpack_from(frame, _LENGTHS.size) != (crc32c(frame[: _LENGTHS.size]),):
            raise self._damaged("the CRC of a part's length does not fit")
        if not 0 < length <= PART_BYTES_MAX:
            raise self._damaged(f"a part has {length} bytes: 1 to {PART_BYTES_MAX} are possible")
        if len(buffer) < _FRAME_BYTES + length:
            return None
        content = bytes(memoryview(buffer)[_FRAME_BYTES : _FRAME_BYTES + length])
        if crc32c(content) != content_crc:
            raise self._damaged(f"the CRC of a part of {length} bytes does not fit")
        del buffer[: _FRAME_BYTES + length]
        if content[:1] != _SUM:
            self._sha.update(frame)
            self._sha.update(content)
        return content

    def _event(self, content: bytes) -> ExportEvent | None:
        kind = content[:1]
        if kind == ENTRIES and self._partition is not None:
            return self._entries(content)
        fields = self._unpacked(content[1:])
        if kind == _HEAD and self._head is None:
            self._head = self._checked_head(fields)
            return self._head
        if kind == _PARTITION and self._head is not None:
            return self._next_partition(self._head, fields)
        if kind == _SUM and self._head is not None:
            self._end(self._head, fields)
            return None
        raise self._damaged(f"a part of the kind {kind!r} is not expected")

    def _entries(self, content: bytes) -> Entries:
        try:
            entries, _ = decode_part(content)
        except SnapshotDamaged as error:
            raise self._damaged(str(error)) from None
        for key, _ in entries:
            if len(key) > KEY_BYTES_MAX:
                raise self._damaged(f"the key {key!r:.60} has {len(key)} bytes: {KEY_BYTES_MAX} are possible")
            if self._last_key is not None and key <= self._last_key:
                raise self._damaged(f"the key {key!r:.60} is not in order")
            self._last_key = key
        self._digest.add(entries)
        return entries

    def _next_partition(self, head: ExportHead, fields: Any) -> ExportedPartition:
        self._end_partition()
        expected = 0 if self._partition is None else self._partition.partition + 1
        if (
            type(fields) is not list
            or list(map(type, fields)) != [int, int, int, int, bytes]
            or not all(-1 <= number <= _NUMBER_MAX for number in fields[:4])
        ):
            raise self._damaged("the beginning of a partition has another form")
        found = ExportedPartition(*fields)
        if found.partition != expected or expected >= head.partitions:
            raise self._damaged(f"partition {found.partition} follows, of {head.partitions}, instead of {expected}")
        self._partition, self._digest, self._last_key = found, TableDigest(), None
        return found

    def _end_partition(self) -> None:
        wanted, found = self._partition, self._digest
        if wanted is not None and (found.keys, found.bytes_used, found.digest()) != wanted[2:]:
            raise self._damaged(
                f"partition {wanted.partition} has {found.keys} keys and the digest {found.digest().hex()}, and should "
                f"have {wanted.keys} and {wanted.digest.hex()}"
            )

    def _end(self, head: ExportHead, fields: Any) -> None:
        self._end_partition()
        count = 0 if self._partition is None else self._partition.partition + 1
        if count != head.partitions:
            raise self._damaged(f"the file has {count} of {head.partitions} partitions")
        if fields != self._sha.digest():
            raise self._damaged("the SHA-256 at the end does not fit what is before it")
        self._has_ended = True

    def _checked_head(self, fields: Any) -> ExportHead:
        if type(fields) is not list or list(map(type, fields)) != [str, int, int] or not 0 < fields[1] <= _NUMBER_MAX:
            raise self._damaged("the head has another form")
        return ExportHead(*fields)

    def _unpacked(self, packed: bytes) -> Any:
        try:
            return msgpack.unpackb(packed)
        except ValueError as error:
            raise self._damaged(f"a part cannot be decoded: {error}") from None

    def _damaged(self, text: str) -> ExportDamaged:
        return ExportDamaged(f"the file is damaged at byte {self._at}: {text}")


def _framed(kind: bytes, packed: bytes) -> bytes:
    content = kind + packed
    lengths = _LENGTHS.pack(len(content), crc32c(content))
    return lengths + _CRC.pack(crc32c(lengths)) + content
