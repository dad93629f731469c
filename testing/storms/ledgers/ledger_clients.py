"""Clients of ledgers in a storm: claim, append, read, follow, shrink, seal and delete; all is recorded in the history.

1. A client retries later after a documented error; any other error stops the client and fails the simulation.
2. A writer keeps some of its old handles, and appends to them after others have claimed the ledger.
3. In some seeds a writer cancels calls in the middle: a cancelled seal can be made again, and a handle whose close was
   cancelled accepts no append.
4. A writer whose ledger was deleted gets an error for the deletion, never one for a session that nobody has claimed.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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
from gnomon.bookie.ids import SESSION_MAX, EntryId, LedgerId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, delete_ledger
from gnomon.bookie.record import ledger_key
from gnomon.metadata.client import MetadataError
from gnomon.runtime.world import WorldError
from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.storms.ledgers.ledger_checker import LedgerLife, StormHistory
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient

REFUSALS = (LedgerError, MetadataError, WorldError)
RETRY_SECONDS = 0.5
WAIT_SECONDS = 5.0
HASTE_SECONDS = 0.004
"""The mean time after which a writer in haste cancels a call; some calls have not even begun by then."""
CLOSE = 0.05
"""The probability that a writer closes a handle, in seeds with haste."""


@dataclass(frozen=True, slots=True)
class Habits:
    """The habits of the writers of one seed, drawn (swarm testing): the chance of each action in a turn."""

    burst_max: int
    payload_bytes: int
    pause_seconds: float
    claim: float
    linger: float
    """The chance that a handle is kept when another one is opened."""
    shrink: float
    seal: float
    delete: float
    read: float

    @staticmethod
    def draw(stream: random.Random) -> Habits:
        """Draws the habits of a seed."""

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
    """The parts that writers and readers share."""

    def __init__(self, client: LedgerClient, name: str, history: StormHistory, coverage: Coverage) -> None:
        self.client = client
        self.name = name
        self.history = history
        self.coverage = coverage
        self.clock = client.world.clock
        self.random = client.world.random("client")
        self._opened = 0

    def count(self, event: str) -> None:
        """Counts an event that sweeps should reach."""
        self.coverage.count(f"ledger/{event}")

    async def open(self, how: Callable[[], Awaitable[Ledger]], *, writes: bool = False) -> tuple[Ledger, str]:
        """Opens a handle; returns it with its name in the history."""
        called = self.clock.monotonic()
        ledger = await how()
        self._opened += 1
        self.history.opened(ledger.id, ledger.name, called)
        life = self.note(ledger)
        if writes:
            life.claimed = max(life.claimed, ledger.session)
        return ledger, f"{self.name}/{self._opened}"

    def note(self, ledger: Ledger) -> LedgerLife:
        """Records the current state of a handle."""
        life = self.history.life(ledger.id, ledger.name)
        life.was_confirmed(ledger.last_add_confirmed)
        life.believes(self.name, ledger._stored.mod_revision, ledger.record)
        return life

    async def read(self, ledger: Ledger, first: EntryId, last: EntryId) -> list[bytes]:
        """Reads entries, and records those that were read or reported as non-existent."""
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
        self._haste = client.world.random("haste")  # a stream of its own, so that it shifts no other draw
        self._hasty = self._haste.choice([0.0, 0.1, 0.5])

    async def run(self) -> None:
        """Makes turns until cancelled."""
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
        """Does one of a writer's actions."""
        habits, draw = self._habits, self.random.random
        if not self._handles or draw() < habits.claim:
            await self._claim(self.random.choice(self._names))
            return
        ledger, handle = self.random.choice(self._handles)
        if draw() < habits.delete:
            await self._delete(ledger)
        elif draw() < habits.seal:
            await self._seal(ledger)
        elif self._hasty and self._haste.random() < CLOSE:
            await self._close(ledger, handle)
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
        unaware: Ledger | None = None
        if force and self._haste.random() < 0.5:
            unaware, _ = await self.open(lambda: self.client.follow(ledger.name))
        if await self._in_haste("shrink", lambda: ledger.shrink(EntryId(end), force)):
            await ledger.shrink(EntryId(end), force)
        self.note(ledger)
        self.count("shrunk at once" if force else "shrunk")
        if unaware is not None and unaware.last_add_confirmed >= unaware.start_entry:
            with suppress(EntryShrunk):  # the handle does not know the new start of the ledger
                await self.read(unaware, unaware.start_entry, unaware.start_entry)

    async def _seal(self, ledger: Ledger) -> None:
        """Seals the ledger; after a cancelled seal it leaves the ledger or seals it again."""
        again = await self._in_haste("seal", ledger.seal)
        if again and self._haste.random() < 0.5:
            return
        try:
            if again:
                await ledger.seal()
        except LedgerSealed as error:
            if not ledger.record.sealed:
                self.note(ledger).wrong.append(f"{self.name} could not seal again: {error}")
            raise
        self.note(ledger)
        self.count("sealed")

    async def _close(self, ledger: Ledger, handle: str) -> None:
        self._handles = [pair for pair in self._handles if pair[0] is not ledger]
        if ledger.failure is None:
            self.append(ledger, handle)  # the close waits for this entry
        await self._in_haste("close", ledger.close)
        try:
            self.append(ledger, handle)
        except LedgerError:
            return
        self.note(ledger).wrong.append(f"{self.name} appended to a handle that it had closed")

    async def _in_haste(self, what: str, call: Callable[[], Awaitable[object]]) -> bool:
        """Makes a call, and may cancel it in the middle; returns whether it was cancelled."""
        if self._haste.random() >= self._hasty:
            await call()
            return False
        with trio.move_on_after(self._haste.expovariate(1 / HASTE_SECONDS)) as scope:
            await call()
        if scope.cancelled_caught:
            self.count(f"given up: {what}")
        return scope.cancelled_caught

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
        """Appends one entry."""
        self._appended += 1
        filler = b"." * self.random.randint(0, self._habits.payload_bytes)
        payload = f"{ledger.id}/{handle}/{self._appended} ".encode() + filler
        life = self.history.life(ledger.id, ledger.name)
        append = life.append(handle, ledger.session, payload)

        def done(entry: EntryId, error: LedgerError | None) -> None:
            append.done(entry, error)
            if isinstance(error, NoSuchLedger):
                self.count("writer told of a deletion")
            if str(SESSION_MAX) in str(error):
                life.wrong.append(f"{handle} got an error for a session that nobody has: {error}")

        try:
            append.entry = ledger.append([payload[:5], payload[5:]], done)
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
        """Whether the reader stays with the current ledger as long as it exists."""
        self.following: Ledger | None = None
        self.next_entry = EntryId(0)

    async def run(self) -> None:
        """Follows ledgers until cancelled."""
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
                self.note(ledger).wrong.append(f"{self.name} got last add confirmed {last} after {confirmed}")
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
