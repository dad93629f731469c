"""Pollers report the sockets that have events: epoll, or `selectors` on systems without epoll (macOS, the BSDs).

The loop calls the methods of an epoll instance directly. The second poller promises the same with the calls that every
system has, and is slower:

1. `poll` reports a registered socket that is READABLE or WRITABLE, as long as it is, if the loop asked for that event.
2. `poll` reports BROKEN after `hung_up`, and if the peer has reset a socket for which the loop asked no event. The
   second poller notices such a reset within QUIET_SECONDS.
3. After `forget` nothing is reported about a socket, whichever socket gets its number.
4. `wait` returns soon after a socket has an event, and after `ring`, which may be called in any thread and at any time.
5. If more sockets have events than one call of `poll` reports, all of them have their turn.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from collections.abc import Awaitable
from functools import partial
from typing import Protocol

import trio

from gnomon.runtime.world import WorldError

READABLE = 0x1
WRITABLE = 0x4
BROKEN = 0x8 | 0x10
"""Events of a socket whose peer is gone, or that was shut down both ways. All three are epoll's own numbers, which the
module `select` has on Linux only."""
QUIET_SECONDS = 0.5

EPOLL, SELECTORS, AUTO = "epoll", "selectors", "auto"
"""The values of the setting `network.poller`."""


class Poller(Protocol):
    """The waiting of one thread for the events of many sockets. Only `ring` may be called in other threads."""

    def register(self, added: socket.socket, events: int, /) -> None:
        """Adds a socket, with the events to wait for."""

    def modify(self, changed: socket.socket, events: int, /) -> None:
        """Changes the events to wait for; 0 is none."""

    def poll(self, seconds: float, events_max: int, /) -> list[tuple[int, int]]:
        """The file descriptors that have events, and the events."""

    def wait(self) -> Awaitable[None]:
        """Returns once `poll` may have something to report."""

    def hung_up(self, gone: socket.socket) -> None:
        """Reports BROKEN for a socket that was shut down both ways."""

    def forget(self, gone: socket.socket) -> None:
        """Removes a socket, which is closed next."""

    def ring(self) -> None:
        """Ends `wait`, or the next one. Has no effect after `close`."""

    def close(self) -> None:
        """Frees the descriptors of the poller."""


class UnknownPoller(WorldError):
    """This system does not have the poller that was asked for."""


def make_poller(name: str = AUTO) -> Poller:
    """A poller of this name; AUTO is epoll where the system has it.

    Raises:
        UnknownPoller: this system has no epoll.
    """
    if name != SELECTORS and hasattr(select, "epoll"):
        return EpollPoller()
    if name == EPOLL:
        raise UnknownPoller(f"this system has no epoll: set network.poller to {SELECTORS!r}, or leave it out")
    return SelectorPoller()


class EpollPoller:
    """An epoll instance: the kernel itself reports sockets that were shut down, and forgets those that are closed."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.poll = self._epoll.poll
        self.wait = partial(trio.lowlevel.wait_readable, self._epoll.fileno())
        self._bell: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ringing = threading.Lock()
        self._epoll.register(self._bell, select.EPOLLIN | select.EPOLLET)

    def hung_up(self, gone: socket.socket) -> None:
        """See `Poller.hung_up`."""

    def forget(self, gone: socket.socket) -> None:
        """See `Poller.forget`."""

    def ring(self) -> None:
        """See `Poller.ring`."""
        with self._ringing:  # otherwise the descriptor could be closed, and its number reused, before the write
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """See `Poller.close`."""
        self._epoll.close()
        with self._ringing:
            bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)


class SelectorPoller:
    """The standard library's selector of this system: kqueue on macOS and the BSDs."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._quiet: dict[int, socket.socket] = {}
        """Sockets for which no event is asked, by descriptor: a selector cannot have them."""
        self._look_at = float("inf")
        """The time at which the quiet sockets are looked at."""
        self._hung_up: dict[int, None] = {}
        self._left_out: dict[int, None] = {}
        """Sockets that had events in the last `poll` and were not reported, in order."""
        self._bell: tuple[int, int] | None = os.pipe()
        self._heard, self._rung = self._bell
        self._ringing = threading.Lock()
        for end in self._bell:
            os.set_blocking(end, False)
        self._selector.register(self._heard, selectors.EVENT_READ)

    def register(self, added: socket.socket, events: int) -> None:
        """See `Poller.register`."""
        self._selector.register(added.fileno(), _selector_events(events))

    def modify(self, changed: socket.socket, events: int) -> None:
        """See `Poller.modify`."""
        number = changed.fileno()
        if not events:
            self._become_quiet(number, changed)
        elif self._quiet.pop(number, None) is None:
            self._selector.modify(number, _selector_events(events))
        else:
            self._selector.register(number, _selector_events(events))

    async def wait(self) -> None:
        """See `Poller.wait`."""
        with trio.move_on_at(self._look_at):
            await trio.lowlevel.wait_readable(self._selector.fileno())
        if trio.current_time() >= self._look_at:
            self._look_at_quiet()

    def poll(self, seconds: float, events_max: int) -> list[tuple[int, int]]:
        """See `Poller.poll`."""
        found = dict.fromkeys(self._hung_up, BROKEN)
        for key, mask in self._selector.select(seconds):
            if key.fd == self._heard:
                os.read(self._heard, 1 << 16)
            elif key.fd not in found:
                read, write = mask & selectors.EVENT_READ, mask & selectors.EVENT_WRITE
                found[key.fd] = (READABLE if read else 0) | (WRITABLE if write else 0)
        if len(found) > events_max or self._left_out:
            order = [number for number in self._left_out if number in found]
            order += [number for number in found if number not in self._left_out]
            self._left_out = dict.fromkeys(order[events_max:])
            return [(number, found[number]) for number in order[:events_max]]
        return list(found.items())

    def hung_up(self, gone: socket.socket) -> None:
        """See `Poller.hung_up`."""
        self._hung_up[gone.fileno()] = None
        self.ring()

    def forget(self, gone: socket.socket) -> None:
        """See `Poller.forget`."""
        number = gone.fileno()
        if self._quiet.pop(number, None) is None:
            self._selector.unregister(number)
        self._hung_up.pop(number, None)
        self._left_out.pop(number, None)

    def ring(self) -> None:
        """See `Poller.ring`."""
        with self._ringing:
            if self._bell is not None:
                try:
                    os.write(self._rung, b"\0")
                except BlockingIOError:
                    pass  # it was rung often, and not heard yet

    def close(self) -> None:
        """See `Poller.close`."""
        self._selector.close()
        with self._ringing:
            bell, self._bell = self._bell, None
        for end in bell or ():
            os.close(end)

    def _become_quiet(self, number: int, changed: socket.socket) -> None:
        if number in self._quiet:
            return
        self._selector.unregister(number)
        self._quiet[number] = changed
        if self._look_at == float("inf"):
            self._look_at = trio.current_time() + QUIET_SECONDS
            self.ring()  # `wait` may have begun with the later time

    def _look_at_quiet(self) -> None:
        for number, quiet in self._quiet.items():
            if quiet.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._hung_up[number] = None
        self._look_at = trio.current_time() + QUIET_SECONDS if self._quiet else float("inf")


def _selector_events(events: int) -> int:
    return (selectors.EVENT_READ if events & READABLE else 0) | (selectors.EVENT_WRITE if events & WRITABLE else 0)
