"""Frames of one Kafka connection, sans I/O: bytes in, request bodies out; and the headers around a message.

1. Memory follows the bytes that arrived, never a declared length: the buffer starts at 16 KiB and at most doubles when
   it is full (or grows to what the last whole frame took, up to 2 MiB).
2. A frame's bytes are moved O(log n) times however they are split, and most of a big frame arrives in its place.
3. A view from `next_frame` is valid until the next `receive_buffer`: who keeps it longer copies it. A buffer with
   exported views is never resized; it is replaced.
4. An empty reader holds no large buffer.
5. Reading never goes beyond the frame; everything that is wrong with one is a `MalformedFrame`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from gnomon.wire.kafka.primitives import STRING_BYTES_MAX, Fault, read_uvarint, write_uvarint

_SIZE: Final = Struct(">i")
_REQUEST_HEADER: Final = Struct(">hhih")
_RESPONSE_HEADER: Final = Struct(">ii")

RECEIVE_BYTES: Final = 16 * 1024
"""Size of a fresh receive buffer."""
_FRESH_BYTES_MAX: Final = 128 * 1024
_REMEMBERED_BYTES_MAX: Final = 2 * 1024 * 1024
_NO_BYTES: Final = memoryview(bytearray())


class MalformedFrame(Exception):
    """The bytes break Kafka's protocol; the text says what and where. The connection cannot go on."""


class FrameTooLarge(MalformedFrame):
    """A frame declares more bytes than this broker takes."""


class FrameReader:
    """Splits the byte stream of one connection into frames.

    Args:
        frame_bytes_max: the largest body taken (Kafka's `socket.request.max.bytes`).
    """

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_last_frame_bytes", "_lent", "_start")

    def __init__(self, frame_bytes_max: int) -> None:
        assert frame_bytes_max > 0
        self._frame_bytes_max = frame_bytes_max
        self._buffer = _NO_BYTES
        self._start = 0
        self._end = 0
        self._last_frame_bytes = 0
        self._lent = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """What the buffer holds of memory now."""
        return len(self._buffer)

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go; writable and not empty. Ends the life of every view handed out before."""
        start, end = self._start, self._end
        buffer = self._buffer
        if start:
            have = end - start
            if have:
                buffer[:have] = buffer[start:end]
            self._start = 0
            self._end = end = have
        if end == len(buffer):
            buffer = self._grown()
        self._lent = True
        return buffer[end:]

    def _grown(self) -> memoryview:
        """A larger buffer with what has arrived: toward the first frame's declared end, or twice as large."""
        have = self._end
        last = self._last_frame_bytes
        if not have:
            capacity = max(RECEIVE_BYTES, min(last, _FRESH_BYTES_MAX))
        else:
            capacity = max(2 * have, min(last, _REMEMBERED_BYTES_MAX))
            frame_bytes = self._first_frame_bytes()
            if have < frame_bytes < capacity:
                capacity = frame_bytes
        grown = memoryview(bytearray(capacity))
        if have:
            grown[:have] = self._buffer[:have]
        self._buffer = grown
        return grown

    def _first_frame_bytes(self) -> int:
        """Size of the frame at the start of the buffer with its prefix; 0 while unknown."""
        return _SIZE.unpack_from(self._buffer)[0] + _SIZE.size if self._end >= _SIZE.size else 0

    def received(self, count: int) -> None:
        """`count` bytes were placed at the start of the buffer asked for last."""
        assert 0 < count <= len(self._buffer) - self._end, f"received {count} bytes, more than the buffer takes"
        self._end += count
        self._lent = False

    def next_frame(self) -> memoryview | None:
        """The next whole frame's body without its length prefix, valid until `receive_buffer`; None until it is whole.

        Raises:
            FrameTooLarge: the frame declares more than `frame_bytes_max`.
            MalformedFrame: the frame declares a negative length.
        """
        start, end = self._start, self._end
        body = start + 4
        if body > end:
            if start == end and not self._lent:
                self._release()
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        stop: int = body + size
        if not 0 <= size <= self._frame_bytes_max:
            raise _bad_length(size, self._frame_bytes_max)
        if stop > end:
            return None
        self._start = stop
        self._last_frame_bytes = stop - start
        return self._buffer[body:stop]

    def discard(self) -> None:
        """Forgets what has arrived: nothing more is read of this connection."""
        self._buffer = _NO_BYTES
        self._start = self._end = 0

    def _release(self) -> None:
        """Lets go of a large buffer once all of it was handed out; the views keep it alive while they need it."""
        self._start = self._end = 0
        if len(self._buffer) > RECEIVE_BYTES:
            self._buffer = _NO_BYTES


_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN")
_TLS_HANDSHAKE: Final = b"\x16\x03"


def _bad_length(size: int, frame_bytes_max: int) -> MalformedFrame:
    first = size.to_bytes(4, "big", signed=True)
    if first in _HTTP_METHODS:
        return MalformedFrame(
            "the peer speaks HTTP, this is the port for Kafka's protocol: metrics are on the admin port"
        )
    if first.startswith(_TLS_HANDSHAKE):
        return MalformedFrame("the peer speaks TLS, this port does not: set its security.protocol to PLAINTEXT")
    if size < 0:
        return MalformedFrame(f"frame declares a negative length of {size} bytes: is the peer speaking Kafka?")
    return FrameTooLarge(f"frame declares {size} bytes, socket.request.max.bytes allows {frame_bytes_max}")


