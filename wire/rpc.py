"""Frames between gnomon's own processes: `u32 length | u32 head bytes | head | attachment`, all big-endian.

The head is a msgpack list that begins with the kind of the frame; the attachment is opaque bytes.

1. Every fault of a frame is a `MalformedRpc`, whatever the bytes are.
2. Allocation follows the bytes that arrived: a list or map of msgpack is created only after all its elements were
   found.
3. An attachment above a small size is not copied: `encode` passes on the caller's buffer, and `decode` returns a view.
4. The head of a client's call has at most the bytes, and the items of lists and maps, of its method's `HeadLimit`: an
   item takes one byte there, and some 60 bytes in memory. The name of a method has at most METHOD_BYTES_MAX bytes. A
   server is trusted: one change of the metadata may be many events.
5. After `decode` the fields of a head have the types of the table below; the meaning of methods and values is not
   checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from gnomon.wire.frame_reader import FrameReader, foreign_protocol

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = "gnomon"
VERSIONS: Final = (1,)
"""Versions of this protocol that this code supports; two peers use the highest that both have."""
FRAME_BYTES_MAX: Final = 128 << 20
"""Room for the largest record batch that a broker takes by default (100 MiB), with its entry's headers."""
STREAM_WINDOW_BYTES: Final = 256 << 10
"""The most bytes of one stream that a server may send before its client says MORE; the item that crosses it is sent
whole."""

HELLO_BYTES_MAX: Final = 1 << 10
"""The largest first frame of a client: nothing is known about its sender."""
METHOD_BYTES_MAX: Final = 1 << 10
"""The longest name of a method."""

_PREFIX: Final = Struct(">II")
_HEAD_BYTES: Final = Struct(">I")
_METHOD_ENDS_AT: Final = METHOD_BYTES_MAX + 32
"""A method's name ends before this position of a head: the fields before it are two numbers."""
_JOINED_BYTES_MAX: Final = 1024
"""Attachments up to this size are copied, which is cheaper than a chunk of their own."""


class FrameKind(IntEnum):
    """The kind of a frame, with the fields of its head. The client assigns ids, which are valid for one connection."""

    HELLO = 0  # magic, versions, service, cluster id or None: the first frame of a client
    WELCOME = 1  # version, cluster id or None: the first frame of a server
    REFUSED = 2  # text: instead of a welcome
    CALL = 3  # id, method, arguments (attachment): answered by RESULT or ERROR
    RESULT = 4  # id, value (attachment)
    ERROR = 5  # id, name, fields, text: ends a call or a stream
    ITEM = 6  # id, value: one of a stream
    END = 7  # id: the stream is over
    MORE = 8  # id, bytes: the client has consumed that many bytes of a stream's items
    CANCEL = 9  # id: the client no longer wants an answer
    TELL = 10  # method, arguments (attachment): a call without an answer
    PING = 11
    PONG = 12
    OPEN = 13  # id, method, arguments (attachment): a call answered by ITEMs, then END or ERROR


# Plain numbers for the drivers' hot paths: an IntEnum's member costs more to compare and to encode.
HELLO, WELCOME, REFUSED, CALL, RESULT, ERROR, ITEM, END, MORE, CANCEL, TELL, PING, PONG, OPEN = map(int, FrameKind)
_CALL_KINDS: Final = (CALL, TELL, OPEN)

_ANY: Final = object
_SHAPES: Final[tuple[tuple[Any, ...], ...]] = (
    (int, str, list, str, _ANY),
    (int, int, _ANY),
    (int, str),
    (int, int, str, list),
    (int, int, _ANY),
    (int, int, str, list, str),
    (int, int, _ANY),
    (int, int),
    (int, int, int),
    (int, int),
    (int, str, list),
    (int,),
    (int,),
    (int, int, str, list),
)
_LENGTHS: Final = tuple(map(len, _SHAPES))
_TYPES: Final = tuple(tuple(part for part in shape if part is not _ANY) for shape in _SHAPES)
_TYPE_COUNTS: Final = tuple(map(len, _TYPES))

