"""Frames of one Kafka connection, without I/O: splits received bytes into frames, reads and writes message headers.

1. All invariants of `wire/frame_reader.py` hold.
2. Nothing is read beyond a frame. Every fault of a frame is a `MalformedFrame`; only the helpers of the hand-written
   parsers may also raise IndexError and UnicodeDecodeError, which these parsers turn into a `MalformedFrame`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from gnomon.wire import frame_reader
from gnomon.wire.kafka.primitives import (
    STRING_BYTES_MAX,
    FieldError,
    allow_elements,
    read_uvarint,
    take_elements,
    write_uvarint,
)

CORRELATION_ID_AT: Final = 4
"""Position of the four-byte correlation id in a request."""
AFTER_CORRELATION_ID: Final = CORRELATION_ID_AT + 4
HEADER_TAGS_MAX: Final = 100
"""Tagged fields of a request header; Kafka has defined none so far."""
CLIENT_ID_BYTES_MAX: Final = 1 << 10
"""The longest `client.id`: logs, quotas and groups keep it."""
_REQUEST_HEADER: Final = Struct(">hhih")
_RESPONSE_HEADER: Final = Struct(">ii")


class MalformedFrame(Exception):
    """The bytes break Kafka's protocol; the text says what and where. The connection cannot continue."""


class FrameTooLarge(MalformedFrame):
    """A frame declares more bytes than this broker accepts."""


class KafkaFrameReader(frame_reader.FrameReader):
    """Splits the byte stream of one connection into frames (`frame_bytes_max` is `socket.request.max.bytes`)."""

    __slots__ = ()

    def bad_length(self, size: int) -> MalformedFrame:
        """FrameTooLarge, or an error that names the protocol that the peer seems to use instead of Kafka's."""
        foreign = frame_reader.foreign_protocol(size)
        if foreign == "HTTP":
            return MalformedFrame(
                "the peer speaks HTTP, this is the port for Kafka's protocol: metrics are on the admin port"
            )
        if foreign == "TLS":
            return MalformedFrame("the peer speaks TLS, this port does not: set its security.protocol to PLAINTEXT")
        if size < 0:
            return MalformedFrame(f"frame declares a negative length of {size} bytes: is the peer speaking Kafka?")
        return FrameTooLarge(f"frame declares {size} bytes, socket.request.max.bytes allows {self.frame_bytes_max}")


class RequestHeader(NamedTuple):
    """The header of every request; `body_start` is the position of its message in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def parse_request_header(frame: memoryview, flexible: Callable[[int, int], bool]) -> RequestHeader:
    """Parses the request header, version 1 or 2 (with tagged fields, which are skipped).

    Args:
        frame: a frame's body.
        flexible: whether the header of (api key, version) has tagged fields; False for unknown ones.

    Raises:
        MalformedFrame: cut short, or a client id that is too long or not UTF-8.
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
        if client_id_bytes > CLIENT_ID_BYTES_MAX:
            raise MalformedFrame(f"client id has {client_id_bytes} bytes, {CLIENT_ID_BYTES_MAX} are allowed")
        client_id = decode_text(frame, 10, position)
    elif client_id_bytes != -1:
        raise MalformedFrame(f"client id declares {client_id_bytes} bytes")
    if flexible(api_key, api_version):
        allow_elements(HEADER_TAGS_MAX)
        position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_prefix(body_bytes: int, correlation_id: int, flexible: bool) -> bytes:
    """Length prefix and header, version 0 or 1, of a response whose body has `body_bytes` bytes."""
    if flexible:
        return _RESPONSE_HEADER.pack(body_bytes + 5, correlation_id) + b"\0"
    return _RESPONSE_HEADER.pack(body_bytes + 4, correlation_id)


def decode_text(frame: memoryview, start: int, stop: int) -> str:
    """The UTF-8 text between two positions inside the frame.

    Raises:
        MalformedFrame: it is not UTF-8.
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
    except FieldError as fault:
        raise MalformedFrame(f"at byte {fault.at}: {fault}") from None


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """The position after a tagged-field section (KIP-482); its fields are not read.

    Raises:
        MalformedFrame: a field that reaches beyond the frame, or more fields than `allow_elements` allowed.
    """
    count, position = read_unsigned_varint(frame, position)
    declared(count, "tagged fields", position)
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


# Shared by the parsers written by hand, Produce's and Fetch's.


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
    """The error for a field that cannot have the length that it declares."""
    left = len(frame) - position
    if size > left:
        return MalformedFrame(f"{what} at byte {position}: declares {size} bytes, {left} are left")
    return MalformedFrame(f"{what} at byte {position}: declares {size} bytes, Kafka allows 0 to {STRING_BYTES_MAX}")


def compact_length(frame: memoryview, position: int, what: str) -> tuple[int, int]:
    """The length of a compact text or array, and the position after it; IndexError at the frame's end.

    Varints of one byte are read inline, which halves the time.

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
        MalformedFrame: it is null, or more than the message may have (`allow_elements`).
    """
    count, position = compact_length(frame, position, what)
    declared(count, what, position)
    return count, position


def declared(count: int, what: str, position: int) -> None:
    """Counts elements that are declared at `position`, before they are made.

    Raises:
        MalformedFrame: the number is negative, or there are more than the message may have (`allow_elements`).
    """
    if count < 0:
        raise MalformedFrame(f"{what} declare a count of {count}")
    try:
        take_elements(count, position)
    except FieldError as fault:
        raise MalformedFrame(f"{what} at byte {position}: {fault}") from None
