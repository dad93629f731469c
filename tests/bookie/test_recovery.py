"""Writer, reader, recovery and record in a plain loop: several bookies, several writers, lost and late messages."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import NotEnoughBookies
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, Session
from gnomon.bookie.reader import EntryRead, Verdict
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum, claim
from gnomon.bookie.recovery import Recovery
from gnomon.bookie.writer import LedgerWriter

SEEDS = 2_000
STEPS = 150
QUORUMS = [Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(4, 3, 2), Quorum(3, 3, 1), Quorum(1, 1, 1), Quorum(2, 2, 2)]


class SimulatedBookie:
    """Durable as soon as it answers; forgets nothing."""

    def __init__(self) -> None:
        self.promised = 0
        self.entries: dict[int, StoredEntry] = {}
        self.confirmed = NO_ENTRY

    def add(self, entry: EntryId, session: Session, confirmed: EntryId, payload: bytes) -> bool:
        if session < self.promised:
            return False
        self.promised = session
        self.confirmed = max(self.confirmed, confirmed)
        self.entries[entry] = StoredEntry(session, confirmed, 0, memoryview(payload))
        return True

    def fence(self, session: Session) -> bool:
        if session < self.promised:
            return False
        self.promised = session
        return True

    def read(self, entry: EntryId, minimum_session: Session) -> StoredEntry | None:
        stored = self.entries.get(entry)
        return stored if stored is not None and stored.session >= minimum_session else None


class SimulatedWriter:
    """A writer, its pending entries, and whether it may take new ones yet."""

    def __init__(self, session: Session, core: LedgerWriter, recovered_to: EntryId) -> None:
        self.session, self.core, self.recovered_to = session, core, recovered_to
        self.payloads: dict[int, bytes] = {}
        self.dead = False

    @property
    def serving(self) -> bool:
        return not self.dead and self.core.confirmed >= self.recovered_to


Message = tuple[SimulatedWriter, int, EntryId, EntryId, bytes]


class Cluster:
    """Bookies, the record, writers and claims in progress; each step is drawn from one random stream."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.quorum = quorum = QUORUMS[seed % len(QUORUMS)]
        self.bookies = [SimulatedBookie() for _ in range(quorum.ensemble_size)]
        self.record = record_of(quorum)
        self.version = 1
        self.writers = [SimulatedWriter(FIRST_SESSION, LedgerWriter(quorum, NO_ENTRY), NO_ENTRY)]
        self.claims: list[Generator[None, bool, SimulatedWriter | None]] = []
        self.messages: list[Message] = []
        self.acknowledged: dict[int, bytes] = {}
        self.appended = 0
        # Each seed draws its own mix: with one mix for all, some schedules would never be seen.
        self.steps = [self.append, self.deliver, self.lose, self.start_claim, self.advance_claim, self.read]
        usual = (3, 4, 0.1, 0.4, 2, 0.3)
        self.weights = [weight * self.random.choice((0.3, 1, 3)) for weight in usual]
        self.loss = self.random.choice((0, 0.1, 0.3))
        # A bookie that is slow for everyone leaves orphans behind: its messages come late or never.
        self.slow = self.random.randrange(quorum.ensemble_size) if self.random.random() < 0.5 else -1

    def run(self, steps: int) -> None:
        for step in self.random.choices(self.steps, self.weights, k=steps):
            step()
            self.check_all_reads()
        self.settle()

    # --- writers ---

    def append(self) -> None:
        serving = [writer for writer in self.writers if writer.serving]
        if serving:
            writer = self.random.choice(serving)
            self.appended += 1
            self._send(writer, f"{writer.session}/{self.appended}".encode())

    def _send(self, writer: SimulatedWriter, payload: bytes) -> None:
        entry = writer.core.append()
        writer.payloads[entry] = payload
        for index in writer.core.write_set(entry):
            self.messages.append((writer, index, entry, writer.core.confirmed, payload))

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            if self.messages:
                index = self.random.randrange(len(self.messages))
                if self.messages[index][1] != self.slow or self.random.random() < 0.1:
                    self._deliver(self.messages.pop(index))

    def lose(self) -> None:
        if self.messages:
            writer, index, entry, _, _ = self.messages.pop(self.random.randrange(len(self.messages)))
            if writer.core.failed(index, entry):
                writer.dead = True

    def _deliver(self, message: Message) -> None:
        writer, index, entry, confirmed, payload = message
        stored = self.bookies[index].add(entry, writer.session, confirmed, payload)
        if writer.dead:
            return
        if not stored:
            writer.dead = True
            return
        before = writer.core.confirmed
        for acknowledged in range(before + 1, writer.core.stored(index, entry) + 1):
            payload = writer.payloads[acknowledged]
            assert self.acknowledged.setdefault(acknowledged, payload) == payload, "an entry was acknowledged twice"

    # --- claims ---

    def start_claim(self) -> None:
        if len(self.claims) < 3:
            generator = self._claim(self.record, self.version)
            next(generator)
            self.claims.append(generator)

    def advance_claim(self) -> None:
        if self.claims:
            index = self.random.randrange(len(self.claims))
            self._advance(index, [self.random.random() >= self.loss for _ in range(self.random.randint(1, 6))])

    def _advance(self, index: int, reachable: list[bool]) -> None:
        try:
            for answered in reachable:
                self.claims[index].send(answered)
        except StopIteration as stop:
            self.claims.pop(index)
            if stop.value is not None:
                self.writers.append(stop.value)

    def _claim(self, record: LedgerRecord, version: int) -> Generator[None, bool, SimulatedWriter | None]:
        session = Session(version + 1)
        recovery = Recovery(record)
        for index, bookie in enumerate(self.bookies):
            if (yield):
                if not bookie.fence(session):
                    return None
                recovery.fenced(index, bookie.confirmed)
        try:
            while (request := recovery.next_read()) is not None:
                index, entry, minimum = request
                if (yield):
                    stored = self.bookies[index].read(entry, minimum)
                    if stored is None:
                        recovery.absent()
                    else:
                        recovery.found(entry, stored)
        except NotEnoughBookies:
            return None
        yield
        if self.version != version:
            return None
        self.version += 1
        self.record = claim(record, session, recovery.last_entry)
        for entry, payload in self.acknowledged.items():
            assert entry <= recovery.last_entry, f"acknowledged entry {entry} was lost in recovery"
            if entry > recovery.confirmed:
                assert recovery.tail[entry - recovery.confirmed - 1] == payload, f"entry {entry} was changed"
        writer = SimulatedWriter(session, LedgerWriter(self.quorum, recovery.confirmed), recovery.last_entry)
        for payload in recovery.tail:
            self._send(writer, payload)
        return writer

    # --- readers ---

    def read(self) -> None:
        if self.acknowledged:
            entry = EntryId(self.random.choice(sorted(self.acknowledged)))
            self._check_read(entry, [self.random.random() < 0.5 for _ in self.bookies])

    def check_all_reads(self) -> None:
        for entry in self.acknowledged:
            assert self._check_read(EntryId(entry), [True] * 4), f"acknowledged entry {entry} is nowhere"

    def _check_read(self, entry: EntryId, reachable: list[bool]) -> bool:
        search = EntryRead(self.quorum, entry)
        minimum = self.record.fragment_of(entry).session
        while (index := search.next_bookie()) is not None:
            if not reachable[index]:
                continue
            stored = self.bookies[index].read(entry, minimum)
            if stored is not None:
                assert bytes(stored.payload) == self.acknowledged[entry], f"an orphan of entry {entry} was read"
                return True
            search.negative()
        assert search.verdict is Verdict.UNREACHABLE, f"acknowledged entry {entry} was said to be absent"
        return False

    def settle(self) -> None:
        for _ in range(2):
            self.claims.clear()
            self.start_claim()
            self._advance(0, [True] * 1000)
            writer = self.writers[-1]
            assert writer.session == self.version, "a claim with every bookie up did not succeed"
            messages, self.messages = self.messages, []
            for message in messages:
                if message[0] is writer:
                    self._deliver(message)
            assert writer.serving, "the recovered tail could not be written again"
            assert writer.core.next_entry == len(self.acknowledged), "after recovery there is a gap or a lost entry"
        self.check_all_reads()