# One packer for all: 0.3 µs instead of 1.1 µs a head. It keeps nothing between two calls.
_pack: Final = msgpack.Packer().pack
# The bytes that begin a list or map of declared length; they may also occur inside a text or a number.
_long_container = re.compile(rb"[\xdc-\xdf]").search


class MalformedRpc(Exception):
    """The bytes break the protocol; the text says how. The connection cannot continue."""


class HeadLimit(NamedTuple):
    """The largest head that a call of one method may have."""

    bytes_max: int = 1 << 20
    """Larger data belongs into the attachment."""
    items_max: int = 5_000
    """Unpacking as many takes some 1 ms."""


class HeadLimits:
    """The largest heads of the calls of a service, which its clients and servers share (invariant 4)."""

    def __init__(self, longer: Mapping[str, HeadLimit] = MappingProxyType({})) -> None:
        """`longer` names the methods whose limit is not the default."""
        self._longer = longer
        self.bytes_max = max(limit.bytes_max for limit in (DEFAULT_HEAD, *longer.values()))
        """The most bytes of any head."""

    def of_method(self, method: str | None) -> HeadLimit:
        """The limit of a method's calls; None for a frame that is no call."""
        return DEFAULT_HEAD if method is None else self._longer.get(method, DEFAULT_HEAD)


DEFAULT_HEAD: Final = HeadLimit()
DEFAULT_HEADS: Final = HeadLimits()


class RpcFrameReader(FrameReader):
    """Splits the byte stream of one connection into frames."""

    __slots__ = ("_head_bytes_max",)

    def __init__(self, frame_bytes_max: int, head_bytes_max: int | None = None) -> None:
        """`head_bytes_max` is the most of any method; None for a server's frames (invariant 4)."""
        super().__init__(frame_bytes_max)
        self._head_bytes_max = head_bytes_max

    def check_unfinished(self) -> None:
        """See `FrameReader.check_unfinished`; refuses a head that is too large (invariant 4)."""
        if self._head_bytes_max is not None and self._end - self._start >= _PREFIX.size:
            head_bytes = _PREFIX.unpack_from(self._buffer, self._start)[1]
            if head_bytes > self._head_bytes_max:
                raise _too_large_head(head_bytes, self._head_bytes_max)

    def bad_length(self, size: int) -> MalformedRpc:
        """Why a frame of `size` bytes (as a signed number) is refused."""
        foreign = foreign_protocol(size)
        if foreign is not None:
            advice = ": metrics are on the admin port" if foreign == "HTTP" else ""
            return MalformedRpc(f"the peer speaks {foreign}, this port does not{advice}")
        return MalformedRpc(
            f"a frame declares {size & 0xFFFFFFFF} bytes, {self.frame_bytes_max} are allowed: is the peer a gnomon?"
        )


def encode(head: list[Any], attachment: Buffer = b"") -> list[Buffer]:
    """A frame as a scatter list; a larger attachment is included uncopied, so its buffer must live until it is sent.

    Raises:
        TypeError, ValueError, OverflowError: msgpack has no form for a field.
    """
    packed = _pack(head)
    size = len(packed)
    if not attachment:
        return [_PREFIX.pack(size + 4, size) + packed]
    if len(attachment) <= _JOINED_BYTES_MAX:
        return [b"".join((_PREFIX.pack(size + 4 + len(attachment), size), packed, attachment))]
    return [_PREFIX.pack(size + 4 + len(attachment), size) + packed, attachment]


def oversize(chunks: list[Buffer], frame_bytes_max: int, limit: HeadLimit | None = None) -> str | None:
    """The reason why a frame of `encode` is too large to be sent; None if it is not.

    Args:
        limit: of its head; None for a server's frame (invariant 4).
    """
    size = sum(map(len, chunks))
    if size > frame_bytes_max:
        return f"{size} bytes, {frame_bytes_max} are allowed"
    if limit is None or len(chunks[0]) <= limit.items_max:
        return None
    _, head_bytes = _PREFIX.unpack_from(chunks[0])
    if head_bytes > limit.bytes_max:
        return f"{head_bytes} bytes besides its attachment, {limit.bytes_max} are allowed"
    if head_bytes > limit.items_max:
        try:
            _unpack_counted(memoryview(chunks[0])[_PREFIX.size : _PREFIX.size + head_bytes], limit.items_max)
        except ValueError:
            return f"more than {limit.items_max} items"
    return None


