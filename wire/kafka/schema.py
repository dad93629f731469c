"""The codec of Kafka messages: `encode` and `decode` for every class that `fields` declares, in every version.

1. Decoding reads nothing outside the buffer, and bad input raises `MalformedMessage` and nothing else.
2. Memory follows the bytes that are there, never a declared length or count. A message with more elements than the
   caller allows is refused before the element beyond is made.
3. Unknown tagged fields are skipped (KIP-482); a known one must fill exactly the size it declares.
4. `encode` raises `InexpressibleMessage` for a value that the version cannot express. The one exception is a field that
   the version lacks and that is not `essential`: the field is left out.
5. A codec is compiled once per class and version, at its first use (`struct_codec`).
"""

from __future__ import annotations

from struct import Struct as Packed
from typing import TypeVar

from gnomon.wire.kafka import primitives
from gnomon.wire.kafka.fields import (
    LATEST,
    NEVER,
    NO_UUID,
    Field,
    FieldKind,
    ProtocolMessage,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    legacy_string,
    nullable_array,
    nullable_struct,
    octets,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from gnomon.wire.kafka.primitives import NO_BOUND, Buffer, FieldError, Reader, Writer
from gnomon.wire.kafka.struct_codec import struct_codec

__all__ = [
    "LATEST",
    "NEVER",
    "NO_UUID",
    "Buffer",
    "Field",
    "FieldKind",
    "InexpressibleMessage",
    "MalformedMessage",
    "ProtocolMessage",
    "Struct",
    "TooManyElements",
    "array",
    "boolean",
    "check_end",
    "decode",
    "decode_prefixed",
    "element_count",
    "encode",
    "encode_prefixed",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "legacy_string",
    "nullable_array",
    "nullable_struct",
    "octets",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

M = TypeVar("M", bound=ProtocolMessage)


class MalformedMessage(ValueError):
    """The bytes are not such a message; the text names message, version, field and byte position."""


class TooManyElements(MalformedMessage):
    """The message has more array elements than the caller allows."""


class InexpressibleMessage(ValueError):
    """A version cannot express the message; the text names the field and the reason."""


def decode(
    cls: type[M], version: int, buffer: Buffer, offset: int = 0, *, elements_max: int = NO_BOUND
) -> tuple[M, int]:
    """Decodes one message.

    Args:
        cls: the message class.
        version: one within `cls.VERSIONS`.
        buffer: bytes that hold the message; `records` fields of the result are views of it.
        offset: where the message begins, in bytes.
        elements_max: bound on the array elements and tagged fields of the whole message.

    Returns:
        The message and the position of the first byte after it.

    Raises:
        MalformedMessage: the bytes are not such a message.
        TooManyElements: it has more than `elements_max`.
        ValueError: the class has no such version.
    """
    read, _ = cls.CODECS.get(version) or _message_codec(cls, version)
    primitives.allow_elements(elements_max)
    try:
        return read(memoryview(buffer), offset)
    except FieldError as fault:
        where = f"{cls.__name__} v{version}: {fault.path} at byte {fault.at}"
        kind = TooManyElements if primitives.elements_taken() > elements_max else MalformedMessage
        raise kind(f"{where}: {fault.why}") from None


def encode(message: ProtocolMessage, version: int) -> bytes:
    """Encodes one message.

    Raises:
        InexpressibleMessage: the version cannot express the message: null in a field that has no null, a number out
            of range, an essential field that the version lacks.
        ValueError: the class has no such version.
    """
    cls = type(message)
    _, write = cls.CODECS.get(version) or _message_codec(cls, version)
    out = bytearray()
    try:
        write(out, message)
    except FieldError as fault:
        raise InexpressibleMessage(f"{cls.__name__} v{version}: {fault.path}: {fault.why}") from None
    return bytes(out)


_ARRAYS: dict[type[Struct], list[str]] = {}
"""The names of the array fields of each class that `element_count` has met."""


def element_count(message: Struct, most: int) -> int:
    """The number of array elements of a message, nested ones included; some number above `most` if there are more."""
    arrays = _ARRAYS.get(type(message))
    if arrays is None:
        arrays = _ARRAYS[type(message)] = [item.name for item in message.FIELDS if item.array]
    count = 0
    for name in arrays:
        items = getattr(message, name)
        if items:
            count += len(items)
            if isinstance(items[0], Struct):
                for item in items:
                    if count > most:
                        return count
                    count += element_count(item, most - count)
    return count


_PREFIX = Packed(">h")


def encode_prefixed(message: ProtocolMessage, version: int) -> bytes:
    """`encode` after its version as int16: the form in which Kafka stores records and member metadata."""
    return _PREFIX.pack(version) + encode(message, version)


def decode_prefixed(cls: type[M], buffer: Buffer) -> tuple[M, int]:
    """Decodes the whole of a buffer that `encode_prefixed` made.

    Returns:
        The message and its version.

    Raises:
        MalformedMessage: no such message, a version that the class does not have, or bytes after the end.
    """
    if len(buffer) < _PREFIX.size:
        raise MalformedMessage(f"{cls.__name__}: cut short before its version, {len(buffer)} bytes are left")
    (version,) = _PREFIX.unpack_from(buffer)
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise MalformedMessage(f"{cls.__name__}: version {version} is none of {first} to {last}")
    message, end = decode(cls, version, buffer, _PREFIX.size)
    check_end(message, buffer, end)
    return message, version


def check_end(message: ProtocolMessage, buffer: Buffer, end: int) -> None:
    """Checks that a message fills its buffer.

    Raises:
        MalformedMessage: bytes follow the message that ended at `end`.
    """
    if end != len(buffer):
        name = type(message).__name__
        raise MalformedMessage(f"{name}: {len(buffer) - end} bytes follow its end at byte {end}")


def _message_codec(cls: type[ProtocolMessage], version: int) -> tuple[Reader, Writer]:
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first} to {last}, not {version}")
    codec = cls.CODECS[version] = struct_codec(cls, version, version >= cls.FLEXIBLE)
    return codec
