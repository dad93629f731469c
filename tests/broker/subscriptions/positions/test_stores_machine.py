"""Positions under faults drawn by Hypothesis: owners with either store, one after the other and concurrently."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from store_house import TOPIC_ID

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.broker.subscriptions.positions import record_changes, records, segment_store, segments
from gnomon.broker.subscriptions.positions.store import Position, SubscriberChanged, SubscriptionsStore
from gnomon.broker.subscriptions.positions.stores import subscriptions_store
from gnomon.log.dlsn import CommitPoint
from gnomon.metadata.client import Compare, KeyField, MetadataError
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.testing.simulation.guided.machine_examples import check, found_by
from gnomon.testing.simulation.guided.state_machine import PAUSES, SimulatedStateMachine, Weather, weathers
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

OWNERS = ("owner-1", "owner-2")
NAMES = ("billing", "audit")
QUORUMS = (Quorum(3, 3, 2), Quorum(1, 1, 1))
WAIT_SECONDS = 20.0
LIVENESS_SECONDS = 120.0
STEPS = 30
REACHED = [
    f"positions/{what}" for what in ("load", "advance", "advance many", "reset", "create", "delete", "close", "refused")
]

owners = st.sampled_from(OWNERS)
names = st.sampled_from((NAMES[0], *NAMES))
entries = st.integers(1, 12)


@dataclass
class Act:
    """A call of a store; `ended` is later than all events if the outcome is unknown."""

    what: str
    name: str
    dlsn: CommitPoint
    term: Term
    began: int
    ended: float = inf
    acknowledged: bool = False


@dataclass
class Term:
    """One store of one owner; `loaded` are the positions that it found at its load."""

    store: SubscriptionsStore
    load_began: int
    load_ended: float = inf
    loaded: dict[str, CommitPoint] = field(default_factory=dict)
    over: bool = False


class History:
    """The calls and their answers; the numbers of events give their order in time."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.wrong: list[str] = []
        self._now = 0

    def now(self) -> int:
        self._now += 1
        return self._now

    def began(self, what: str, name: str, dlsn: CommitPoint, term: Term) -> Act:
        act = Act(what, name, dlsn, term, self.now())
        self.acts.append(act)
        return act

    def ended(self, act: Act, *, acknowledged: bool) -> None:
        act.ended, act.acknowledged = self.now(), acknowledged

    def read(self, found: Mapping[str, CommitPoint], began: int) -> None:
        """Records that a new owner loaded all positions in a call that began at `began`."""
        for name in NAMES:
            acts = [act for act in self.acts if act.name == name]
            upheavals = [act for act in acts if act.what in ("reset", "delete")]
            if name in found:
                self.wrong += self._unexplained(name, found[name], acts, upheavals, began)
            for act in acts:
                if not act.acknowledged or act.ended > began or act.what == "delete":
                    continue
                if any(other is not act and other.ended > act.term.load_began for other in upheavals):
                    continue
                if name not in found:
                    self.wrong.append(f"{name} is gone, though {act.what} to {act.dlsn} was acknowledged")
                elif act.what != "create" and found[name] < act.dlsn:
                    self.wrong.append(f"{name} is at {found[name]} after {act.what} to {act.dlsn} was acknowledged")

    def _unexplained(
        self, name: str, dlsn: CommitPoint, acts: list[Act], upheavals: list[Act], began: int
    ) -> list[str]:
        sources = [act for act in acts if act.dlsn == dlsn and act.what != "delete"]
        if not sources:
            return [f"{name} is at {dlsn}, which nobody asked for"]
        (source,) = sources
        term = source.term
        wrong = []
        for other in upheavals:
            if not other.acknowledged or other.ended > began:
                continue
            if other.what == "delete" and source.ended < other.began:
                wrong.append(f"{name} is at {dlsn}, which it was set to before it was deleted")
            heard = other.term is term or name not in term.loaded or term.load_ended > other.began
            for act in acts:
                asked = act.what in ("create", "reset") and act.ended > other.began
                heard |= act.term is term and (asked or act.what == "delete")  # a deleted name is read again
            if source.what == "advance" and not heard:
                wrong.append(f"{name} is at {dlsn} after {other.what} by another, of which that owner had not heard")
        return wrong