def test_what_is_acknowledged_survives_every_schedule_of_writers_claims_and_losses() -> None:
    acknowledged = claims = 0
    for seed in range(SEEDS):
        cluster = Cluster(seed)
        try:
            cluster.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(cluster.acknowledged)
        claims += len(cluster.writers) - 1
    assert acknowledged > SEEDS, "the schedules acknowledge too little to show anything"
    assert claims > 2 * SEEDS, "the schedules claim too rarely to show anything"


def record_of(quorum: Quorum) -> LedgerRecord:
    names = tuple(BookieId(f"b{index}") for index in range(quorum.ensemble_size))
    return LedgerRecord(quorum, (Fragment(FIRST_ENTRY, FIRST_SESSION, names),))


def stored(session: int, payload: bytes, length_bytes: int = 0) -> StoredEntry:
    return StoredEntry(Session(session), NO_ENTRY, length_bytes, memoryview(payload))


def test_recovery_trusts_nothing_before_enough_bookies_are_fenced() -> None:
    recovery = Recovery(record_of(Quorum(3, 3, 2)))
    recovery.fenced(0, EntryId(7))
    recovery.fenced(0, EntryId(7))
    with pytest.raises(NotEnoughBookies, match="only 1 of 2"):
        recovery.next_read()


def test_recovery_asks_fenced_bookies_alone_and_needs_explicit_answers() -> None:
    recovery = Recovery(record_of(Quorum(3, 3, 2)))
    recovery.fenced(0, NO_ENTRY)
    recovery.fenced(2, NO_ENTRY)
    assert recovery.next_read() == (0, 0, 1)
    recovery.absent()
    assert recovery.next_read() == (2, 0, 1)
    with pytest.raises(NotEnoughBookies, match="entry 0"):
        recovery.next_read()  # bookie 2 answered with an error: one negative answer is not enough


def test_recovery_reads_the_last_confirmed_entry_for_the_length_alone() -> None:
    recovery = Recovery(record_of(Quorum()))
    recovery.fenced(0, EntryId(4))
    assert recovery.next_read() == (0, 4, 1)
    recovery.found(EntryId(4), stored(1, b"confirmed", 500))
    assert recovery.next_read() == (0, 5, 1)
    recovery.found(EntryId(5), stored(1, b"tail", 504))
    assert recovery.next_read() == (0, 6, 1)
    recovery.absent()
    assert recovery.next_read() is None
    assert (recovery.confirmed, recovery.last_entry, recovery.tail, recovery.length_bytes) == (4, 5, [b"tail"], 504)


def test_a_damaged_last_confirmed_entry_does_not_hinder_recovery() -> None:
    recovery = Recovery(record_of(Quorum()))
    recovery.fenced(0, EntryId(4))
    assert recovery.next_read() == (0, 4, 1)
    assert recovery.next_read() == (0, 5, 1)  # the answer about entry 4 was an error
    recovery.absent()
    assert recovery.next_read() is None
    assert recovery.last_entry == 4
