"""One connected socket of the loop: passes bytes to its handler and to its peer, and ends in an orderly way.

`sockets.py` lists the rules for all sockets of the loop.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gnomon.runtime.loop.poller import BROKEN, READABLE, WRITABLE
from gnomon.runtime.loop.turn_share import SHARE_SECONDS
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import OUT_OF_MEMORY, Buffer, Clock, StreamHandler

RECEIVES_MAX = 4
"""Of one stream before the next stream has its turn. None follows when SHARE_SECONDS of the turn have passed: a single
request may take some milliseconds."""
CHUNKS_MAX = 1024  # IOV_MAX
LINGER_SECONDS = 5.0

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class StreamLoop(Protocol):
    """The socket loop, as its streams use it."""

    clock: Clock
    timers: Timers
    turn_began: float
    """The time when this turn began, by `clock`."""
    receive_bytes_max: int
    """Bytes that a stream may receive in this turn."""
    scratch: memoryview
    """Room for bytes that nobody reads."""
    warn: Callable[[str], None]
    """Writes a text to the log."""

    def modify(self, source: SocketStream, events: int) -> None:
        """Changes the events that a stream waits for."""

    def call_next_turn(self, call: Callable[[], None]) -> None:
        """See `Connection.call_next_turn`."""

    def hung_up(self, source: SocketStream) -> None:
        """Has BROKEN reported for a stream that was shut down both ways."""

    def remove(self, source: SocketStream) -> None:
        """Takes a stream out of the loop and closes its socket."""


class SocketStream:
    """A `Connection`.

    Open → closing (the backlog is being sent) → lingering (our side is shut; data from the peer is dropped, so that the
    peer can read our last answer) → gone (shut both ways: the hang-up event removes it). `abort` and errors go straight
    to gone. A stream without memory for bytes that it receives or keeps is aborted, and others are served.
    """

    handler: StreamHandler

    def __init__(self, loop: StreamLoop, connected: socket.socket, peer: str) -> None:
        self.socket = connected
        self.peer = peer
        self.patient = False
        self.backlog_bytes = 0
        self._loop = loop
        self._backlog: deque[memoryview] = deque()
        self._events: int = READABLE
        self._paused = False
        self._closing = False
        self._gone = False
        self._linger: Timer | None = None

    def write(self, chunks: Sequence[Buffer]) -> None:
        """See `Connection.write`."""
        if self._closing:
            return
        if self._backlog:
            self._keep(chunks, 0)
            return
        for first in range(0, len(chunks), CHUNKS_MAX):
            some = chunks if len(chunks) <= CHUNKS_MAX else chunks[first : first + CHUNKS_MAX]
            try:
                sent = self.socket.sendmsg(some)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._go()
                return
            if sent < sum(map(len, some)):
                self._keep(chunks[first:], sent)
                return

    def _abort_without_memory(self, error: MemoryError) -> None:
        self._loop.warn(f"the connection of {self.peer} is closed: {str(error) or OUT_OF_MEMORY}")
        self.abort()

    def pause_reading(self) -> None:
        """See `Connection.pause_reading`."""
        self._paused = True
        self._set_events()

    def resume_reading(self) -> None:
        """See `Connection.resume_reading`."""
        self._paused = False
        self._set_events()

    def call_next_turn(self, call: Callable[[], None]) -> None:
        """See `Connection.call_next_turn`."""
        self._loop.call_next_turn(call)

    def close(self) -> None:
        """See `Connection.close`; a peer that neither reads nor closes is cut off after 5 s."""
        if self._closing:
            return
        self._closing = True
        self._linger = self._loop.timers.call_at(self._loop.clock.monotonic() + LINGER_SECONDS, self._go)
        if not self._backlog:
            self._shut_our_side()
        self._set_events()

    def abort(self) -> None:
        """See `Connection.abort`; a peer with unsent data sees a reset, any other the end of the stream."""
        if not self._gone:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._go()

    def abandon(self) -> None:
        """Closes the socket at the end of the loop, without a call to the handler; later calls have no effect."""
        self._gone = self._closing = True
        self.socket.close()

    def ready(self, events: int) -> None:
        """Handles the events that the poller reports."""
        if not self._gone:
            self._serve(events)
        if self._gone:
            self._loop.remove(self)
            self.handler.closed()

    def _serve(self, events: int) -> None:
        if events & WRITABLE and self._backlog:
            self._flush()
        if events & READABLE and self._events & READABLE:
            if self._closing:
                self._discard()
            else:
                self._receive()
        elif events & BROKEN:
            self._go()

    def _receive(self) -> None:
        handler, recv_into = self.handler, self.socket.recv_into
        left = self._loop.receive_bytes_max
        for _ in range(RECEIVES_MAX):
            try:
                buffer = handler.receive_buffer()
            except MemoryError as error:
                self._abort_without_memory(error)
                return
            try:
                count = recv_into(buffer, min(len(buffer), left))
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == 0:
                self._go()
                return
            try:
                handler.received(count)
            except MemoryError as error:
                self._abort_without_memory(error)
                return
            left -= count
            if count < len(buffer) or not left or self._paused or self._closing:
                return
            if self._loop.clock.monotonic() - self._loop.turn_began > SHARE_SECONDS:
                return

    def _discard(self) -> None:
        try:
            if self.socket.recv_into(self._loop.scratch) == 0:
                self._go()
        except BlockingIOError:
            pass
        except OSError:
            self._go()

    def _flush(self) -> None:
        backlog = self._backlog
        try:
            sent = self.socket.sendmsg([backlog[index] for index in range(min(len(backlog), CHUNKS_MAX))])
        except BlockingIOError:
            return
        except OSError:
            self._go()
            return
        self.backlog_bytes -= sent
        while backlog and sent >= len(backlog[0]):
            sent -= len(backlog.popleft())
        if backlog:
            backlog[0] = backlog[0][sent:]
            return
        if self._closing:
            self._shut_our_side()
        else:
            self.handler.drained()
        self._set_events()

    def _keep(self, chunks: Sequence[Buffer], skip_bytes: int) -> None:
        """Copies the bytes that the socket did not accept."""
        try:
            rest = b"".join(chunks)
        except MemoryError as error:
            self._abort_without_memory(error)
            return
        if len(rest) > skip_bytes:
            self._backlog.append(memoryview(rest)[skip_bytes:])
            self.backlog_bytes += len(rest) - skip_bytes
            self._set_events()

    def _set_events(self) -> None:
        if self._gone:
            return
        # A closing stream reads even if its handler has paused reading: only a read detects that the peer is gone.
        events = READABLE if self._closing or not self._paused else 0
        if self._backlog:
            events |= WRITABLE
        if events != self._events:
            self._events = events
            self._loop.modify(self, events)

    def _shut_our_side(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._go()

    def _go(self) -> None:
        """Drops all remaining data; the hang-up event that follows makes the loop call `closed`."""
        if self._gone:
            return
        self._gone = self._closing = True
        self._backlog.clear()
        self.backlog_bytes = 0
        if self._linger is not None:
            self._linger.cancel()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was first: its hang-up has arrived already
        self._loop.hung_up(self)
