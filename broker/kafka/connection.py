"""One Kafka connection without its socket: bytes in → requests out, replies in → bytes out in request order.

1. Replies leave in the order of their requests (Kafka's rule), whatever order they were made in.
2. A request counts against the connection's and the broker's memory from its arrival until its reply has left.
3. Over either limit, or while the peer does not take what it asked for, nothing more is read from this peer alone.
4. A request that waits (a long poll) is told when another one arrives behind it, since it delays that one's reply.
5. A frame that cannot be understood ends the connection, with a log line that says why; nobody else notices.
6. A request that holds the connection is answered before the next one is taken, which sees what it has changed.
7. An idle connection is ended: nothing came or left for the time given, nothing is in flight or waits for memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from gnomon.broker.kafka.exchange import Exchange, Shortcut
from gnomon.broker.kafka.request_memory import RequestMemory
from gnomon.runtime.world import Buffer, Connection
from gnomon.wire.kafka.api import request_header_version
from gnomon.wire.kafka.frame import (
    CORRELATION_ID_AT,
    FrameReader,
    MalformedFrame,
    RequestHeader,
    parse_request_header,
)

BACKLOG_BYTES_MAX = 4 << 20
"""Bytes a peer may leave untaken before its next requests wait; or of answers ready behind one that is not."""
UNFINISHED_BYTES_FREE = 64 << 10
"""A part of a request up to this size is not counted: every connection may have one."""
UNFINISHED_SECONDS_MIN = 0.01
"""What the youngest counts for, so that among those that came at once the largest goes."""
REQUESTS_IN_FLIGHT_MAX = 1024
IDLE_LOOK_SECONDS_MIN = 1.0
"""How soon a busy connection is looked at again at the earliest, however short the time allowed is."""
REQUEST_BYTES_MIN = 256
"""What the smallest request counts for: its bookkeeping is not free either."""

_CORRELATION_ID = Struct(">i")


class KafkaConnection:
    """The stream handler of one client."""

    def __init__(
        self,
        transport: Connection,
        memory: RequestMemory,
        dispatch: Callable[[Exchange, memoryview, RequestHeader], None],
        answered: Callable[[list[Exchange], float], None],
        ended: Callable[[KafkaConnection, str | None], None],
        clock: Callable[[], float],
        *,
        frame_bytes_max: int,
        request_bytes_max: int,
    ) -> None:
        self.transport = transport
        self.closed_by_peer = False
        self.shortcut: Shortcut | None = None
        """Set by a handler that can tell the next request of its kind by its bytes."""
        self._frames = FrameReader(frame_bytes_max)
        self._memory = memory
        self._dispatch = dispatch
        self._answered = answered
        self._clock = clock
        self._now = clock()
        self._left_at = self._now
        """When an answer left last, or the peer had taken all."""
        self._backlog_looked_at = 0
        self._left: list[Exchange] = []
        self._backlog_counted = 0
        self._ready_bytes = 0
        """Of answers that wait for those before them."""
        self._unfinished_bytes = 0
        self._unfinished_since = self._now
        self._ended = ended
        self._request_bytes_max = request_bytes_max
        self._exchanges: deque[Exchange] = deque()
        self._request_bytes = 0
        self._outgoing: list[Buffer] = []
        self._paused = False
        self._working = False
        self._holding: Exchange | None = None
        self._reason: str | None = None
        self._finishing = False

    # --- the stream ---------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Room for the next bytes."""
        return self._frames.receive_buffer()

    def received(self, count: int) -> None:
        """Bytes have arrived."""
        self._frames.received(count)
        self._work()
        if self._frames.buffered_bytes > UNFINISHED_BYTES_FREE or self._unfinished_bytes:
            self._count_unfinished(self._frames.buffered_bytes)

    def drained(self) -> None:
        """The peer has taken everything."""
        self._left_at = self._clock()
        self._count_backlog(0)
        self.go_on()

    def closed(self) -> None:
        """The stream is gone: requests in flight are finished, their replies dropped."""
        self.closed_by_peer = True
        self._memory.forget(self)
        self._count_backlog(0)
        self._count_ready(-self._ready_bytes)
        self._count_unfinished(0)
        for exchange in list(self._exchanges):
            self._cut(exchange)
        self._memory.give_back(self._request_bytes)
        self._request_bytes = 0
        self._exchanges.clear()
        self._outgoing.clear()
        self._frames.discard()  # now, not once the collector finds stream and handler
        self._ended(self, self._reason)

    # --- requests -----------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Room may have come free: handle what waits in the buffer and read again."""
        if self._finishing:
            if not self._exchanges:
                self.transport.close()
        elif self._paused and self._reason is None and self._ready_bytes <= BACKLOG_BYTES_MAX:
            if not self._must_wait():
                self._resume()
                self._work()
            elif self._memory.full():
                self._memory.wait(self)

    def _work(self) -> None:
        if self._working or self.closed_by_peer:
            return
        self._working = True
        self._now = self._clock()  # once a turn: reading it for every request cost 5 % of a small one
        try:
            while not self._paused:
                frame = self._frames.next_frame()
                if frame is None:
                    break
                self._take(frame)
                if self._must_wait():
                    self._send()
                    if self._must_wait():
                        self._pause()
        except MalformedFrame as error:
            self.refuse(str(error))
        finally:
            self._working = False
        self._send()

    def _take(self, frame: memoryview) -> None:
        shortcut = self.shortcut
        if shortcut is not None and shortcut.fits(frame):
            header = shortcut.header
        else:
            shortcut = None
            header = parse_request_header(frame, _is_flexible)
        if self._exchanges:
            self._cut(self._exchanges[-1])
        exchange = Exchange(self, header, max(len(frame), REQUEST_BYTES_MIN), self._now)
        self._exchanges.append(exchange)
        self._request_bytes += exchange.size
        self._memory.take(exchange.size)
        if shortcut is not None:
            (exchange.correlation_id,) = _CORRELATION_ID.unpack_from(frame, CORRELATION_ID_AT)
            shortcut.handle(exchange, frame)
        else:
            self._dispatch(exchange, frame, header)

    @staticmethod
    def _cut(exchange: Exchange) -> None:
        cut_short = exchange.cut_short
        if cut_short is not None:
            exchange.cut_short = None
            cut_short()

    def hold(self, exchange: Exchange) -> None:
        """The request is to be answered before the next one is taken; call it before the answer is given."""
        self._holding = exchange

    def _must_wait(self) -> bool:
        return (
            self._holding is not None
            or self._request_bytes >= self._request_bytes_max
            or len(self._exchanges) >= REQUESTS_IN_FLIGHT_MAX
            or self.transport.backlog_bytes > BACKLOG_BYTES_MAX
            or self._memory.full()
        )

    def _pause(self) -> None:
        self._paused = True
        self.transport.pause_reading()
        if self._memory.full():
            self._memory.wait(self)

    def _resume(self) -> None:
        self._paused = False
        self.transport.resume_reading()

    def refuse(self, reason: str) -> None:
        """Ends the connection after what was answered so far."""
        if self._reason is None:
            self._reason = reason
            self._paused = True
            self._send()
            self._frames.discard()
            self._count_unfinished(0)
            self.transport.pause_reading()
            self.transport.close()

    def end_if_idle(self, now: float, idle_seconds: float) -> float:
        """Ends the connection if it has been idle for so long.

        Returns:
            When to look again, by the driver's clock; infinite where it has ended.
        """
        due = max(self._now, self._left_at) + idle_seconds
        if now < due:
            return due
        backlog_before, self._backlog_looked_at = self._backlog_looked_at, self.transport.backlog_bytes
        # What the peer takes of an answer is seen here alone; what it sends while it is not read, never.
        unread = self._paused and not self._backlog_looked_at
        if self._exchanges or unread or self._backlog_looked_at != backlog_before:
            return now + max(idle_seconds, IDLE_LOOK_SECONDS_MIN)
        self.finish()
        return math.inf

    def finish(self) -> None:
        """Takes no more requests, and ends once all in flight are answered."""
        if self._reason is None:
            self._finishing = self._paused = True
            self.transport.pause_reading()
            for exchange in list(self._exchanges):
                self._cut(exchange)
            self.flush()

    # --- replies ------------------------------------------------------------------------------------------------

    def replied(self, exchange: Exchange, chunks: Sequence[Buffer], flush: bool) -> None:
        """An exchange has its answer; see `Exchange.reply`."""
        exchange.cut_short = None
        if self.closed_by_peer:
            return
        held = self._holding is exchange
        if held:
            self._holding = None
        exchanges = self._exchanges
        if exchanges[0] is not exchange:
            exchange.reply_chunks = [bytes(chunk) if type(chunk) is memoryview else chunk for chunk in chunks]
            self._count_ready(sum(map(len, chunks)))
            if self._ready_bytes > BACKLOG_BYTES_MAX and not self._paused:
                self._pause()
            elif held:
                self.go_on()
            return
        self._leave(exchange, chunks)
        while exchanges and (ready := exchanges[0].reply_chunks) is not None:
            self._count_ready(-sum(map(len, ready)))
            self._leave(exchanges[0], ready)
        if flush:
            self.flush()

    def _leave(self, exchange: Exchange, chunks: Sequence[Buffer]) -> None:
        self._exchanges.popleft()
        self._outgoing.extend(chunks)
        self._request_bytes -= exchange.size
        self._left.append(exchange)
        self._memory.give_back(exchange.size)

    def flush(self) -> None:
        """Hands everything that may leave to the transport, in one call, and goes on where that made room."""
        self._send()
        self.go_on()

    def answer_room(self) -> int:
        """Bytes that one more answer may have, so that peers which do not read cannot fill the memory.

        At 0 one batch is still given, or the peer could not go on; at -1 it has enough to take before the next one.
        """
        if self._ready_bytes + self.transport.backlog_bytes > BACKLOG_BYTES_MAX:
            return -1
        return self._memory.backlog_room()

    def _count_ready(self, count: int) -> None:
        self._ready_bytes += count
        self._memory.backlog_bytes += count

    def _count_unfinished(self, unfinished_bytes: int) -> None:
        memory, before = self._memory, self._unfinished_bytes
        if not before or unfinished_bytes <= before:  # the request that came has become whole
            self._unfinished_since = self._now
        memory.unfinished_bytes += unfinished_bytes - before
        self._unfinished_bytes = unfinished_bytes
        if not unfinished_bytes:
            memory.unfinished.pop(self, None)
            return
        memory.unfinished[self] = None
        if memory.unfinished_bytes > memory.bytes_max:
            # Waiting would not help: what others have not finished either is what fills the memory. It is not the one
            # that sends just now who has to go, or a few slow peers would lock out all others.
            max(memory.unfinished, key=lambda connection: connection._unfinished_weight(self._now)).refuse(
                f"{memory.unfinished_bytes} bytes of unfinished requests are in memory, {memory.bytes_max} are "
                "allowed, and this one's held most for longest: see broker.request_queue_bytes_max"
            )

    def _unfinished_weight(self, now: float) -> tuple[bool, float]:
        """What its unfinished request costs, in byte seconds; one that is not read can do nothing about it."""
        seconds = now - self._unfinished_since + UNFINISHED_SECONDS_MIN
        return not self._paused, self._unfinished_bytes * seconds

    def _count_backlog(self, backlog_bytes: int) -> None:
        self._memory.backlog_bytes += backlog_bytes - self._backlog_counted
        self._backlog_counted = backlog_bytes

    def _send(self) -> None:
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self.transport.write(outgoing)
            if self.transport.backlog_bytes != self._backlog_counted:
                self._count_backlog(self.transport.backlog_bytes)
        if self._left:
            left, self._left = self._left, []
            self._left_at = now = self._clock()
            self._answered(left, now)


def _is_flexible(api_key: int, api_version: int) -> bool:
    return request_header_version(api_key, api_version) >= 2