def decode(frame: memoryview, limits: HeadLimits | None = None) -> tuple[list[Any], memoryview]:
    """Head and attachment of a frame (its body, without the length); the attachment is a view of it.

    Args:
        limits: of the heads; None for a server's frames (invariant 4).

    Raises:
        MalformedRpc: the frame is not valid.
    """
    if len(frame) < 4:
        raise MalformedRpc(f"a frame of {len(frame)} bytes has no room for a head")
    (head_bytes,) = _HEAD_BYTES.unpack_from(frame)
    stop = head_bytes + 4
    if stop > len(frame):
        raise MalformedRpc(f"a head declares {head_bytes} bytes, the frame has {len(frame) - 4} left")
    packed = frame[4:stop]
    try:
        items_max = None
        if limits is not None and head_bytes > METHOD_BYTES_MAX:
            bytes_max, items_max = limits.of_method(_method_of(packed))
            if head_bytes > bytes_max:
                raise _too_large_head(head_bytes, bytes_max)
        if _long_container(packed) is not None:
            _walk(packed)
        # An item takes a byte at least: a short head has too few items to be counted.
        if items_max is not None and head_bytes > items_max:
            head = _unpack_counted(packed, items_max)
        else:
            head = msgpack.unpackb(packed)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedRpc(f"a head is not msgpack: {error or type(error).__name__}") from None
    if type(head) is not list or not head or type(head[0]) is not int or not 0 <= head[0] < len(_SHAPES):
        raise MalformedRpc("a head is no list that begins with the kind of its frame: is the peer a newer gnomon?")
    kind = head[0]
    if len(head) != _LENGTHS[kind] or tuple(map(type, head[: _TYPE_COUNTS[kind]])) != _TYPES[kind]:
        raise MalformedRpc(f"a {FrameKind(kind).name} has fields that it should not have: is the peer a newer gnomon?")
    return head, frame[stop:]


def _too_large_head(head_bytes: int, bytes_max: int) -> MalformedRpc:
    return MalformedRpc(f"a head has {head_bytes} bytes, {bytes_max} are allowed: send less at a time")


def _method_of(packed: memoryview) -> str | None:
    """The method that a head of more than METHOD_BYTES_MAX bytes names, of which only the beginning is unpacked.

    Returns:
        None for a frame that is no call.

    Raises:
        MalformedRpc: the name is too long.
        ValueError, msgpack.UnpackException: the beginning is not valid.
    """
    beginning = msgpack.Unpacker(max_str_len=METHOD_BYTES_MAX)
    beginning.feed(packed[:_METHOD_ENDS_AT])
    try:
        beginning.read_array_header()
        kind = beginning.unpack()
        if kind not in _CALL_KINDS:
            return None
        if kind != TELL:
            beginning.unpack()
        method = beginning.unpack()
    except msgpack.OutOfData:
        raise MalformedRpc(f"the name of a method has more than {METHOD_BYTES_MAX} bytes") from None
    return method if type(method) is str else None


def _unpack_counted(packed: memoryview, items_max: int) -> Any:
    """Unpacks a head.

    Raises:
        ValueError: it has more than `items_max` items, or is not valid.
    """
    left = items_max

    def count(items: Any) -> Any:
        nonlocal left
        left -= len(items)
        if left < 0:
            raise ValueError(f"more than {items_max} items: send fewer at a time")
        return items

    return msgpack.unpackb(packed, list_hook=count, object_hook=count, max_array_len=items_max, max_map_len=items_max)


def _walk(packed: memoryview) -> None:
    """Scans a whole head without creating objects (invariant 2).

    Raises:
        ValueError, msgpack.UnpackException: it ends before its elements do, or they are not valid.
    """
    walker = msgpack.Unpacker(max_buffer_size=max(len(packed), 1))
    walker.feed(packed)
    walker.skip()
