"""Schedules of writers, claims and ensemble changes over simulated bookies, with lost and late messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

from simulated_bookie import SimulatedBookie

from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, SessionId
from gnomon.bookie.ledgers.reader import EntryRead, ReadVerdict
from gnomon.bookie.ledgers.recovery import Recovery
from gnomon.bookie.ledgers.writer import LedgerWriter
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum, change_ensemble, claim

SPARES = 2
QUORUMS = [Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(4, 3, 2), Quorum(3, 3, 1), Quorum(1, 1, 1), Quorum(2, 2, 2)]


class SimulatedWriter:
    """A writer and the payloads that it has sent."""

    def __init__(self, session: SessionId, core: LedgerWriter, ensemble: tuple[BookieId, ...]) -> None:
        self.session, self.core, self.ensemble = session, core, ensemble
        self.payloads: dict[int, bytes] = {}
        self.dead = self.changing = False


Message = tuple[SimulatedWriter, int, BookieId, EntryId, EntryId]
Steps = Generator[BookieId | None, bool, SimulatedWriter | None]
"""Yields the bookie of its next call, and receives whether that bookie answers."""


class Cluster:
    """Bookies, the record, writers, claims and ensemble changes in progress; one random stream draws each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.quorum = quorum = QUORUMS[seed % len(QUORUMS)]
        self.names = [BookieId(f"b{index}") for index in range(quorum.ensemble_size + SPARES)]
        self.bookies = {name: SimulatedBookie() for name in self.names}
        self.record = record_of(quorum)
        self.version = 1
        first = self.record.fragments[0].bookies
        self.writers = [SimulatedWriter(FIRST_SESSION, LedgerWriter(quorum, NO_ENTRY), first)]
        self.work: list[tuple[Steps, BookieId | None]] = []
        self.messages: list[Message] = []
        self.committed: dict[int, bytes] = {}
        """The entries that were acknowledged, or recovered by a claim that was recorded."""
        self.appended = self.changes = 0
        # Each seed draws its own mix: with one mix for all, some schedules would never be seen.
        self.steps = [
            self.append,
            self.deliver,
            self.lose,
            self.start_claim,
            self.advance,
            self.read,
            self.slow_down,
            self.drop,
            self.search,
            self.crash,
        ]
        usual = (3, 4, 0.6, 0.4, 2, 0.3, 0.2, 0.4, 2, 0.05)
        self.weights = [weight * self.random.choice((0.3, 1, 3)) for weight in usual]
        self.loss = self.random.choice((0, 0.1, 0.3))
        self.slow: list[BookieId] = []

    def run(self, steps: int) -> None:
        for step in self.random.choices(self.steps, self.weights, k=steps):
            step()
            self.check_all_reads()
        self.settle()

    def slow_down(self) -> None:
        """Draws the bookies that are slow from now on: late and lost messages to slow bookies leave orphans."""
        self.slow = self.random.sample(self.names, self.random.choice((0, 1, 1, 2)))

    def search(self) -> None:
        for bookie in self.bookies.values():
            for _ in range(self.random.choice((0, 1, 5))):
                if bookie.searches:
                    bookie.search()

    def crash(self) -> None:
        self.bookies[self.random.choice(self.names)].crash()

    # --- writers ---

    def append(self) -> None:
        alive = [writer for writer in self.writers if not writer.dead]
        if alive:
            writer = self.random.choice(alive)
            self.appended += 1
            entry = writer.core.append()
            writer.payloads[entry] = f"{writer.session}/{self.appended}".encode()
            for index in writer.core.targets(entry):
                self._send(writer, index, entry)

    def _send(self, writer: SimulatedWriter, index: int, entry: EntryId) -> None:
        self.messages.append((writer, index, writer.ensemble[index], entry, writer.core.confirmed))

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            if self.messages:
                index = self.random.randrange(len(self.messages))
                if self.messages[index][2] not in self.slow or self.random.random() < 0.1:
                    self._deliver(self.messages.pop(index))

    def _deliver(self, message: Message) -> None:
        writer, index, name, entry, confirmed = message
        answer = self.bookies[name].add(entry, writer.session, confirmed, writer.payloads[entry])
        if writer.dead or writer.ensemble[index] != name:
            return
        if not answer:
            writer.dead = True
            return
        before = writer.core.confirmed
        self._acknowledge(writer, before, writer.core.stored(index, entry))

    def _acknowledge(self, writer: SimulatedWriter, before: EntryId, confirmed: EntryId) -> None:
        for entry in range(before + 1, confirmed + 1):
            payload = writer.payloads[entry]
            assert self.committed.setdefault(entry, payload) == payload, f"entry {entry} was acknowledged twice"

    def lose(self) -> None:
        """Loses a message and its answer; the writer notices that the bookie failed."""
        if not self.messages:
            return
        writer, index, name, _, _ = self.messages.pop(self.random.randrange(len(self.messages)))
        if writer.dead or writer.ensemble[index] != name:
            return
        writer.core.lost(index)
        if self.random.random() < 0.3:
            for entry in writer.core.regained(index):
                if index in self.quorum.write_set(EntryId(entry)):
                    self._send(writer, index, EntryId(entry))
        elif not writer.changing:
            writer.changing = True
            self._begin(self._change(writer))

    def drop(self) -> None:
        """Loses all messages to slow bookies; the writers do not notice it."""
        self.messages = [message for message in self.messages if message[2] not in self.slow]

    def _change(self, writer: SimulatedWriter) -> Steps:
        lost = writer.core.lost_bookies
        spares = [name for name in self.names if name not in writer.ensemble]
        replaced = dict(zip(lost, self.random.sample(spares, min(len(spares), len(lost))), strict=False))
        ensemble = tuple(replaced.get(index, name) for index, name in enumerate(writer.ensemble))
        first = writer.core.begin_change()
        yield None
        if self.record.session != writer.session:
            writer.dead = True
            return None
        self.record = change_ensemble(self.record, first, ensemble)
        self.version += 1
        self.changes += 1
        fragments = self.record.fragments
        yield None
        if writer.dead:
            return None
        writer.ensemble = ensemble
        for name in replaced.values():
            if (yield name):
                self.bookies[name].begin_session(writer.session, fragments)
        before = writer.core.confirmed
        confirmed, pending = writer.core.end_change(replaced)
        self._acknowledge(writer, before, confirmed)
        for entry in map(EntryId, pending):
            for index in replaced:
                if index in self.quorum.write_set(entry):
                    self._send(writer, index, entry)
        writer.changing = False
        writer.dead |= not writer.core.writable
        return None

    # --- work that takes several steps ---

    def start_claim(self) -> None:
        if len(self.work) < 4:
            self._begin(self._claim(self.record, self.version))

    def _begin(self, steps: Steps) -> None:
        self.work.append((steps, next(steps)))

    def advance(self) -> None:
        if self.work:
            self._advance(self.random.randrange(len(self.work)), self.random.randint(1, 6), self._answers)

    def _answers(self, name: BookieId | None) -> bool:
        return self.random.random() >= (0.9 if name in self.slow else self.loss)

    def _advance(self, index: int, steps: int, answers: Callable[[BookieId | None], bool]) -> None:
        work, called = self.work.pop(index)
        try:
            for _ in range(steps):
                called = work.send(answers(called))
            self.work.append((work, called))
        except StopIteration as stop:
            if stop.value is not None:
                self.writers.append(stop.value)

    def _claim(self, record: LedgerRecord, version: int) -> Steps:
        session = SessionId(version + 1)
        recovery = Recovery(record)
        names = recovery.ensemble
        ensemble = [self.bookies[name] for name in names]
        for index, bookie in enumerate(ensemble):
            if (yield names[index]):
                if not bookie.fence(session):
                    return None
                recovery.fenced(index, bookie.confirmed, bookie.bound[0])
        try:
            while (request := recovery.next_read()) is not None:
                index, entry, minimum = request
                if (yield names[index]):
                    found = ensemble[index].read(entry, minimum)
                    if found is None:
                        recovery.absent()
                    else:
                        recovery.found(found)
        except NotEnoughBookies:
            return None
        for copy in recovery.tail:
            copies = 1
            for index in self.quorum.write_set(copy.entry):
                if index != copy.holder and (yield names[index]):
                    if not ensemble[index].put_copy(session, copy):
                        return None
                    copies += 1
            if copies < self.quorum.ack_quorum:
                return None
        yield None
        if self.version != version:
            return None
        self.version += 1
        self.record = claim(record, session, recovery.last_entry, without_orphans=recovery.without_orphans)
        self._check_recovered(recovery)
        writer = SimulatedWriter(session, LedgerWriter(self.quorum, recovery.last_entry), recovery.ensemble)
        for index, bookie in enumerate(ensemble):
            if (yield names[index]):
                bookie.begin_session(session, self.record.fragments)
        return writer

    def _check_recovered(self, recovery: Recovery) -> None:
        tail = {copy.entry: copy.value for copy in recovery.tail}
        for entry, payload in self.committed.items():
            assert entry <= recovery.last_entry, f"committed entry {entry} was lost in recovery"
            assert tail.get(EntryId(entry), payload) == payload, f"entry {entry} was changed"
        self.committed.update(tail)

    # --- readers ---

    def read(self) -> None:
        if self.committed:
            entry = EntryId(self.random.choice(sorted(self.committed)))
            self._check_read(entry, lambda: self.random.random() < 0.5)

    def check_all_reads(self) -> None:
        for entry in self.committed:
            assert self._check_read(EntryId(entry), lambda: True), f"committed entry {entry} is nowhere"

    def _check_read(self, entry: EntryId, reachable: Callable[[], bool]) -> bool:
        search = EntryRead(self.quorum, entry)
        fragment = self.record.fragment_of(entry)
        while (index := search.next_bookie()) is not None:
            if not reachable():
                continue
            found = self.bookies[fragment.bookies[index]].read(entry, fragment.session)
            if found is not None:
                assert bytes(found.payload) == self.committed[entry], f"an orphan of entry {entry} was read"
                return True
            search.negative()
        assert search.verdict is ReadVerdict.UNREACHABLE, f"committed entry {entry} was said to be absent"
        return False

    def settle(self) -> None:
        for _ in range(3):
            self.work.clear()
            self.start_claim()
            self._advance(0, 1000, lambda name: True)
            for bookie in self.bookies.values():
                while bookie.searches:
                    bookie.search()
            writer = self.writers[-1]
            assert writer.session == self.version, "a claim with every bookie up did not succeed"
            assert writer.core.next_entry == len(self.committed), "after recovery there is a gap or a lost entry"
            self.append_by(writer)
        self.check_all_reads()
        ensembles = [fragment.bookies for fragment in self.record.fragments]
        assert ensembles[-3:].count(ensembles[-1]) <= 2, "bounds stay although every bookie has removed its orphans"

    def append_by(self, writer: SimulatedWriter) -> None:
        for other in self.writers[:-1]:
            other.dead = True
        self.messages.clear()
        self.append()
        for message in self.messages:
            self._deliver(message)
        self.messages.clear()
        assert not writer.dead
        assert writer.core.next_entry == len(self.committed), "an append was not acknowledged"


def record_of(quorum: Quorum) -> LedgerRecord:
    names = tuple(BookieId(f"b{index}") for index in range(quorum.ensemble_size))
    return LedgerRecord(quorum, (Fragment(FIRST_ENTRY, FIRST_SESSION, names),))
