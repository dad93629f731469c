"""Ledgers under faults, driven by Hypothesis: two writers and a reader on simulated machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from gnomon.bookie.errors import EntryShrunk, Fenced, LedgerError, NoSuchLedger
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, delete_ledger
from gnomon.bookie.record import LedgerRecord, ledger_key
from gnomon.bookie.storage.entry_store import EntryStore
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, Put
from gnomon.testing.simulation.guided.machine_examples import check, found_by
from gnomon.testing.simulation.guided.state_machine import PAUSES, SimulatedStateMachine, Weather, weathers
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_checker import StormHistory
from gnomon.testing.storms.ledgers.ledger_clients import REFUSALS, StormClient
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.ledgers.ledger_verdict import LedgerVerdict

NAMES = ("ledger-0", "ledger-1")
QUORUMS = (Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(4, 3, 2), Quorum(2, 2, 1), Quorum(1, 1, 1))
WRITERS = ("writer-1", "writer-2")
READER = "reader"
REACHED = [f"ledger/{what}" for what in ("acknowledged", "claimed", "read", "tailed", "shrunk", "sealed", "deleted")]
WAIT_SECONDS = 20.0
LIVENESS_SECONDS = 60.0

HANDLES = st.integers(0, 3)
names = st.sampled_from((NAMES[0], *NAMES))
writers = st.sampled_from(WRITERS)


class Claims:
    """The successful claims, each with its last entry: no earlier session may acknowledge an entry after it."""

    def __init__(self) -> None:
        self._told: dict[LedgerId, list[tuple[SessionId, EntryId]]] = {}

    def add(self, ledger: Ledger) -> None:
        self._told.setdefault(ledger.id, []).append((ledger.session, ledger.last_add_confirmed))

    def against(self, ledger: Ledger, entry: EntryId) -> list[str]:
        return [
            f"entry {entry} was acknowledged in session {ledger.session}, after {session} was claimed at {last}"
            for session, last in self._told.get(ledger.id, [])
            if session > ledger.session and entry > last
        ]


class Puppet(StormClient):
    """A client that runs the calls of the state machine concurrently."""

    def __init__(self, client: LedgerClient, name: str, machine: LedgerMachine, nursery: trio.Nursery) -> None:
        super().__init__(client, name, machine.history, machine.simulation.coverage)
        self.handles: list[tuple[Ledger, str]] = []
        self._claims = machine.claims
        self._nursery = nursery
        self._appended = 0

    def does(self, work: Callable[[], Awaitable[object]]) -> None:
        """Starts `work`; a refusal that the interface allows ends it."""
        self._nursery.start_soon(self._bounded, work)

    async def _bounded(self, work: Callable[[], Awaitable[object]]) -> None:
        with trio.move_on_after(WAIT_SECONDS):
            try:
                await work()
            except REFUSALS as error:
                self.count(f"refused: {type(error).__name__}")

    async def create(self, name: str, quorum: Quorum) -> None:
        self.handles.append(await self.open(lambda: self.client.create(name, quorum), writes=True))
        self.count("created")

    async def claim(self, name: str, quorum: Quorum, appends: int) -> None:
        """Claims a ledger and appends to it, or creates the ledger if it does not exist."""
        try:
            opened = await self.open(lambda: self.client.claim(name), writes=True)
        except NoSuchLedger:
            await self.create(name, quorum)
            return
        self._claims.add(opened[0])
        self.handles.append(opened)
        self.count("claimed")
        for _ in range(appends):
            self.append(*opened)

    def append(self, ledger: Ledger, handle: str) -> None:
        self._appended += 1
        payload = f"{ledger.id}/{handle}/{self._appended}".encode()
        life = self.history.life(ledger.id, ledger.name)
        append = life.append(handle, ledger.session, payload)

        def done(entry: EntryId, error: LedgerError | None) -> None:
            append.done(entry, error)
            if error is None:
                life.wrong += self._claims.against(ledger, entry)
                self.count("acknowledged")

        try:
            append.entry = ledger.append([payload], done)
        except LedgerError as error:
            life.appends.remove(append)
            self.count(f"refused: {type(error).__name__}")

    async def read_all(self, ledger: Ledger) -> None:
        self.note(ledger)
        if ledger.last_add_confirmed >= ledger.start_entry:
            await self.read(ledger, ledger.start_entry, ledger.last_add_confirmed)
            self.count("read")

    async def tail(self, name: str) -> None:
        ledger, _ = await self.open(lambda: self.client.follow(name))
        confirmed, following = ledger.last_add_confirmed, EntryId(max(ledger.start_entry, ledger.last_add_confirmed))
        while not (ledger.record.sealed and following > ledger.last_add_confirmed):
            last = await ledger.wait_for_lac(following)
            life = self.note(ledger)
            if last < confirmed:
                life.wrong.append(f"{self.name} was told {last} after {confirmed}")
            confirmed = last
            following = EntryId(max(following, ledger.start_entry))
            try:
                following = EntryId(following + len(await self.read(ledger, following, last)))
                self.count("tailed")
            except EntryShrunk:
                continue

    async def shrink(self, ledger: Ledger, quarters: int, force: bool) -> None:
        entries = ledger.last_add_confirmed + 1 - ledger.start_entry
        if entries > 0:
            await ledger.shrink(EntryId(ledger.start_entry + entries * quarters // 4), force)
            self.note(ledger)
            self.count("shrunk")

    async def seal(self, ledger: Ledger) -> None:
        await ledger.seal()
        self.note(ledger)
        self.count("sealed")

    async def delete(self, ledger: Ledger) -> None:
        name = ledger.name
        stored = await self.client.metadata.get(ledger_key(name))
        if stored is not None:
            await delete_ledger(self.client.metadata, self.client.bookies, name)
            self.history.deleted(LedgerId(stored.create_revision), name, self.clock.monotonic())
            self.count("deleted")


class LedgerMachine(SimulatedStateMachine):
    """No acknowledged entry is lost, no entry has two versions, and fenced writers get no acknowledgement."""

    @initialize(
        weather=weathers,
        quorum=st.sampled_from(QUORUMS),
        spare=st.integers(0, 1),
        lease=st.sampled_from([3.0, 1.0]),
    )
    def begin(self, weather: Weather, quorum: Quorum, spare: int, lease: float) -> None:
        self.start_simulation(weather)
        self.history, self.claims = StormHistory(), Claims()
        self.puppets: dict[str, Puppet] = {}
        self.quorum = quorum
        self.cluster = LedgerCluster(
            self.simulation, quorum.ensemble_size + spare, lease_seconds=lease, garbage_interval_seconds=2.0
        )
        self.guided.run(self.cluster.start)
        self.clients = [self.simulation.machine(name) for name in (*WRITERS, READER)]
        for machine in self.clients:
            machine.start(self.cluster.client_node(self.puppet(machine)))
        self.guided.run(self.create_all)
        bookies = list(self.cluster.bookies.values())
        self.expose([*bookies, self.cluster.metadata, *bookies, self.simulation.machine(WRITERS[1]), *bookies])

    async def create_all(self) -> None:
        while len(self.puppets) < len(self.clients):
            await self.simulation.sleep(0.01)
        for who, name in zip(WRITERS, NAMES, strict=True):
            await self.puppets[who].create(name, self.quorum)

    def puppet(self, machine: Machine) -> Callable[[LedgerClient], Awaitable[None]]:
        starts = 0

        async def live(client: LedgerClient) -> None:
            nonlocal starts
            starts += 1
            async with trio.open_nursery() as nursery:
                mine = self.puppets[machine.name] = Puppet(client, f"{machine.name}#{starts}", self, nursery)
                try:
                    await trio.sleep_forever()
                finally:
                    if self.puppets[machine.name] is mine:  # otherwise the client was started again
                        del self.puppets[machine.name]

        return live

    def tell(self, who: str, pause: float, work: Callable[[Puppet], Awaitable[object]]) -> None:
        puppet = self.puppets.get(who)
        if puppet is not None:
            puppet.does(lambda: work(puppet))
        self.guided.sleep(pause)

    def handles(self) -> list[tuple[Puppet, Ledger, str]]:
        """The handles of all clients without a known failure, the newest of each client first."""
        return [
            (puppet, ledger, handle)
            for puppet in self.puppets.values()
            for ledger, handle in reversed(puppet.handles)
            if ledger.failure is None
        ]

    @rule(who=writers, name=names, appends=st.integers(0, 3), pause=PAUSES)
    def claim(self, who: str, name: str, appends: int, pause: float) -> None:
        self.tell(who, pause, lambda puppet: puppet.claim(name, self.quorum, appends))

    @precondition(handles)
    @rule(which=HANDLES, count=st.integers(1, 6), pause=PAUSES)
    def append(self, which: int, count: int, pause: float) -> None:
        handles = self.handles()
        puppet, ledger, handle = handles[which % len(handles)]
        for _ in range(count):
            puppet.append(ledger, handle)
        self.guided.sleep(pause)

    @precondition(handles)
    @rule(which=HANDLES, pause=PAUSES)
    def read(self, which: int, pause: float) -> None:
        self.tell_handle(which, pause, Puppet.read_all)

    @rule(name=names, pause=PAUSES)
    def tail(self, name: str, pause: float) -> None:
        self.tell(READER, pause, lambda puppet: puppet.tail(name))

    @precondition(handles)
    @rule(which=HANDLES, quarters=st.integers(0, 4), force=st.booleans(), pause=PAUSES)
    def shrink(self, which: int, quarters: int, force: bool, pause: float) -> None:
        self.tell_handle(which, pause, lambda puppet, ledger: puppet.shrink(ledger, quarters, force))

    @precondition(handles)
    @rule(which=HANDLES, what=st.sampled_from([Puppet.seal, Puppet.delete]), pause=PAUSES)
    def end(self, which: int, what: Callable[[Puppet, Ledger], Awaitable[object]], pause: float) -> None:
        self.tell_handle(which, pause, what)

    def tell_handle(self, which: int, pause: float, work: Callable[[Puppet, Ledger], Awaitable[object]]) -> None:
        handles = self.handles()
        puppet, ledger, _ = handles[which % len(handles)]
        puppet.does(lambda: work(puppet, ledger))
        self.guided.sleep(pause)

    @invariant()
    def nothing_contradicts_so_far(self) -> None:
        wrong = self.history.check({})
        assert not wrong, "; ".join(wrong)

    def judge(self) -> None:
        for machine in self.clients:
            machine.kill()
        verdict = LedgerVerdict(self.simulation, self.history)

        async def finish() -> bool:
            with trio.move_on_after(LIVENESS_SECONDS):
                await self.cluster.run_client("finisher", lambda client: verdict.finish(client, NAMES, self.quorum))
                return True
            return False

        finished = self.guided.run(finish)
        wrong = self.history.check(verdict.records)
        if finished:
            wrong += verdict.check_stores(self.cluster)
        else:
            wrong.append(f"not everything was read whole within {LIVENESS_SECONDS} virtual seconds of health")
        assert not wrong, "; ".join(wrong)


def test_ledgers_keep_their_promises_under_random_calls_and_faults() -> None:
    check(LedgerMachine, max_examples=25).assert_all_counted(REACHED)


def test_the_machine_finds_accepted_adds_of_fenced_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = EntryStore._refusal

    def lax(store: EntryStore, *asked: Any) -> LedgerError | None:
        error = refusal(store, *asked)
        return None if isinstance(error, Fenced) else error

    monkeypatch.setattr(EntryStore, "_refusal", lax)
    assert found_by(LedgerMachine, 150)


def test_the_machine_finds_a_claim_that_does_not_compare_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lax(metadata: Metadata, stored: KeyValue, record: LedgerRecord, compare: Any = (), also: Any = ()) -> Any:
        same_life = Compare(stored.key, KeyField.CREATE_REVISION, stored.create_revision)
        return (await metadata.txn((same_life, *compare), (Put(stored.key, record.encode()), *also))).results

    monkeypatch.setattr("gnomon.bookie.ledgers.catalog.replace_record", lax)
    assert found_by(LedgerMachine, 150)
