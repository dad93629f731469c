"""Frames between gnomon's own processes: `u32 length | u32 head bytes | head | attachment`, all big-endian.

The head is a msgpack list that begins with the kind of the frame; the attachment is opaque bytes.

1. Every fault of a frame is a `MalformedRpc`, whatever the bytes are.
2. Allocation follows the bytes that arrived: a list or map of msgpack is created only after all its elements were
   found.
3. An attachment above a small size is not copied: `encode` passes on the caller's buffer, and `decode` returns a view.
4. A head from a client has at most HEAD_BYTES_MAX bytes and HEAD_ITEMS_MAX items of lists and maps: an item takes one
   byte there, and some 60 bytes in memory. A server is trusted: one change of the metadata may be many events.
5. After `decode` the fields of a head have the types of the table below; the meaning of methods and values is not
   checked here.
"""

from __future__ import annotations

import re
from enum import IntEnum
from struct import Struct
from typing import Any, Final, TypeAlias

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
HEAD_BYTES_MAX: Final = 2 << 20
"""Room for a transaction of the metadata service. Larger data belongs into the attachment."""
HEAD_ITEMS_MAX: Final = 25_000
"""Unpacking as many takes some 5 ms; the longest call of a native client has 16,000."""

_PREFIX: Final = Struct(">II")
_HEAD_BYTES: Final = Struct(">I")
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


class RpcFrameReader(FrameReader):
    """Splits the byte stream of one connection into frames."""

    __slots__ = ("_limited",)

    def __init__(self, frame_bytes_max: int, *, limited: bool = True) -> None:
        """`limited` bounds the heads (invariant 4)."""
        super().__init__(frame_bytes_max)
        self._limited = limited

    def next_frame(self) -> memoryview | None:
        """See `FrameReader.next_frame`; a head that is too large is refused before the rest of its frame arrives."""
        frame = super().next_frame()
        if frame is None and self._limited and self.buffered_bytes >= _PREFIX.size:
            head_bytes = _PREFIX.unpack_from(self._buffer, self._start)[1]
            if head_bytes > HEAD_BYTES_MAX:
                raise _too_large_head(head_bytes)
        return frame

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


def oversize(chunks: list[Buffer], frame_bytes_max: int, *, limited: bool = True) -> str | None:
    """The reason why a frame of `encode` is too large to be sent; None if it is not. `limited` bounds its head."""
    size = sum(map(len, chunks))
    if size > frame_bytes_max:
        return f"{size} bytes, {frame_bytes_max} are allowed"
    if limited and len(chunks[0]) > HEAD_BYTES_MAX:  # the length prefixes and a small attachment are included
        return f"{len(chunks[0])} bytes besides its attachment, {HEAD_BYTES_MAX} are allowed"
    return None


def decode(frame: memoryview, *, limited: bool = True) -> tuple[list[Any], memoryview]:
    """Head and attachment of a frame (its body, without the length); the attachment is a view of it.

    Args:
        limited: whether its head is bounded (invariant 4).

    Raises:
        MalformedRpc: the frame is not valid.
    """
    if len(frame) < 4:
        raise MalformedRpc(f"a frame of {len(frame)} bytes has no room for a head")
    (head_bytes,) = _HEAD_BYTES.unpack_from(frame)
    stop = head_bytes + 4
    if stop > len(frame):
        raise MalformedRpc(f"a head declares {head_bytes} bytes, the frame has {len(frame) - 4} left")
    if limited and head_bytes > HEAD_BYTES_MAX:
        raise _too_large_head(head_bytes)
    packed = frame[4:stop]
    try:
        if _long_container(packed) is not None:
            _walk(packed)
        # An item takes a byte at least: a short head has too few items to be counted.
        counted = limited and head_bytes > HEAD_ITEMS_MAX
        head = _unpack_counted(packed) if counted else msgpack.unpackb(packed)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedRpc(f"a head is not msgpack: {error or type(error).__name__}") from None
    if type(head) is not list or not head or type(head[0]) is not int or not 0 <= head[0] < len(_SHAPES):
        raise MalformedRpc("a head is no list that begins with the kind of its frame: is the peer a newer gnomon?")
    kind = head[0]
    if len(head) != _LENGTHS[kind] or tuple(map(type, head[: _TYPE_COUNTS[kind]])) != _TYPES[kind]:
        raise MalformedRpc(f"a {FrameKind(kind).name} has fields that it should not have: is the peer a newer gnomon?")
    return head, frame[stop:]


def _too_large_head(head_bytes: int) -> MalformedRpc:
    return MalformedRpc(f"a head has {head_bytes} bytes, {HEAD_BYTES_MAX} are allowed: send less at a time")


def _unpack_counted(packed: memoryview) -> Any:
    """Unpacks a head.

    Raises:
        ValueError: it has more than HEAD_ITEMS_MAX items, or is not valid.
    """
    left = HEAD_ITEMS_MAX

    def count(items: Any) -> Any:
        nonlocal left
        left -= len(items)
        if left < 0:
            raise ValueError(f"more than {HEAD_ITEMS_MAX} items: send fewer at a time")
        return items

    return msgpack.unpackb(
        packed, list_hook=count, object_hook=count, max_array_len=HEAD_ITEMS_MAX, max_map_len=HEAD_ITEMS_MAX
    )


def _walk(packed: memoryview) -> None:
    """Scans a whole head without creating objects (invariant 2).

    Raises:
        ValueError, msgpack.UnpackException: it ends before its elements do, or they are not valid.
    """
    walker = msgpack.Unpacker(max_buffer_size=max(len(packed), 1))
    walker.feed(packed)
    walker.skip()