class RequestHeader(NamedTuple):
    """What stands before every request; `body_start` is where its message begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def parse_request_header(frame: memoryview, flexible: Callable[[int, int], bool]) -> RequestHeader:
    """The request header, version 1 or 2 (with tagged fields, which are skipped).

    Args:
        frame: a frame's body.
        flexible: says for (api key, version) whether the header has tagged fields; False for what it does not know.

    Raises:
        MalformedFrame: cut short, or a client id that is no UTF-8.
    """
    size = len(frame)
    if size < 10:
        raise MalformedFrame(f"request of {size} bytes: the header alone takes 10")
    api_key, api_version, correlation_id, client_id_bytes = _REQUEST_HEADER.unpack_from(frame)
    position = 10
    client_id = None
    if client_id_bytes >= 0:
        position += client_id_bytes
        if position > size:
            raise MalformedFrame(f"client id declares {client_id_bytes} bytes, {size - 10} are left")
        client_id = decode_text(frame, 10, position)
    elif client_id_bytes != -1:
        raise MalformedFrame(f"client id declares {client_id_bytes} bytes")
    if flexible(api_key, api_version):
        position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_prefix(body_bytes: int, correlation_id: int, flexible: bool) -> bytes:
    """Length prefix and header, version 0 or 1, of a response whose body has `body_bytes` bytes."""
    if flexible:
        return _RESPONSE_HEADER.pack(body_bytes + 5, correlation_id) + b"\0"
    return _RESPONSE_HEADER.pack(body_bytes + 4, correlation_id)


def decode_text(frame: memoryview, start: int, stop: int) -> str:
    """The UTF-8 text between two positions that lie inside the frame.

    Raises:
        MalformedFrame: no UTF-8.
    """
    try:
        return str(frame[start:stop], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"text at byte {start + error.start} is not UTF-8") from None


def read_unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it.

    Raises:
        MalformedFrame: the frame ends within it, or it is longer than five bytes.
    """
    try:
        return read_uvarint(frame, position)
    except IndexError:
        raise MalformedFrame(f"frame ends at byte {len(frame)} within a varint") from None
    except Fault as fault:
        raise MalformedFrame(f"at byte {fault.at}: {fault}") from None


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """The position after a tagged-field section (KIP-482); its fields are not read.

    Raises:
        MalformedFrame: a field that reaches beyond the frame.
    """
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedFrame(f"tagged field {tag} declares {size} bytes, the frame ends at byte {len(frame)}")
    return position


def encode_unsigned_varint(value: int) -> bytes:
    """The varint of a number from 0 to 2^32 - 1."""
    if value < 0x80:
        return _ONE_BYTE_VARINTS[value]
    encoded = bytearray()
    write_uvarint(encoded, value)
    return bytes(encoded)


_ONE_BYTE_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))


# What the parsers written by hand share, Produce's and Fetch's.

ITEMS_MAX: Final = 100_000
"""Topics of a request, and partitions: what stands for one can be some ten times larger than its bytes."""


def text_at(frame: memoryview, position: int, size: int, what: str) -> tuple[str, int]:
    """The text of `size` bytes at `position`, and the position after it; UnicodeDecodeError where it is not UTF-8.

    Raises:
        MalformedFrame: it is null, too long, or reaches beyond the frame.
    """
    stop = position + size
    if not 0 <= size <= STRING_BYTES_MAX or stop > len(frame):
        raise bad_length(what, size, position, frame)
    return str(frame[position:stop], "utf-8"), stop


def bad_length(what: str, size: int, position: int, frame: memoryview) -> MalformedFrame:
    """What to say of a field that cannot have the length that it declares."""
    left = len(frame) - position
    if size > left:
        return MalformedFrame(f"{what} at byte {position}: declares {size} bytes, {left} are left")
    return MalformedFrame(f"{what} at byte {position}: declares {size} bytes, Kafka allows 0 to {STRING_BYTES_MAX}")


def compact_length(frame: memoryview, position: int, what: str) -> tuple[int, int]:
    """The length of a compact text or array, and the position after it; IndexError at the frame's end.

    Varints of one byte are read in line, which halves the time.

    Raises:
        MalformedFrame: it is null.
    """
    length = frame[position]
    position += 1
    if length > 0x7F:
        length, position = read_unsigned_varint(frame, position - 1)
    if not length:
        raise MalformedFrame(f"{what} before byte {position} is null")
    return length - 1, position


def compact_count(frame: memoryview, position: int, what: str) -> tuple[int, int]:
    """The number of elements of a compact array, and the position after it; IndexError at the frame's end.

    Raises:
        MalformedFrame: it is null, or more than `ITEMS_MAX`.
    """
    count, position = compact_length(frame, position, what)
    check_count(count, what)
    return count, position


def check_count(count: int, what: str) -> None:
    """Accepts a declared number of elements.

    Raises:
        MalformedFrame: it is negative, or more than `ITEMS_MAX`.
    """
    if not 0 <= count <= ITEMS_MAX:
        raise MalformedFrame(f"{what} declare a count of {count}: 0 to {ITEMS_MAX} are allowed")


def partitions_left(left: int, count: int) -> int:
    """How many partitions a request may still name after one more topic with `count` of them.

    Raises:
        MalformedFrame: that topic has more than are left.
    """
    left -= count or 1
    if left < 0:
        raise MalformedFrame(f"a request of more than {ITEMS_MAX} partitions")
    return left
