"""One simulated stream: a connection at each end, and a pipe in each direction (`simulated_network` has the rules)."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import trio

from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import AcceptStream, Buffer, StreamHandler
from gnomon.testing.simulation.process import SimulatedProcess
from gnomon.testing.simulation.trace import Trace

LINGER_SECONDS = 5.0
Segment: TypeAlias = tuple[float, bytes | None]
"""Arrival time, and bytes or the end of the stream."""


class Conditions(Protocol):
    """The part of `NetworkConditions` that a stream uses."""

    split_rate: float
    window_bytes: int


class Medium(Protocol):
    """The network around a stream, as the stream uses it."""

    timers: Timers
    random: random.Random
    trace: Trace

    @property
    def conditions(self) -> Conditions:
        """The current behaviour of streams."""

    def latency_seconds(self) -> float:
        """Draws one message's latency."""

    def blocked(self, source: str, target: str) -> bool:
        """Whether nothing passes this way now."""

    def powered(self, machine: str) -> bool:
        """Whether the machine is up."""


class Pipe:
    """One direction of a stream."""

    def __init__(self, medium: Medium, source: SimulatedConnection, target: SimulatedConnection) -> None:
        self.source = source
        self.target = target
        self.in_flight_bytes = 0
        self.unread: deque[memoryview] = deque()
        self.unread_bytes = 0
        self.ended = False
        self._medium = medium
        self._in_flight: deque[Segment] = deque()
        self._last_arrival = 0.0
        self._flush_waits = False
        self._is_cut = False

    @property
    def back(self) -> Pipe:
        """The other direction."""
        return self.target.outgoing

    @property
    def room_bytes(self) -> int:
        """Free bytes in the window."""
        return max(0, self._medium.conditions.window_bytes - self.in_flight_bytes - self.unread_bytes)

    def send(self, data: bytes) -> None:
        """Puts bytes on the wire, perhaps in pieces that travel apart."""
        stream, rate = self._medium.random, self._medium.conditions.split_rate
        while len(data) > 1 and stream.random() < rate:
            cut = stream.randrange(1, len(data))
            self._send(data[:cut])
            data = data[cut:]
        self._send(data)

    def end(self) -> None:
        """After the sent bytes, the target sees the end of the stream."""
        if not self._is_cut:
            self._put(None)

    def drop(self, keep: int = 0) -> None:
        """Loses the bytes in flight except the first `keep` segments, for good."""
        while len(self._in_flight) > keep:
            data = self._in_flight.pop()[1]
            self.in_flight_bytes -= len(data or b"")

    def cut(self) -> None:
        """Loses the bytes in flight and everything sent later: the stream was reset."""
        self.drop()
        self._is_cut = True

    def lose_tail(self) -> None:
        """Loses a random part of the bytes in flight."""
        self.drop(self._medium.random.randint(0, len(self._in_flight)))

    def resend(self) -> None:
        """Sends again the bytes that a cut or a dead machine held."""
        if self._in_flight:
            self._schedule(self._medium.latency_seconds())

    def flush_later(self) -> None:
        """The source learns of the space that the reader made."""
        if self.source.backlog_bytes and not self._flush_waits:
            self._flush_waits = True
            at = trio.current_time() + self._medium.latency_seconds()
            self._medium.timers.call_at(at, self._flush)

    def _send(self, data: bytes) -> None:
        if not self._is_cut:
            self.in_flight_bytes += len(data)
            self._put(data)

    def _put(self, data: bytes | None) -> None:
        self._last_arrival = max(self._last_arrival, trio.current_time() + self._medium.latency_seconds())
        self._in_flight.append((self._last_arrival, data))
        self._medium.timers.call_at(self._last_arrival, self._arrive)

    def _schedule(self, seconds: float) -> None:
        self._medium.timers.call_at(trio.current_time() + seconds, self._arrive)

    def _flush(self) -> None:
        self._flush_waits = False
        if not self._medium.blocked(self.target.machine_name, self.source.machine_name):
            self.source.flush()

    def _arrive(self) -> None:
        target = self.target
        if self._medium.blocked(self.source.machine_name, target.machine_name):
            return
        if target.silent and not self._medium.powered(target.machine_name):
            return
        now = trio.current_time()
        while self._in_flight and self._in_flight[0][0] <= now:
            data = self._in_flight.popleft()[1]
            if data is None:
                self.ended = True
            else:
                self.in_flight_bytes -= len(data)
                if target.silent:
                    self.drop()
                    self.source.reset_after(self._medium.latency_seconds())
                    return
                self.unread.append(memoryview(data))
                self.unread_bytes += len(data)
        target.pump()


