"""One Kafka connection without its socket: bytes in → requests out, replies in → bytes out in request order.

1. Replies are sent in the order of their requests (Kafka's rule), also if they become ready in another order.
2. A request counts against the memory limits of the connection and of the broker from its arrival until its reply is
   sent: with its bytes, and with what its handler charges for the objects that they become.
3. Above the limit of the connection, or as long as the peer does not receive its replies, the broker stops reading from
   this peer alone. Above the limit of the broker, it stops reading from each peer that sends another request.
4. A request that waits (a long poll) is cut short, which means answered early, when another request arrives: the reply
   to the later request must not be sent before its own.
5. A malformed frame, or a request without memory for its handling, ends the connection with a log line that gives the
   reason; other connections are not affected.
6. A request that holds the connection is answered before the next one is taken, so the next one sees its effects.
7. A connection is closed after the given time without traffic, if no request is in flight and none waits for memory.
8. The requests of one connection take about 2 ms of a turn; the others follow in the next turns, after other peers'.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.broker.kafka.connections.exchange import Exchange, Shortcut
from gnomon.broker.kafka.connections.request_memory import RequestMemory
from gnomon.broker.topics.creation_budget import CreationBudget
from gnomon.runtime.loop.turn_share import TurnShare
from gnomon.runtime.world import OUT_OF_MEMORY, Buffer, Connection
from gnomon.wire.kafka.api import request_header_version
from gnomon.wire.kafka.frame import (
    CORRELATION_ID_AT,
    KafkaFrameReader,
    MalformedFrame,
    RequestHeader,
    parse_request_header,
)

BACKLOG_BYTES_MAX = 4 << 20
"""Bytes of replies that a peer has not received, or that wait for an earlier reply; above it, new requests wait."""
UNFINISHED_BYTES_FREE = 64 << 10
"""An unfinished request up to this size is not counted: every connection may have one."""
UNFINISHED_SECONDS_MIN = 0.01
"""The least age that an unfinished request counts with, so that the largest of several new ones is refused."""
REQUESTS_IN_FLIGHT_MAX = 1024
IDLE_LOOK_SECONDS_MIN = 1.0
"""The shortest time between two checks of a busy connection, even if the allowed idle time is shorter."""
REQUEST_BYTES_MIN = 256
"""The least size that a request counts with, because its bookkeeping needs memory too."""

_CORRELATION_ID = Struct(">i")


class KafkaConnection:
    """The stream handler of one client."""

    def __init__(
        self,
        transport: Connection,
        listener: str,
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
        self.listener = listener
        """The name of the listener that the client is connected to."""
        self.software = ""
        """Name and version of the client's library, if the client sent them (KIP-511)."""
        self.principal = ANONYMOUS
        """The name under which the client is authorized."""
        self._session: Session | None = None
        self.closed_by_peer = False
        self.shortcut: Shortcut | None = None
        """Set by a handler that recognizes the next request of its kind by its bytes."""
        self.creations: CreationBudget | None = None
        self._frames = KafkaFrameReader(frame_bytes_max)
        self.receive_buffer = self._frames.receive_buffer
        """The buffer for the next bytes."""
        self._memory = memory
        self._dispatch = dispatch
        self._answered = answered
        self._clock = clock
        self._now = clock()
        self._left_at = self._now
        """The last time at which a reply was sent, or the peer had received all replies."""
        self._backlog_looked_at = 0
        self._left: list[Exchange] = []
        self._backlog_counted = 0
        self._ready_bytes = 0
        """Bytes of replies that are ready and wait for earlier ones."""
        self._unfinished_bytes = 0
        self._unfinished_since = self._now
        self._ended = ended
        self._request_bytes_max = request_bytes_max
        self._exchanges: deque[Exchange] = deque()
        self._request_bytes = 0
        self._outgoing: list[Buffer] = []
        self._paused = False
        self._share = TurnShare()
        self._resting = False
        """Whether requests wait for the next turn of the event loop."""
        self._working = False
        self._holding: Exchange | None = None
        self._reason: str | None = None
        self._finishing = False

    @property
    def address(self) -> str:
        """The host of the peer, without its port."""
        return self.transport.peer.rpartition(":")[0]

    def session_of(self, client_id: str) -> Session:
        """The authorization session of a request with the client id `client_id`."""
        session = self._session
        if session is None or session.client_id != client_id or session.principal != self.principal:
            session = self._session = Session(self.principal, self.listener, client_id, self.address)
        return session

    # --- the stream ---------------------------------------------------------------------------------------------

    def received(self, count: int) -> None:
        """Called when `count` bytes have arrived in the receive buffer."""
        self._frames.received(count)
        self._work()
        if self._frames.buffered_bytes > UNFINISHED_BYTES_FREE or self._unfinished_bytes:
            self._count_unfinished(self._frames.buffered_bytes)

    def drained(self) -> None:
        """Called when the peer has received all replies."""
        self._left_at = self._clock()
        self._count_backlog(0)
        self.go_on()

    def closed(self) -> None:
        """Called when the stream is closed: requests in flight are finished, and their replies dropped."""
        self.closed_by_peer = True
        self._memory.forget(self)
        self._count_backlog(0)
        self._count_ready(-self._ready_bytes)
        self._count_unfinished(0)
        for exchange in list(self._exchanges):
            self._cut(exchange)
            if exchange.ended is not None:
                exchange.ended()
        self._memory.give_back(self._request_bytes)
        self._request_bytes = 0
        self._exchanges.clear()
        self._outgoing.clear()
        self._frames.discard()  # now, not when the garbage collector finds the stream and its handler
        self._ended(self, self._reason)

    # --- requests -----------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Continues after memory may have become free: handles the requests in the buffer and reads again."""
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
        self._now = now = self._clock()
        self._share.begin(now)
        frames = self._frames
        try:
            while not self._paused:
                frame = frames.next_frame()
                if frame is None:
                    break
                self._take(frame)
                if frames.buffered_bytes and self._share.is_spent(self._clock()):  # a lone request reads no clock
                    self._rest()
                if self._must_wait():
                    self._send()
                    if self._must_wait():
                        self._pause()
        except (MalformedFrame, MemoryError) as error:
            self.refuse(str(error) or OUT_OF_MEMORY)
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
        """Takes the next request only after this one is answered; must be called before the answer."""
        self._holding = exchange

    def release(self, exchange: Exchange) -> None:
        """See `ExchangeConnection.release`."""
        if self._holding is exchange:
            self._holding = None

    def charge(self, exchange: Exchange, count: int) -> None:
        """See `ExchangeConnection.charge`."""
        if self.closed_by_peer:
            return  # nothing would give it back: `closed` gave back everything
        exchange.size += count
        self._request_bytes += count
        self._memory.take(count)

    def refund(self, exchange: Exchange, count: int) -> None:
        """See `ExchangeConnection.refund`."""
        if self.closed_by_peer:
            return  # `closed` gave back everything
        exchange.size -= count
        self._request_bytes -= count
        self._memory.give_back(count)
        self.go_on()

    def _must_wait(self) -> bool:
        return (
            self._resting
            or self._holding is not None
            or self._request_bytes >= self._request_bytes_max
            or len(self._exchanges) >= REQUESTS_IN_FLIGHT_MAX
            or self.transport.backlog_bytes > BACKLOG_BYTES_MAX
            or self._memory.full()
        )

    def _rest(self) -> None:
        self._resting = True
        self.transport.patient = True
        self.transport.call_next_turn(self._next_turn)

    def _next_turn(self) -> None:
        self._resting = False
        self._share.renew(self._clock())
        self.go_on()

    def _pause(self) -> None:
        self._paused = True
        self.transport.pause_reading()
        if self._memory.full():
            self._memory.wait(self)

    def _resume(self) -> None:
        self._paused = False
        self.transport.resume_reading()

    def refuse(self, reason: str) -> None:
        """Ends the connection after sending the replies given so far."""
        if self._reason is None:
            self._reason = reason
            self._paused = True
            self._send()
            self._frames.discard()
            self._count_unfinished(0)
            self.transport.pause_reading()
            self.transport.close()

    def cut_off(self, reason: str) -> None:
        """See `MemoryUser.cut_off`."""
        self._reason = self._reason or reason
        self._paused = True
        self._count_backlog(0)
        self._count_ready(-self._ready_bytes)
        self.transport.abort()

    def end_if_idle(self, now: float, idle_seconds: float) -> float:
        """Ends the connection if it has been idle for `idle_seconds`.

        Returns:
            The time of the next check, by the driver's clock; infinite if the connection was ended.
        """
        due = max(self._now, self._left_at) + idle_seconds
        if now < due:
            return due
        backlog_before, self._backlog_looked_at = self._backlog_looked_at, self.transport.backlog_bytes
        # A peer's progress in receiving a reply shows here alone; bytes that it sends while it is not read never show.
        unread = self._paused and not self._backlog_looked_at
        if self._exchanges or unread or self._backlog_looked_at != backlog_before:
            return now + max(idle_seconds, IDLE_LOOK_SECONDS_MIN)
        self.finish()
        return math.inf

    def finish(self) -> None:
        """Takes no more requests, and ends the connection after all in flight are answered."""
        if self._reason is None:
            self._finishing = self._paused = True
            self.transport.pause_reading()
            for exchange in list(self._exchanges):
                self._cut(exchange)
            self.flush()

    # --- replies ------------------------------------------------------------------------------------------------

    def replied(self, exchange: Exchange, chunks: Sequence[Buffer], flush: bool) -> None:
        """Takes the reply of an exchange; see `Exchange.reply`."""
        exchange.cut_short = None
        if exchange.ended is not None:
            exchange.ended()
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
        """Passes all replies that may be sent to the transport, in one call, and continues if that freed memory."""
        self._send()
        self.go_on()

    def answer_room(self) -> int:
        """The most bytes that the next reply may have, so that peers that do not read cannot fill the memory.

        At 0 one batch is still sent, because otherwise the peer could not make progress. At -1 the peer has to receive
        earlier replies first.
        """
        if self._ready_bytes + self.transport.backlog_bytes > BACKLOG_BYTES_MAX:
            return -1
        return self._memory.backlog_room()

    @property
    def unreceived_bytes(self) -> int:
        """See `MemoryUser.unreceived_bytes`."""
        return self._ready_bytes + self._backlog_counted

    def _count_ready(self, count: int) -> None:
        self._ready_bytes += count
        self._memory.count_backlog(self, count)

    def _count_unfinished(self, unfinished_bytes: int) -> None:
        memory, before = self._memory, self._unfinished_bytes
        if not before or unfinished_bytes <= before:  # the request that was unfinished is complete
            self._unfinished_since = self._now
        memory.unfinished_bytes += unfinished_bytes - before
        self._unfinished_bytes = unfinished_bytes
        if not unfinished_bytes:
            memory.unfinished.pop(self, None)
            return
        memory.unfinished[self] = None
        if memory.unfinished_bytes > memory.bytes_max:
            # Waiting would not help, because unfinished requests of other peers fill the memory. The connection that
            # sends at this moment is not the one to refuse, or a few slow peers would lock out all others.
            max(memory.unfinished, key=lambda connection: connection.unfinished_weight(self._now)).refuse(
                f"{memory.unfinished_bytes} bytes of unfinished requests are in memory, {memory.bytes_max} are "
                "allowed, and this connection held the most for the longest: see broker.request_queue_bytes_max"
            )

    def unfinished_weight(self, now: float) -> tuple[bool, float]:
        """The cost of the unfinished request, in byte seconds; a connection that is not read sorts last."""
        seconds = now - self._unfinished_since + UNFINISHED_SECONDS_MIN
        return not self._paused, self._unfinished_bytes * seconds

    def _count_backlog(self, backlog_bytes: int) -> None:
        grown = backlog_bytes - self._backlog_counted
        self._backlog_counted = backlog_bytes
        self._memory.count_backlog(self, grown)

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
