"""A `RemoteBookie` whose explicit LACs travel over a network that a test holds in its hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.remote import RemoteBookie
from gnomon.metadata.client import Revision
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import Clock, Unreachable


class HandClock:
    """A clock that a test advances."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass(eq=False)
class Sent:
    """A LAC on its way to the bookie; `done` is None if it was sent without a request."""

    ledger: int
    entry: int
    start: int
    """The start of the bookie at which it was sent: a later process never receives it."""
    done: Callable[[Any, memoryview, Exception | None], None] | None = None
    arrived: bool = False


class HandClient:
    """An `RpcClient` whose calls arrive, and are answered, when a test says so."""

    def __init__(self, house: LacHouse) -> None:
        self._house = house

    def tell(self, method: str, ledger: int, _session: int, entry: int) -> None:
        assert method == "confirm"
        self._house.sent.append(Sent(ledger, entry, self._house.start))

    def send(self, method: str, arguments: tuple[int, int, int], _attachment: bytes, done: Any) -> None:
        assert method == "confirm"
        ledger, _, entry = arguments
        self._house.sent.append(Sent(ledger, entry, self._house.start, done))


@dataclass
class LacHouse:
    """One bookie, and its client in another process."""

    clock: HandClock = field(default_factory=HandClock)
    sent: list[Sent] = field(default_factory=list)
    start: int = 0
    memory: dict[int, int] = field(default_factory=dict)
    """The LACs that the bookie knows."""

    def __post_init__(self) -> None:
        self.timers = Timers(cast(Clock, self.clock))
        self.meet()

    def meet(self) -> None:
        """Makes the client of another disk of the bookie."""
        self.bookie = RemoteBookie(Revision(7 + self.start), cast(Clock, self.clock), self.timers)
        self.seen(new_client=True)

    def seen(self, *, new_client: bool) -> None:
        """The registry sees the bookie alive, perhaps at another address."""
        if new_client:
            self.bookie.client = cast(RpcClient, HandClient(self))
        self.bookie.has_started()

    def confirm(self, ledger: int, entry: int, session: int = 1) -> None:
        self.bookie.confirm(LedgerId(ledger), SessionId(session), EntryId(entry))

    def wait(self, seconds: float) -> None:
        """Advances the clock and runs all timers, each at its time."""
        until = self.clock.now + seconds
        while self.timers.next_deadline <= until:
            self.clock.now = max(self.clock.now, self.timers.next_deadline)
            self.timers.run_due()
        self.clock.now = until

    def requests(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.done is not None]

    def arrive(self, sent: Sent) -> None:
        """The bookie stores a LAC, unless the process to which it was sent is gone; an arrived tell is over."""
        if sent.start == self.start and not sent.arrived:
            sent.arrived = True
            self.memory[sent.ledger] = max(sent.entry, self.memory.get(sent.ledger, sent.entry))
        if sent.done is None:
            self.sent.remove(sent)

    def answer(self, sent: Sent) -> None:
        """The answer arrives; without an arrived request, the call is lost."""
        self.sent.remove(sent)
        if sent.done is not None:
            sent.done(None, memoryview(b""), None if sent.arrived else Unreachable("no answer"))

    def lose(self, sent: Sent) -> None:
        """A call ends without an answer; the bookie may have its LAC."""
        self.sent.remove(sent)
        if sent.done is not None:
            sent.done(None, memoryview(b""), Unreachable("no answer"))

    def restart(self) -> None:
        """Another process of the bookie, which knows no explicit LAC."""
        self.start += 1
        self.memory.clear()

    def deliver_all(self) -> None:
        for sent in list(self.sent):
            self.arrive(sent)
            if sent.done is not None:
                self.answer(sent)

    def lose_all(self) -> None:
        for sent in list(self.sent):
            self.lose(sent)
