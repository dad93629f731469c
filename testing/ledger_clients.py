"""Clients of ledgers in a storm: they claim, append, read, follow, shrink, seal and delete, and tell the history.

1. What fails as the interface says is tried again later; any other error stops the client and fails the simulation.
2. A writer keeps some of its old handles, and appends to them after others have claimed the ledger.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from gnomon.bookie.errors import (
    EntryShrunk,
    LedgerError,
    LedgerExists,
    LedgerFailed,
    LedgerFenced,
    LedgerSealed,
    NoSuchEntry,
    NoSuchLedger,
)
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.bookie.ledger import Ledger, Quorum, delete_ledger
from gnomon.bookie.record import ledger_key
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError
from gnomon.testing.coverage import Coverage
from gnomon.testing.ledger_checker import LedgerLife, StormHistory
from gnomon.testing.ledger_cluster import LedgerClient

REFUSALS = (LedgerError, MetadataError, WorldError)
RETRY_SECONDS = 0.5
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Habits:
    """What the writers of one seed do, drawn (swarm testing): chances of each thing in a turn."""

    burst_max: int
    payload_bytes: int
    pause_seconds: float
    claim: float
    linger: float
    """That a handle is kept when another one is opened."""
    shrink: float
    seal: float
    delete: float
    read: float

    @staticmethod
    def draw(stream: random.Random) -> Habits:
        """Draws them."""

        def chance(most: float) -> float:
            return most * stream.random() if stream.random() < 0.5 else 0.0

        return Habits(
            burst_max=stream.choice([1, 5, 40]),
            payload_bytes=stream.choice([10, 10, 1000]),
            pause_seconds=stream.choice([0.02, 0.1, 0.5]),
            claim=stream.choice([0.02, 0.1, 0.4]),
            linger=stream.choice([0.0, 0.5, 1.0]),
            shrink=chance(0.2),
            seal=chance(0.1),
            delete=chance(0.1),
            read=stream.choice([0.0, 0.2, 0.5]),
        )


class StormClient:
    """What writers and readers share."""

    def __init__(self, client: LedgerClient, name: str, history: StormHistory, coverage: Coverage) -> None:
        self.client = client
        self.name = name
        self.history = history
        self.coverage = coverage
        self.clock = client.world.clock
        self.random = client.world.random("client")
        self._opened = 0

    def count(self, event: str) -> None:
        """Something worth to be reached."""
        self.coverage.count(f"ledger/{event}")

    async def open(self, how: Callable[[], Awaitable[Ledger]], *, writes: bool = False) -> tuple[Ledger, str]:
        """A handle, and the name that it has in the history."""
        called = self.clock.monotonic()
        ledger = await how()
        self._opened += 1
        self.history.opened(ledger.id, ledger.name, called)
        life = self.note(ledger)
        if writes:
            life.claimed = max(life.claimed, ledger.session)
        return ledger, f"{self.name}/{self._opened}"

    def note(self, ledger: Ledger) -> LedgerLife:
        """Writes down what a handle shows now."""
        life = self.history.life(ledger.id, ledger.name)
        life.was_confirmed(ledger.last_add_confirmed)
        life.believes(self.name, ledger._stored.mod_revision, ledger.record)
        return life

    async def read(self, ledger: Ledger, first: EntryId, last: EntryId) -> list[bytes]:
        """Reads, and writes down what was seen, and what was said not to exist."""
        try:
            payloads = await ledger.read(first, last)
        except NoSuchEntry as error:
            self.note(ledger).denied[error.entry] = self.name
            raise
        life = self.note(ledger)
        for entry, payload in enumerate(payloads, first):
            life.saw(self.name, EntryId(entry), payload)
        return payloads


class StormWriter(StormClient):
    """Appends to the ledgers of some names, for ever."""

    def __init__(
        self,
        client: LedgerClient,
        name: str,
        history: StormHistory,
        coverage: Coverage,
        names: Sequence[str],
        quorum: Quorum,
        habits: Habits,
    ) -> None:
        super().__init__(client, name, history, coverage)
        self._names = names
        self.quorum = quorum
        self._habits = habits
        self._handles: list[tuple[Ledger, str]] = []
        self._appended = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.clock.sleep(self.random.expovariate(1 / self._habits.pause_seconds))
            try:
                with trio.move_on_after(WAIT_SECONDS if self.random.random() < 0.9 else float("inf")):
                    await self.turn()
            except REFUSALS as error:
                self._count_refusal(error)
                await self.clock.sleep(RETRY_SECONDS * self.random.random())

    def _count_refusal(self, error: Exception) -> None:
        if isinstance(error, LedgerFenced | LedgerFailed | LedgerSealed):
            self.count(f"refused: {type(error).__name__}")

    async def turn(self) -> None:
        """One thing of those that a writer does."""
        habits, draw = self._habits, self.random.random
        if not self._handles or draw() < habits.claim:
            await self._claim(self.random.choice(self._names))
            return
        ledger, handle = self.random.choice(self._handles)
        if draw() < habits.delete:
            await self._delete(ledger)
        elif draw() < habits.seal:
            await ledger.seal()
            self.note(ledger)
            self.count("sealed")
        elif draw() < habits.shrink and ledger.last_add_confirmed >= 0:
            await self._shrink(ledger)
        elif draw() < habits.read and ledger.last_add_confirmed >= ledger.start_entry:
            first = self.random.randint(ledger.start_entry, ledger.last_add_confirmed)
            await self.read(ledger, EntryId(first), ledger.last_add_confirmed)
        else:
            await self._burst(ledger, handle)

    async def _claim(self, name: str) -> None:
        if self.random.random() >= self._habits.linger:
            self._handles = [pair for pair in self._handles if pair[0].name != name]
        try:
            opened = await self.open(lambda: self.client.claim(name), writes=True)
            self.count("claimed")
        except LedgerFenced:
            self.count("claim lost")
            return
        except NoSuchLedger:
            try:
                opened = await self.open(lambda: self.client.create(name, self.quorum), writes=True)
            except LedgerExists:
                return
            self.count("created")
        self._handles.append(opened)

    async def _delete(self, ledger: Ledger) -> None:
        stored = await self.client.metadata.get(ledger_key(ledger.name))
        if stored is not None:
            await delete_ledger(self.client.metadata, self.client.bookies, ledger.name)
            self.history.deleted(LedgerId(stored.create_revision), ledger.name, self.clock.monotonic())
            self.count("deleted")

    async def _shrink(self, ledger: Ledger) -> None:
        end = self.random.randint(ledger.start_entry, ledger.last_add_confirmed + 1)
        force = self.random.random() < 0.5
        await ledger.shrink(EntryId(end), force)
        self.note(ledger)
        self.count("shrunk at once" if force else "shrunk")

    async def _burst(self, ledger: Ledger, handle: str) -> None:
        for _ in range(self.random.randint(1, self._habits.burst_max)):
            try:
                self.append(ledger, handle)
            except LedgerError:
                self._handles = [pair for pair in self._handles if pair[0] is not ledger]
                raise
            if self.random.random() < 0.05:
                await self.clock.sleep(0.01 * self.random.random())
        if self.random.random() < 0.3:
            await ledger.drained()
            self.note(ledger)

    def append(self, ledger: Ledger, handle: str) -> None:
        """One entry."""
        self._appended += 1
        filler = b"." * self.random.randint(0, self._habits.payload_bytes)
        payload = f"{ledger.id}/{handle}/{self._appended} ".encode() + filler
        life = self.history.life(ledger.id, ledger.name)
        append = life.append(handle, ledger.session, payload)
        try:
            append.entry = ledger.append([payload[:5], payload[5:]], append.done)
        except LedgerError:
            life.appends.remove(append)
            raise


class StormReader(StormClient):
    """Follows the tail of one ledger after the other, for ever."""

    def __init__(
        self, client: LedgerClient, name: str, history: StormHistory, coverage: Coverage, names: Sequence[str]
    ) -> None:
        super().__init__(client, name, history, coverage)
        self._names = names
        self.settled = False
        """Stay with the ledger that is followed, as long as it is there."""
        self.following: Ledger | None = None
        self.next_entry = EntryId(0)

    async def run(self) -> None:
        """Until cancelled."""
        name = self.random.choice(self._names)
        while True:
            try:
                await self._follow(name)
            except EntryShrunk:
                self.count("reader met a shrink")
            except NoSuchLedger:
                self.following = None
                await self.clock.sleep(RETRY_SECONDS)
            except REFUSALS:
                await self.clock.sleep(RETRY_SECONDS * self.random.random())
            if not self.settled and self.random.random() < 0.3:
                name = self.random.choice(self._names)

    async def _follow(self, name: str) -> None:
        ledger, _ = await self.open(lambda: self.client.follow(name))
        self.following = ledger
        self.next_entry = ledger.start_entry
        if self.random.random() < 0.3:
            self.next_entry = EntryId(max(ledger.start_entry, ledger.last_add_confirmed))
        session, confirmed = ledger.session, ledger.last_add_confirmed
        while True:
            last = await ledger.wait_for_lac(self.next_entry)
            self.note(ledger)
            if last < confirmed:
                self.note(ledger).wrong.append(f"{self.name} was told {last} after {confirmed}")
            confirmed = last
            if ledger.session != session:
                self.count("reader followed a change of writer")
                session = ledger.session
            self.next_entry = EntryId(max(self.next_entry, ledger.start_entry))
            if last >= self.next_entry:
                payloads = await self.read(ledger, self.next_entry, last)
                self.next_entry = EntryId(self.next_entry + len(payloads))
            elif ledger.record.sealed:
                if self.settled:
                    await trio.sleep_forever()
                await self.clock.sleep(RETRY_SECONDS)
                return
            if not self.settled and self.random.random() < 0.02:
                return
