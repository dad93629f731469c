"""The production network: one task inside Trio drives every socket through one poller, most often epoll.

With one Trio task per connection, a request costs about 20 µs more. One task for all sockets handled 138 k echoes of
64 bytes a second on 50 connections, 2.8 times the 50 k that one task per connection handled. So a connection has a
handler with callbacks, not a task. A turn is the work of this loop for the events that one wake-up reports.

1. A handler is called from the loop only, except that `accept` also runs within `connect`. A handler may call the
   methods of its connection at any time, and these methods never call the handler.
2. While the loop runs, a file descriptor is closed only when its own event is served. So an event is never taken for an
   event of a later socket with the same number.
3. `closed` is the last call to a handler and comes exactly once, except that a cancelled loop closes its sockets
   without calling handlers.
4. Streams that a handler marked `patient` are served at the end of a turn, at least one of them, until PATIENT_SECONDS
   have passed; those that are left out come first among them in the next turn. Between two turns other tasks run.
5. Calls for the next turn (`call_next_turn`) run at its end in the same way: at least one, until PATIENT_SECONDS have
   passed, the oldest first. Before such a turn threads get the interpreter's lock (`paced`).
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import trio

from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.runtime.loop.poller import BROKEN, READABLE, Poller, make_poller
from gnomon.runtime.loop.socket_stream import SocketStream
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import AcceptStream, AddressTaken, Clock, Connection, Unreachable

Address: TypeAlias = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]

EVENTS_MAX = 256  # the events of one wake-up; then other Trio tasks have their turn
ACCEPTS_MAX = 64
LISTEN_BACKLOG = 1024
ACCEPT_PAUSE_SECONDS = 0.1
RECEIVE_BYTES = 1 << 20
"""Bytes that all streams together receive in one turn, as long as each has RECEIVE_BYTES_MIN of them: receiving a MiB
takes 0.3 to 1 ms."""
RECEIVE_BYTES_MIN = 64 << 10
PATIENT_SECONDS = 0.004
"""Of each turn: the longest time that a request waits for patient streams."""

_TABLES_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class SocketLoop:
    """The production `Network`; nothing happens unless `run` is running."""

    def __init__(self, clock: Clock, warn: Callable[[str], None], poller: Poller | None = None) -> None:
        """`warn` writes a text to the log; without a `poller` the loop uses the fastest of this system."""
        self.clock = clock
        self.timers = Timers(clock)
        self.warn = warn
        self.turn_began = clock.monotonic()
        self.receive_bytes_max = RECEIVE_BYTES
        self.scratch = memoryview(bytearray(65536))
        self._poller = poller or make_poller()
        self._sources: dict[int, SocketStream | _Acceptor] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._serving = False
        self._next_turn: deque[Callable[[], None]] = deque()
        self._left_out: dict[int, None] = {}
        """Patient streams that had events in the last turn and were not served, in order."""

    async def run(self) -> None:
        """Drives all sockets until cancelled, then closes them; a handler's exception passes through."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.timers.run)
                await self._drain_forever()
        finally:
            for source in self._sources.values():
                source.abandon()
            self._sources.clear()
            self._poller.close()

    def call_soon(self, call: Callable[[], None]) -> None:
        """See `Network.call_soon`; may be called from other threads. After the end of the loop it has no effect.

        Replaces Trio's `run_sync_soon`, which costs a task of its own. That lowered a synced produce on an idle broker
        from 0.89 to 0.71 ms, and raised the produces a second on 50 connections from 14.6 k to 17.2 k.
        """
        self._calls.append(call)
        if self._serving:  # then the loop checks the queue before it waits
            return
        self._poller.ring()

    def call_next_turn(self, call: Callable[[], None]) -> None:
        """See `Connection.call_next_turn`; another task may call while the loop waits for events."""
        self._next_turn.append(call)
        if not self._serving:
            self._poller.ring()

    def _run_calls(self) -> None:
        """Runs queued calls, and the calls that these queue.

        Clears `_serving` before the last check of the queue: a thread that queued its call while `_serving` was set has
        not woken the loop, and its call would be lost otherwise.
        """
        calls = self._calls
        while True:
            while calls:
                calls.popleft()()
            self._serving = False
            if not calls:
                return
            self._serving = True

    async def _drain_forever(self) -> None:
        wait, poll, sources = self._poller.wait, self._poller.poll, self._sources
        while True:
            if self._next_turn:
                with trio.move_on_after(PAUSE_SECONDS):
                    await wait()
            else:
                await wait()
            self._serving = True
            self.turn_began = self.clock.monotonic()
            due = len(self._next_turn)
            patient: dict[int, int] = {}
            reported = poll(0, EVENTS_MAX)
            self.receive_bytes_max = max(RECEIVE_BYTES // (len(reported) or 1), RECEIVE_BYTES_MIN)
            for number, events in reported:
                source = sources.get(number)
                if source is None:
                    continue
                if source.patient:
                    patient[number] = events
                else:
                    source.ready(events)
            self._run_calls()
            if patient:
                self._serving = True
                self._serve_patient(patient)
                self._run_calls()
            if due:
                self._serving = True
                self._run_due(due)
                self._run_calls()

    def _run_due(self, due: int) -> None:
        """Runs at least one of the `due` oldest calls for this turn."""
        until = self.clock.monotonic() + PATIENT_SECONDS
        self._next_turn.popleft()()
        for _ in range(due - 1):
            if self.clock.monotonic() >= until:
                break
            self._next_turn.popleft()()

    def _serve_patient(self, reported: dict[int, int]) -> None:
        """Serves at least one of the patient streams, which are given by number with their events; the others are
        reported again."""
        queue = [number for number in self._left_out if number in reported]
        queue += [number for number in reported if number not in self._left_out]
        until, served = self.clock.monotonic() + PATIENT_SECONDS, 0
        while served < len(queue) and (not served or self.clock.monotonic() < until):
            number = queue[served]
            self._sources[number].ready(reported[number])
            served += 1
        self._left_out = dict.fromkeys(queue[served:])

    async def listen(self, host: str, port: int, accept: AcceptStream) -> _Acceptor:
        """See `Network.listen`. A name with an IPv4 address is bound to that; `::` also accepts IPv4."""
        listening = await _listening(host, port)
        acceptor = _Acceptor(self, listening, accept)
        self.add(acceptor, READABLE)
        return acceptor

    async def connect(self, host: str, port: int, accept: AcceptStream) -> Connection:
        """See `Network.connect`; the addresses of a name are tried in turn."""
        try:
            addresses = await _resolve(host, port, 0)
        except OSError as error:
            raise Unreachable(f"cannot connect to {_text(host, port)}: {error}") from error
        reason: OSError | None = None
        for address in addresses:
            try:
                connected = await _connect(address)
            except OSError as error:
                reason = error
            else:
                return self.start_stream(connected, accept, _text(host, port))
        full = reason is not None and reason.errno in _TABLES_FULL
        advice = "raise the limit of open files (ulimit -n)" if full else "is it running there?"
        raise Unreachable(f"cannot connect to {_text(host, port)}: {reason}: {advice}") from reason

    def start_stream(self, connected: socket.socket, accept: AcceptStream, peer: str) -> SocketStream:
        """Makes a connected socket a stream with a handler."""
        connected.setblocking(False)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = SocketStream(self, connected, peer)
        self.add(stream, READABLE)
        stream.handler = accept(stream)
        return stream

    def add(self, source: SocketStream | _Acceptor, events: int) -> None:
        """Adds a socket to the loop."""
        self._sources[source.socket.fileno()] = source
        self._poller.register(source.socket, events)

    def modify(self, source: SocketStream | _Acceptor, events: int) -> None:
        """Changes the events that a socket waits for."""
        self._poller.modify(source.socket, events)

    def hung_up(self, source: SocketStream | _Acceptor) -> None:
        """Has BROKEN reported for a socket that was shut down both ways."""
        self._poller.hung_up(source.socket)

    def remove(self, source: SocketStream | _Acceptor) -> None:
        """Removes a socket from the loop and closes it."""
        del self._sources[source.socket.fileno()]
        self._poller.forget(source.socket)
        source.socket.close()


async def check_address(host: str, port: int) -> None:
    """Raises AddressTaken if `Network.listen` would."""
    (await _listening(host, port)).close()


async def _listening(host: str, port: int) -> socket.socket:
    try:
        addresses = await _resolve(host, port, socket.AI_PASSIVE)
    except OSError as error:
        raise AddressTaken(f"cannot listen on {_text(host, port)}: {error}: give an address of this machine") from error
    addresses.sort(key=lambda address: address[0] != socket.AF_INET)
    family, address = addresses[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressTaken(
            f"cannot listen on {_text(host, port)}: {error.strerror}: {address_advice(error)}"
        ) from error
    return listening


async def _resolve(host: str, port: int, flags: int) -> list[Address]:
    try:
        found = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:
        raise OSError(f"{host!r} is no host name") from None
    return [(family, address) for family, _, _, _, address in found]


async def _connect(address: Address) -> socket.socket:
    family, where = address
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        code = connecting.connect_ex(where)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(connecting)
            code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            raise OSError(code, errno.errorcode.get(code, str(code)))
    except BaseException:
        connecting.close()
        raise
    return connecting


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_advice(error: OSError) -> str:
    """Advice about an address that cannot be used for listening."""
    if error.errno == errno.EADDRINUSE:
        return "stop what listens there or choose another port (0 picks a free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "choose a port from 1024 upwards"
    return "give an address of this machine"


class _Acceptor:
    """A `Listener`."""

    patient = False

    def __init__(self, loop: SocketLoop, listening: socket.socket, accept: AcceptStream) -> None:
        self.socket = listening
        self.host, self.port = listening.getsockname()[:2]
        self._loop = loop
        self._accept = accept
        self._pause: Timer | None = None
        self._closed = False

    def ready(self, events: int) -> None:
        """Accepts waiting connections."""
        if events & BROKEN:  # `close` shut it down
            self._loop.remove(self)
            return
        for _ in range(ACCEPTS_MAX):
            if self._closed:
                return
            try:
                connected, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _TABLES_FULL:
                    self._pause_accepting(error)
                    return
                continue  # the peer gave up while it waited
            self._loop.start_stream(connected, self._accept, _text(*address[:2]))

    def close(self) -> None:
        """See `Listener.close`."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.modify(self, 0)
        with suppress(OSError):  # macOS shuts no listening socket down: peers wait until this one is closed
            self.socket.shutdown(socket.SHUT_RDWR)  # refuses peers from now on and causes the hang-up that removes it
        self._loop.hung_up(self)

    def abandon(self) -> None:
        """Closes the socket at the end of the loop; `close` has no effect afterwards."""
        self._closed = True
        self.socket.close()

    def _pause_accepting(self, error: OSError) -> None:
        self._loop.modify(self, 0)
        self._pause = self._loop.timers.call_at(self._loop.clock.monotonic() + ACCEPT_PAUSE_SECONDS, self._resume)
        self._loop.warn(
            f"cannot accept more connections on {_text(self.host, self.port)}: {error.strerror}; trying again every "
            f"{ACCEPT_PAUSE_SECONDS} s: raise the limit of open files (ulimit -n) or lower broker.connections_max"
        )

    def _resume(self) -> None:
        self._pause = None
        self._loop.modify(self, READABLE)