class SimulatedConnection:
    """A `Connection`: one process's end of a stream."""

    outgoing: Pipe
    incoming: Pipe

    def __init__(self, medium: Medium, process: SimulatedProcess, peer: str) -> None:
        self.process = process
        self.machine_name = process.machine_name
        self.peer = peer
        self.patient = False
        """Has no meaning here: serving takes no virtual time."""
        self.name = f"{process.name}({peer})"
        self.gone = False
        self.silent = False
        """The machine lost its power: the peer gets no notice."""
        self.backlog_bytes = 0
        self._medium = medium
        self._handler: StreamHandler | None = None
        self._backlog: deque[bytes] = deque()
        self._paused = False
        self._closing = False
        self._pumping = False
        self._sent_end = False
        self._linger: Timer | None = None

    def start(self, accept: AcceptStream) -> None:
        """Gets the handler; bytes flow into it from now on."""
        if self.gone:
            self._handler = self.process.call(accept, self)
            self._medium.timers.call_at(trio.current_time(), self._report_closed)
            return
        self._handler = self.process.call(accept, self)
        self.pump()

    def write(self, chunks: Sequence[Buffer]) -> None:
        """See `Connection.write`."""
        self.process.check()
        data = b"".join(chunks)
        if self._closing or not data:
            return
        room = 0 if self._backlog else self.outgoing.room_bytes
        if room:
            self.outgoing.send(data[:room])
        if len(data) > room:
            self._backlog.append(data[room:])
            self.backlog_bytes += len(data) - room

    def pause_reading(self) -> None:
        """See `Connection.pause_reading`."""
        self.process.check()
        self._paused = True

    def resume_reading(self) -> None:
        """See `Connection.resume_reading`."""
        self.process.check()
        if self._paused:
            self._paused = False
            self._medium.timers.call_at(trio.current_time(), self.pump)

    def call_next_turn(self, call: Callable[[], None]) -> None:
        """See `Connection.call_next_turn`."""
        self.process.check()
        self._medium.timers.call_at(trio.current_time(), lambda: self.process.call(call))

    def close(self) -> None:
        """See `Connection.close`; a peer that neither reads nor closes is cut off after 5 s."""
        self.process.check()
        if self._closing:
            return
        self._closing = True
        now = trio.current_time()
        self._linger = self._medium.timers.call_at(now + LINGER_SECONDS, self._go)
        self._medium.timers.call_at(now, self.pump)
        if not self._backlog:
            self._end()

    def abort(self) -> None:
        """See `Connection.abort`."""
        self.process.check()
        self._go()

    def flush(self) -> None:
        """The transport takes as much of the backlog as fits."""
        if self.gone or not self._backlog:
            return
        while self._backlog and (room := self.outgoing.room_bytes):
            data = self._backlog.popleft()
            if len(data) > room:
                self._backlog.appendleft(data[room:])
                data = data[:room]
            self.backlog_bytes -= len(data)
            self.outgoing.send(data)
        if self._backlog:
            return
        if self._closing:
            self._end()
        elif self._handler is not None:
            self.process.call(self._handler.drained)

    def pump(self) -> None:
        """Passes arrived bytes to the handler."""
        if self._pumping or self.gone:
            return
        self._pumping = True
        incoming = self.incoming
        while incoming.unread and not self.gone:
            if self._closing:
                incoming.unread.clear()
                incoming.unread_bytes = 0
            elif self._paused or self._handler is None:
                break
            else:
                self._receive(self._handler)
        self._pumping = False
        if incoming.ended and not incoming.unread:
            self._go()

    def die(self, silent: bool) -> None:
        """The process is dead; see rules 4 and 5 of `simulated_network`."""
        self.gone = True
        self.silent = silent
        self._backlog.clear()
        self.backlog_bytes = 0
        if silent:
            self.outgoing.lose_tail()
        else:
            self._end()

    def reset_after(self, seconds: float) -> None:
        """The stream ends at that time, whatever was still to come."""
        self._medium.timers.call_at(trio.current_time() + seconds, self._go)

    def _receive(self, handler: StreamHandler) -> None:
        buffer = self.process.call(handler.receive_buffer)
        if buffer is None:  # killed, or stopped by the call
            self.gone = True
            return
        incoming = self.incoming
        count, crc = 0, 0
        limit = len(buffer)
        if limit > 1 and self._medium.random.random() < self._medium.conditions.split_rate:
            limit = self._medium.random.randint(1, min(limit, incoming.unread_bytes))
        while incoming.unread and count < limit:
            segment = incoming.unread.popleft()
            part = segment[: limit - count]
            buffer[count : count + len(part)] = part
            crc = zlib.crc32(part, crc)
            count += len(part)
            if len(part) < len(segment):
                incoming.unread.appendleft(segment[len(part) :])
        incoming.unread_bytes -= count
        self._medium.trace.add(f"{incoming.source.name} -> {self.process.name}  {count} bytes {crc:08x}")
        del buffer  # the handler may want to resize the buffer that it lent
        incoming.flush_later()
        self.process.call(handler.received, count)

    def _end(self) -> None:
        if not self._sent_end:
            self._sent_end = True
            self.outgoing.end()

    def _go(self) -> None:
        if self.gone:
            return
        self.gone = self._closing = True
        self._backlog.clear()
        self.backlog_bytes = 0
        if self._linger is not None:
            self._linger.cancel()
        self._end()
        self._medium.timers.call_at(trio.current_time(), self._report_closed)

    def _report_closed(self) -> None:
        if self._handler is not None:
            handler, self._handler = self._handler, None
            self._medium.trace.add(f"{self.name}  closed")
            self.process.call(handler.closed)