class Puppet:
    """An owner that runs each of its commands concurrently with the others."""

    def __init__(self, client: LedgerClient, machine: StoresMachine, nursery: trio.Nursery | None) -> None:
        self.term: Term | None = None
        self._client = client
        self._machine = machine
        self._history = machine.history
        self._nursery = nursery

    def does(self, work: Callable[[], Awaitable[object]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._bounded, work)

    async def _bounded(self, work: Callable[[], Awaitable[object]]) -> None:
        with trio.move_on_after(WAIT_SECONDS):
            try:
                await work()
            except (MetadataError, LedgerError, SubscriberChanged):
                pass

    async def begin_term(self, in_segments: bool, entries_max: int) -> None:
        settings = SubscriptionsSettings(
            log_segment_based_subscriptions_store_enabled=in_segments, segment_entries_max=entries_max
        )
        client, history = self._client, self._history
        store = subscriptions_store(
            settings, client.metadata, client.bookies, TOPIC_ID, 0, topic="orders", quorum=self._machine.quorum
        )
        began = history.now()
        term = Term(store, began)
        positions = await store.load()
        term.load_ended = history.now()
        term.loaded = {name: position.point for name, position in positions.items()}
        history.read(term.loaded, began)
        self.term = term
        self._machine.count("load")

    async def change(self, act: Act, work: Callable[[SubscriptionsStore], Awaitable[object]]) -> None:
        try:
            refused = await work(act.term.store)
        except SubscriberChanged:
            refused = True
        if refused:
            self._history.ended(act, acknowledged=False)
            self._refused(act.term)
        else:
            self._history.ended(act, acknowledged=True)
            self._machine.count(act.what)

    def _refused(self, term: Term) -> None:
        self._machine.count("refused")
        if self.term is term:
            self.term = None

    async def create(self, act: Act) -> None:
        async def create(store: SubscriptionsStore) -> None:
            await store.create({act.name: act.dlsn})

        await self.change(act, create)

    async def advance_many(self, acts: list[Act]) -> None:
        wanted = {act.name: Position(act.dlsn) for act in acts}
        refused = await acts[0].term.store.advance_many(wanted)
        for act in acts:
            self._history.ended(act, acknowledged=act.name not in refused)
        if refused:
            self._refused(acts[0].term)
        self._machine.count("advance many")

    async def close(self, term: Term) -> None:
        await term.store.close()
        self._machine.count("close")


class StoresMachine(SimulatedStateMachine):
    """No position is lost, only resets move one backward, and no owner undoes a change unknown to it."""

    @initialize(
        weather=weathers,
        quorum=st.sampled_from(QUORUMS),
        in_segments=st.tuples(st.booleans(), st.booleans()),
        entries_max=st.sampled_from([3, 1]),
    )
    def begin(self, weather: Weather, quorum: Quorum, in_segments: tuple[bool, bool], entries_max: int) -> None:
        self.start_simulation(weather)
        self.entries_max = entries_max
        self.in_segments = dict(zip(OWNERS, in_segments, strict=True))
        self.history = History()
        self.quorum = quorum
        self.puppets: dict[str, Puppet] = {}
        self.slots = 0
        self.cluster = LedgerCluster(self.simulation, quorum.ensemble_size, garbage_interval_seconds=2.0)
        self.guided.run(self.cluster.start)
        self.machines = [self.simulation.machine(name) for name in OWNERS]
        for machine in self.machines:
            machine.start(self.cluster.client_node(self.puppet(machine)))
        while len(self.puppets) < len(OWNERS):
            self.guided.sleep(0.1)
        self.guided.run(self.begin_terms)
        self.expose([*self.cluster.bookies.values(), self.cluster.metadata, *self.machines])

    async def begin_terms(self) -> None:
        """Both subscriptions exist, and both owners know them."""
        for who in OWNERS:
            puppet = self.puppets[who]
            await puppet.begin_term(self.in_segments[who], self.entries_max)
            assert puppet.term is not None
            for name in NAMES:
                if name not in puppet.term.loaded:
                    act = self.act("create", name, 0, puppet.term)
                    await puppet.create(act)
        await self.puppets[OWNERS[0]].begin_term(self.in_segments[OWNERS[0]], self.entries_max)

    def puppet(self, machine: Machine) -> Callable[[LedgerClient], Awaitable[None]]:
        async def live(client: LedgerClient) -> None:
            async with trio.open_nursery() as nursery:
                mine = self.puppets[machine.name] = Puppet(client, self, nursery)
                try:
                    await trio.sleep_forever()
                finally:
                    if self.puppets[machine.name] is mine:  # else it has been started again
                        del self.puppets[machine.name]

        return live

    def count(self, what: str) -> None:
        self.simulation.coverage.count(f"positions/{what}")

    def act(self, what: str, name: str, entry: int, term: Term) -> Act:
        self.slots += 1
        return self.history.began(what, name, CommitPoint(0, entry, self.slots, 1000 * entry + self.slots), term)

    def changes(
        self,
        who: str,
        what: str,
        name: str,
        entry: int,
        pause: float,
        work: Callable[[SubscriptionsStore, CommitPoint], Awaitable[object]],
    ) -> None:
        puppet = self.owner(who)
        if puppet is not None and puppet.term is not None:
            act = self.act(what, name, entry, puppet.term)
            puppet.does(lambda: puppet.change(act, lambda store: work(store, act.dlsn)))
        self.guided.sleep(pause)

    def owner(self, who: str) -> Puppet | None:
        """An owner; if it has no term, it begins one."""
        puppet = self.puppets.get(who)
        if puppet is not None and puppet.term is None:
            self.begin_term(who, self.in_segments[who], self.entries_max, 0.3)
        return self.puppets.get(who)

    @rule(who=owners, in_segments=st.booleans(), entries_max=st.sampled_from([1, 3, 100]), pause=PAUSES)
    def begin_term(self, who: str, in_segments: bool, entries_max: int, pause: float) -> None:
        puppet = self.puppets.get(who)
        self.in_segments[who] = in_segments
        if puppet is not None:
            puppet.does(lambda: puppet.begin_term(in_segments, entries_max))
        self.guided.sleep(pause)

    @rule(who=owners, name=names, entry=entries, pause=PAUSES)
    def advance(self, who: str, name: str, entry: int, pause: float) -> None:
        self.changes(who, "advance", name, entry, pause, lambda store, dlsn: store.advance_commit_position(name, dlsn))

    @rule(who=owners, ahead=st.lists(entries, min_size=2, max_size=2), times=st.integers(1, 4), pause=PAUSES)
    def advance_many(self, who: str, ahead: list[int], times: int, pause: float) -> None:
        for more in range(times):
            puppet = self.owner(who)
            if puppet is not None and puppet.term is not None:
                term = puppet.term
                acts = [self.act("advance", name, entry + more, term) for name, entry in zip(NAMES, ahead, strict=True)]
                puppet.does(lambda puppet=puppet, acts=acts: puppet.advance_many(acts))
        self.guided.sleep(pause)

    @rule(who=owners, name=names, entry=entries, pause=PAUSES)
    def reset(self, who: str, name: str, entry: int, pause: float) -> None:
        self.changes(who, "reset", name, entry, pause, lambda store, dlsn: store.reset_commit_position(name, dlsn))

    @rule(who=owners, name=names, entry=entries, pause=PAUSES)
    def create(self, who: str, name: str, entry: int, pause: float) -> None:
        puppet = self.owner(who)
        if puppet is not None and puppet.term is not None:
            act = self.act("create", name, entry, puppet.term)
            puppet.does(lambda: puppet.create(act))
        self.guided.sleep(pause)

    @rule(who=owners, name=names, pause=PAUSES)
    def delete(self, who: str, name: str, pause: float) -> None:
        self.changes(who, "delete", name, 0, pause, lambda store, _: store.delete_subscriber(name))

    @rule(
        who=owners,
        name=names,
        what=st.sampled_from(["reset", "delete", "advance"]),
        entry=entries,
        times=st.integers(1, 3),
        pause=PAUSES,
    )
    def advance_late(self, who: str, name: str, what: str, entry: int, times: int, pause: float) -> None:
        """The next owner begins its term and makes a change, before an earlier owner stores its last positions."""
        (successor,) = (other for other in OWNERS if other != who)
        self.begin_term(successor, self.in_segments[successor], self.entries_max, 0.3)
        for more in range(times):
            if what == "reset":
                self.reset(successor, name, entry, 0.3)
            elif what == "delete":
                self.delete(successor, name, 0.3)
            else:
                self.advance(successor, name, entry + more, 0.3)
        self.advance(who, name, entry + 4, pause)

    @rule(who=owners, pause=PAUSES)
    def close(self, who: str, pause: float) -> None:
        puppet = self.puppets.get(who)
        if puppet is not None and puppet.term is not None:
            term, puppet.term = puppet.term, None
            puppet.does(lambda: puppet.close(term))
        self.guided.sleep(pause)

    @invariant()
    def nothing_contradicts_so_far(self) -> None:
        assert not self.history.wrong, "; ".join(self.history.wrong)

    def judge(self) -> None:
        for machine in self.machines:
            machine.kill()

        async def load(client: LedgerClient) -> None:
            puppet = Puppet(client, self, None)  # it runs no concurrent commands
            for in_segments in (False, True, False):
                while True:
                    try:
                        await puppet.begin_term(in_segments, 100)
                        break
                    except (MetadataError, LedgerError, SubscriberChanged):
                        await client.world.clock.sleep(0.5)

        async def finish() -> bool:
            with trio.move_on_after(LIVENESS_SECONDS):
                await self.cluster.run_client("finisher", load)
                return True
            return False

        assert self.guided.run(finish), f"positions could not be read within {LIVENESS_SECONDS} seconds of health"
        self.nothing_contradicts_so_far()


def test_positions_keep_their_guarantees_under_any_owners_and_faults() -> None:
    check(StoresMachine, max_examples=50, steps=STEPS).assert_all_counted(REACHED)


def test_an_advance_that_ignores_resets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_changes, "same_life", lambda before, after: after is not None)
    monkeypatch.setattr(segment_store, "same_life", lambda before, after: True)
    assert found_by(StoresMachine, 100, STEPS)


def test_a_roll_that_does_not_compare_the_owner_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lax(self: segments.Segments, subscriber: str, segment: segments.PositionSegment) -> Compare:
        return Compare("nothing", KeyField.VERSION, 0)

    monkeypatch.setattr(segments.Segments, "_owned", lax)
    assert found_by(StoresMachine, 100, STEPS)


def test_a_record_written_without_a_comparison_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records.SubscriberRecords, "unchanged", lambda *_: Compare("nothing", KeyField.VERSION, 0))
    assert found_by(StoresMachine, 100, STEPS)
