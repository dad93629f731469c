"""Splits the bytes of one stream into frames: a length of four bytes (big-endian), then a body of that many bytes.

1. Memory follows the bytes that arrived, never a declared length. A new buffer has 16 KiB, or the size of the previous
   frame, at most 128 KiB. A full buffer at most doubles, or grows to the size of the previous frame, at most 2 MiB. A
   buffer of more than 2 MiB is anonymous memory for the declared length, whose pages exist once they are written.
2. Even if a frame of n bytes arrives in small pieces, its bytes are moved only O(log n) times, and no further than into
   that memory: moving more than some megabytes at once would hold the event loop.
3. A view from `next_frame` is valid until the next `receive_buffer`; code that keeps the view longer copies it. A full
   buffer is replaced by a larger one and never resized, because views of it may exist.
4. After `next_frame` has handed out all received bytes and returned None, the reader holds no buffer above 16 KiB,
   except one that the caller is filling.
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Final

_SIZE: Final = Struct(">i")

RECEIVE_BYTES: Final = 16 * 1024
"""Size of a fresh receive buffer."""
_FRESH_BYTES_MAX: Final = 128 * 1024
_REMEMBERED_BYTES_MAX: Final = 2 * 1024 * 1024
_PLAIN_BYTES_MAX: Final = 2 * 1024 * 1024
"""A larger bytearray would take too long to make: it is filled with zeros."""
_NO_BYTES: Final = memoryview(bytearray())
_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN")
_TLS_HANDSHAKE: Final = b"\x16\x03"


def foreign_protocol(size: int) -> str | None:
    """The protocol, HTTP or TLS, whose first bytes were read as the refused length `size`; None for any other."""
    first = size.to_bytes(4, "big", signed=True)
    if first in _HTTP_METHODS:
        return "HTTP"
    return "TLS" if first.startswith(_TLS_HANDSHAKE) else None


class FrameReader:
    """Splits the byte stream of one connection into frames.

    A subclass for a protocol defines the error for a refused length (`bad_length`).

    Args:
        frame_bytes_max: the largest body accepted.
    """

    __slots__ = ("_buffer", "_end", "_last_frame_bytes", "_lent", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        assert frame_bytes_max > 0
        self.frame_bytes_max = frame_bytes_max
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
        """The size of the buffer now."""
        return len(self._buffer)

    def receive_buffer(self) -> memoryview:
        """The buffer for the next bytes, writable and not empty. Invalidates every view handed out before.

        Raises:
            MemoryError: there is no memory for it.
        """
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
        """A larger buffer with the bytes received so far: up to the first frame's declared end, or twice as large."""
        have = self._end
        last = self._last_frame_bytes
        if not have:
            capacity = max(RECEIVE_BYTES, min(last, _FRESH_BYTES_MAX))
        else:
            capacity = max(2 * have, min(last, _REMEMBERED_BYTES_MAX))
            frame_bytes = self._first_frame_bytes()
            if have < frame_bytes < capacity:
                capacity = frame_bytes
        if capacity <= _PLAIN_BYTES_MAX:
            grown = memoryview(bytearray(capacity))
        else:
            grown = _reserved(max(capacity, self._first_frame_bytes()))
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
            Exception: `bad_length` of a frame that declares more than `frame_bytes_max`, or a negative length; or as
                `check_unfinished`.
        """
        start, end = self._start, self._end
        body = start + 4
        if body > end:
            if start == end and not self._lent:
                self._release()
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        stop: int = body + size
        if not 0 <= size <= self.frame_bytes_max:
            raise self.bad_length(size)
        if stop > end:
            self.check_unfinished()
            return None
        self._start = stop
        self._last_frame_bytes = stop - start
        return self._buffer[body:stop]

    def check_unfinished(self) -> None:
        """Raises an error about a frame before the rest of it arrives; `_start` is its first byte."""

    def bad_length(self, size: int) -> Exception:
        """The error for a frame that declares `size` bytes."""
        raise NotImplementedError

    def discard(self) -> None:
        """Drops the received bytes: nothing more of this connection is parsed."""
        self._buffer = _NO_BYTES
        self._start = self._end = 0

    def _release(self) -> None:
        """Drops a large buffer once all of it was handed out; views keep its memory alive as long as needed."""
        self._start = self._end = 0
        if len(self._buffer) > RECEIVE_BYTES:
            self._buffer = _NO_BYTES


def _reserved(capacity: int) -> memoryview:
    """Zeros, whose pages take memory once they are written."""
    try:
        return memoryview(mmap.mmap(-1, capacity))
    except OSError as error:
        raise MemoryError(f"no memory for {capacity} bytes: {error}") from error
