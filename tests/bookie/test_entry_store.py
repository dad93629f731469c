from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gnomon.bookie import removal
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.entry_store import ENTRIES, GROUP_BYTES_MAX, STATES, EntryStore, FenceResult
from gnomon.bookie.errors import BookieLeaving, DigestMismatch, EntryShrunk, EntryUnknown, Fenced, NoSuchEntry
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, Session
from gnomon.bookie.removal import ENTRY_KEY
from gnomon.metadata.client import Revision
from gnomon.runtime.world import DiskFailed, DiskFull

LEDGER = LedgerId(5)
Answers = list[tuple[int, Exception | None]]


def add(store: EntryStore, entry: int, session: int = 1, payload: bytes = b"x", ledger: LedgerId = LEDGER) -> Answers:
    """Queues an add; its answer appears in the list returned."""
    answers: Answers = []
    at, by, confirmed = EntryId(entry), Session(session), EntryId(entry - 1)
    value = encode_entry(ledger, at, by, confirmed, 0, [payload])
    store.add(ledger, at, by, confirmed, value, lambda answered, error: answers.append((answered, error)))
    return answers


def fence(store: EntryStore, session: int, ledger: LedgerId = LEDGER) -> list[tuple[FenceResult | None, Any]]:
    answers: list[tuple[FenceResult | None, Any]] = []
    store.fence(ledger, Session(session), lambda result, error: answers.append((result, error)))
    return answers


def read(store: EntryStore, entry: int, minimum: int = 0, ledger: LedgerId = LEDGER) -> bytes:
    with store.view() as view:
        return bytes(view.get(ledger, EntryId(entry), Session(minimum)))


def flip(environment: Any, entry: int) -> None:
    """Changes one bit of an entry on disk."""
    with environment.environment.begin(write=True, db=environment.databases[ENTRIES]) as transaction:
        value = bytearray(transaction.get(ENTRY_KEY.pack(LEDGER, entry)))
        value[-1] ^= 1
        transaction.put(ENTRY_KEY.pack(LEDGER, entry), bytes(value))


@pytest.fixture
def manual(environment: Any) -> Any:
    """An environment that commits when the test says so."""
    environment.automatic = False
    return environment


def test_an_add_is_answered_after_the_commit_and_not_before(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    answers = [add(store, entry, payload=b"%d" % entry) for entry in range(3)]
    assert answers == [[], [], []]
    assert len(manual.queue) == 1, "adds that wait together must be one operation"
    manual.flush()
    assert answers == [[(0, None)], [(1, None)], [(2, None)]]
    assert read(store, 2) == b"2"


def test_a_fence_answers_after_earlier_adds_and_refuses_later_ones(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    before = add(store, 0)
    fenced = fence(store, 2)
    after = add(store, 1)
    assert after == [], "a refusal keeps its place behind earlier answers"
    manual.flush()
    assert before == [(0, None)]
    assert fenced == [(FenceResult(EntryId(0), NO_ENTRY), None)]
    assert isinstance(after[0][1], Fenced)
    with pytest.raises(NoSuchEntry):
        read(store, 1)


def test_a_group_is_bounded_in_bytes_and_the_rest_follows(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    payload = bytes(GROUP_BYTES_MAX // 2)
    answers = [add(store, entry, payload=payload) for entry in range(5)]
    manual.flush()
    assert [len(answer) for answer in answers] == [1, 1, 0, 0, 0]
    manual.flush()
    manual.flush()
    assert answers == [[(entry, None)] for entry in range(5)]
    assert len(manual.queue) == 0


def test_a_fence_answers_after_every_add_accepted_before_it_however_many_bytes(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    payload = bytes(GROUP_BYTES_MAX // 2)
    answers = [add(store, entry, payload=payload) for entry in range(5)]
    fenced = fence(store, 2)
    manual.flush()
    assert fenced == [(FenceResult(EntryId(4), EntryId(3)), None)]
    assert answers == [[(entry, None)] for entry in range(5)]


def test_a_promise_survives_a_crash(manual: Any, clock: Any, make_environment: Any) -> None:
    store = EntryStore(manual, clock)
    fence(store, 4)
    manual.flush()
    manual.crash()
    reopened = make_environment(manual.path, automatic=False)
    store = EntryStore(reopened, clock)
    late = add(store, 0, session=3)
    lower = fence(store, 3)
    same = fence(store, 4)
    reopened.flush()
    assert isinstance(late[0][1], Fenced)
    assert isinstance(lower[0][1], Fenced)
    assert same == [(FenceResult(NO_ENTRY, NO_ENTRY), None)]
    reopened.environment.close()


def test_an_add_implies_a_promise_in_the_same_commit(manual: Any, clock: Any, make_environment: Any) -> None:
    store = EntryStore(manual, clock)
    first, second = add(store, 0, session=1), add(store, 0, session=7, payload=b"new")
    manual.flush()
    assert first == second == [(0, None)]
    manual.crash()
    reopened = make_environment(manual.path, automatic=False)
    store = EntryStore(reopened, clock)
    late = add(store, 0, session=6)
    reopened.flush()
    assert isinstance(late[0][1], Fenced)
    assert read(store, 0) == b"new"
    reopened.environment.close()


def test_a_promise_of_a_failed_commit_goes_with_the_next_add(manual: Any, clock: Any, make_environment: Any) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFull("no room")
    fenced = fence(store, 4)
    manual.flush()
    assert isinstance(fenced[0][1], DiskFull)
    manual.fault = None
    clock.now += 10
    add(store, 0, session=4)
    manual.flush()
    manual.crash()
    reopened = make_environment(manual.path, automatic=False)
    late = add(EntryStore(reopened, clock), 0, session=3)
    reopened.flush()
    assert isinstance(late[0][1], Fenced)
    reopened.environment.close()


def test_a_copy_from_a_dead_session_reads_as_absent(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    add(store, 0, session=2)
    manual.flush()
    assert read(store, 0, minimum=2) == b"x"
    with pytest.raises(NoSuchEntry):
        read(store, 0, minimum=3)


def test_a_store_that_may_have_lost_entries_never_says_that_there_is_none(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock, may_have_lost="the disk is new")
    with pytest.raises(EntryUnknown, match="the disk is new"):
        read(store, 0)


def test_a_flipped_bit_on_disk_is_an_error_and_never_data(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    add(store, 3, payload=b"payload")
    manual.flush()
    flip(manual, 3)
    with pytest.raises(DigestMismatch, match="entry 3 of ledger 5"):
        read(store, 3)


@pytest.mark.parametrize(("damaged", "confirmed"), [([], 3), ([4], 2), ([3, 4], 1), (range(5), NO_ENTRY)])
def test_what_is_confirmed_is_said_by_the_newest_entry_that_can_be_read(
    manual: Any, clock: Any, damaged: list[int], confirmed: int
) -> None:
    before = EntryStore(manual, clock)
    for entry in range(5):
        add(before, entry)
    add(before, 7, ledger=LedgerId(LEDGER - 1))
    manual.flush()
    for entry in damaged:
        flip(manual, entry)
    store = EntryStore(manual, clock)
    assert store.last_add_confirmed(LEDGER).entry == confirmed
    answers = fence(store, 2)
    manual.flush()
    assert answers == [(FenceResult(EntryId(4), EntryId(confirmed)), None)]


def test_a_full_disk_makes_the_store_read_only_until_a_later_add_succeeds(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    add(store, 0)
    manual.flush()
    manual.fault = DiskFull("no room on the device")
    refused = add(store, 1)
    manual.flush()
    assert isinstance(refused[0][1], DiskFull)
    assert store.read_only == "no room on the device"
    assert read(store, 0) == b"x"
    manual.fault = None
    early = add(store, 1)
    manual.flush()
    assert isinstance(early[0][1], DiskFull), "it tries again once a second, not with each add"
    clock.now += 1.0
    tried = add(store, 1)
    second = add(store, 2)
    manual.flush()
    assert tried == [(1, None)]
    assert isinstance(second[0][1], DiskFull)
    assert store.read_only is None


def test_a_fence_that_could_be_written_ends_the_read_only_state_too(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFull("no room on the device")
    add(store, 0)
    manual.flush()
    assert store.read_only is not None
    manual.fault = None
    fence(store, 2)
    manual.flush()
    assert store.read_only is None
    # Else the beginning of the session would be the one try of this second, and the add behind it be refused each time.
    answers = [add(store, entry, session=2) for entry in range(2)]
    manual.flush()
    assert answers == [[(0, None)], [(1, None)]]


def test_a_failed_write_stops_the_store_for_good(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFailed("EIO")
    first = add(store, 0)
    manual.flush()
    manual.fault = None
    second = add(store, 1)
    manual.flush()
    assert isinstance(first[0][1], DiskFailed)
    assert isinstance(second[0][1], DiskFailed)
    with pytest.raises(DiskFailed, match="EIO"):
        trio.run(store.run)


def test_who_leaves_answers_what_came_before_and_then_refuses(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    answers: list[tuple[object, object]] = []

    async def main() -> None:
        taken = [add(store, entry, payload=b"x" * 2_000_000) for entry in range(4)]  # more than one group takes
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.leave)
            await trio.testing.wait_all_tasks_blocked()
            late = add(store, 4)
            store.put_copies(LEDGER, Session(1), [], lambda result, error: answers.append((result, error)))
            with pytest.raises(BookieLeaving):
                await store.begin_session(LEDGER, Session(1), [])
            manual.flush(2)
            assert [each for answer in taken for each in answer] == [(entry, None) for entry in range(4)]
            assert late == []
            await trio.testing.wait_all_tasks_blocked()
            assert not nursery.child_tasks, "it has left"
        manual.flush()
        assert isinstance(late[0][1], BookieLeaving)
        assert [type(error) for _, error in answers] == [BookieLeaving]
        assert read(store, 3) == b"x" * 2_000_000

    trio.run(main)


def test_a_map_that_is_really_full_keeps_what_was_acknowledged_and_takes_adds_after_a_removal(
    tmp_path: Path, clock: Any, make_environment: Any
) -> None:
    environment = make_environment(tmp_path / "small", map_bytes=4 << 20)
    store = EntryStore(environment, clock)

    async def main() -> None:
        stored = 0
        while store.read_only is None:
            answers = add(store, stored, payload=bytes([stored % 256]) * 65_536)
            await trio.testing.wait_all_tasks_blocked()
            stored += answers[0][1] is None
        assert stored > 40
        assert read(store, stored - 1) == bytes([(stored - 1) % 256]) * 65_536
        await store.shrink(LEDGER, EntryId(stored // 2))
        assert await store.remove(LEDGER) == stored // 2
        clock.now += 1
        answers = add(store, stored, payload=b"again" * 10_000)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [(stored, None)]

    trio.run(main)
    environment.environment.close()


def test_a_removal_stops_after_a_chunk_and_goes_on_after_a_crash(
    manual: Any, clock: Any, make_environment: Any
) -> None:
    store = EntryStore(manual, clock)
    for entry in range(2_500):
        add(store, entry)
    manual.flush()

    async def give_up_and_crash() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.shrink, LEDGER, EntryId(2_200))
            await trio.testing.wait_all_tasks_blocked()
            manual.flush()
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(store.remove, LEDGER)
            await trio.testing.wait_all_tasks_blocked()
            between = add(store, 2_500)
            manual.flush()  # one chunk, and the add that came between
            assert between == [(2_500, None)]
            nursery.cancel_scope.cancel()

    trio.run(give_up_and_crash)
    manual.crash()
    reopened = make_environment(manual.path)
    store = EntryStore(reopened, clock)
    with reopened.environment.begin(db=reopened.databases[ENTRIES]) as transaction:
        assert transaction.stat()["entries"] == 1_501
    assert store.given_up() == [LEDGER]
    with pytest.raises(EntryShrunk, match="first entry is now 2200"):
        read(store, 0)
    assert trio.run(store.remove, LEDGER) == 1_200
    assert store.given_up() == []
    assert read(store, 2_200) == b"x"
    reopened.environment.close()


def put_copy(store: EntryStore, entry: int, written_by: int, session: int) -> list[Any]:
    """Puts a copy under `session`, as another bookie has it; its answer appears in the list returned."""
    value = encode_entry(LEDGER, EntryId(entry), Session(written_by), EntryId(entry - 1), 0, [b"copy"])
    answers: list[Any] = []
    store.put_copies(LEDGER, Session(session), [(EntryId(entry), value)], lambda _, error: answers.append(error))
    return answers


BOUNDS = [(EntryId(0), Session(1)), (EntryId(10), Session(2))]
"""Of a claim that found the ledger to end at entry 9."""


async def begin_searching(store: EntryStore, manual: Any, nursery: trio.Nursery) -> None:
    """Session 2 has begun to search orphans for, and two chunks of it are over."""
    for entry in range(3_500):
        add(store, entry)
    fence(store, 2)
    manual.flush()
    nursery.start_soon(store.begin_session, LEDGER, Session(2), BOUNDS)
    for _ in range(2):
        await trio.testing.wait_all_tasks_blocked()
        manual.flush(1)
    await trio.testing.wait_all_tasks_blocked()


def entries_left(environment: Any) -> int:
    with environment.environment.begin(db=environment.databases[ENTRIES]) as transaction:
        entries: int = transaction.stat()["entries"]
        return entries


def test_a_search_for_orphans_lets_adds_in_between_and_is_told_of_once_it_is_over(
    manual: Any, clock: Any
) -> None:  # invariant 8
    store = EntryStore(manual, clock)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await begin_searching(store, manual, nursery)
            assert entries_left(manual) == 1_500
            own, other = add(store, 10, session=2), add(store, 0, ledger=LedgerId(6))
            told = fence(store, 2)
            manual.flush(3)  # the third chunk, which takes what waits, and the fence
            assert (own, other) == ([(10, None)], [(0, None)])
            assert told[0][0] == FenceResult(EntryId(3_499), EntryId(3_498), Session(0))
            with pytest.raises(NoSuchEntry):
                read(store, 3_499, minimum=2)  # not removed, and excluded by every record that knows session 2
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked()
                manual.flush()
        assert entries_left(manual) == 10 + 1 + 1
        assert read(store, 10, minimum=2) == b"x"
        told = fence(store, 2)
        manual.flush()
        assert told == [(FenceResult(EntryId(10), EntryId(9), Session(2)), None)]

    trio.run(main)


def test_no_copy_that_its_bounds_exclude_comes_behind_a_search_for_orphans(
    manual: Any, clock: Any
) -> None:  # invariant 8
    store = EntryStore(manual, clock)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await begin_searching(store, manual, nursery)
            behind, before, below = put_copy(store, 10, 1, 2), put_copy(store, 3_000, 1, 2), put_copy(store, 9, 1, 2)
            while nursery.child_tasks:
                manual.flush()
                await trio.testing.wait_all_tasks_blocked()
        assert [type(answer[0]) for answer in (behind, before)] == [Fenced, Fenced]
        assert below == [None]
        assert entries_left(manual) == 10

    trio.run(main)


@pytest.mark.parametrize("restarted", [False, True])
def test_no_copy_comes_late_where_the_last_session_wrote_several_fragments(
    manual: Any, clock: Any, restarted: bool
) -> None:
    """The bookie joined with the second of them, and a claimer that lost still copies entries of the first."""
    store = EntryStore(manual, clock)

    async def main() -> None:
        fence(store, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.begin_session, LEDGER, Session(2), [*BOUNDS, (EntryId(20), Session(2))])
            await trio.testing.wait_all_tasks_blocked()
            manual.flush()

    trio.run(main)
    if restarted:
        store = EntryStore(manual, clock)
    late, below = put_copy(store, 15, 1, 2), put_copy(store, 9, 1, 2)
    manual.flush()
    assert [type(answer[0]) for answer in (late, below)] == [Fenced, type(None)]


@pytest.mark.parametrize("ended_by", ["a later session", "deletion"])
def test_a_search_for_orphans_ends_in_the_middle_when_its_writer_is_one_no_more(
    manual: Any, clock: Any, ended_by: str
) -> None:
    store = EntryStore(manual, clock)

    async def main() -> None:
        with pytest.RaisesGroup(Fenced):
            async with trio.open_nursery() as nursery:
                await begin_searching(store, manual, nursery)
                if ended_by == "deletion":
                    nursery.start_soon(store.delete, LEDGER)
                else:
                    fence(store, 3)
                await trio.testing.wait_all_tasks_blocked()
                manual.flush()
        manual.automatic = True
        manual.flush()
        if ended_by == "deletion":
            await store.delete(LEDGER)
            await store.remove(LEDGER)
            assert entries_left(manual) == 0
            with manual.read() as transaction:
                assert removal.read_bound(transaction, manual.databases[STATES], LEDGER) == (0, 0)
        else:
            assert entries_left(manual) == 500
            told = fence(store, 3)
            await store.begin_session(LEDGER, Session(3), [*BOUNDS, (EntryId(10), Session(3))])
            assert told[0][0] is not None
            assert told[0][0].bound == 0
            assert entries_left(manual) == 10

    trio.run(main)


def test_a_search_for_orphans_that_a_crash_ended_is_made_again_by_the_next_session(
    manual: Any, clock: Any, make_environment: Any
) -> None:  # invariant 8
    async def crash_in_the_middle() -> None:
        async with trio.open_nursery() as nursery:
            await begin_searching(EntryStore(manual, clock), manual, nursery)
            nursery.cancel_scope.cancel()

    trio.run(crash_in_the_middle)
    manual.crash()
    reopened = make_environment(manual.path)
    store = EntryStore(reopened, clock)

    async def claim_again() -> None:
        late = add(store, 1_000, session=1)
        copied = put_copy(store, 10, 1, 2)  # of a claimer that lost, and found more; searched for later
        told = fence(store, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(late[0][1], Fenced)
        assert copied == [None]
        assert told[0][0] is not None
        assert told[0][0].bound == 0, "a search that did not come to its end counts for nothing"
        with pytest.raises(NoSuchEntry):
            read(store, 10, minimum=2)
        await store.begin_session(LEDGER, Session(3), [*BOUNDS, (EntryId(10), Session(3))])
        assert entries_left(reopened) == 10
        told = fence(store, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert told[0][0] is not None
        assert told[0][0].bound == 3

    trio.run(claim_again)
    reopened.environment.close()


def test_a_deleted_ledger_takes_no_adds_even_of_who_slept_through_it_and_leaves_nothing(
    environment: Any, clock: Any
) -> None:
    store = EntryStore(environment, clock)

    async def main() -> None:
        add(store, 0)
        add(store, 0, ledger=LedgerId(6))
        await store.delete(LEDGER)
        late = add(store, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(late[0][1], Fenced)
        await store.remove(LEDGER)
        slept = add(EntryStore(environment, clock), 1)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(slept[0][1], Fenced)
        store.owned({LedgerId(6)}, Revision(6))
        await store.delete(LEDGER)
        await store.remove(LEDGER)
        assert store.ledgers() == [6]
        assert store.given_up() == []
        slept, new = add(store, 1), add(store, 0, ledger=LedgerId(7))
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(slept[0][1], Fenced)
        assert new[0][1] is None

    trio.run(main)


def test_waiting_for_a_last_add_confirmed_ends_when_an_add_or_the_writer_tells_it(environment: Any, clock: Any) -> None:
    store = EntryStore(environment, clock)
    heard: list[int] = []

    async def wait(entry: int) -> None:
        heard.append((await store.wait_for_lac(LEDGER, EntryId(entry))).entry)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 0)
            nursery.start_soon(wait, 1)
            await trio.testing.wait_all_tasks_blocked()
            add(store, 0)
            await trio.testing.wait_all_tasks_blocked()
            assert heard == []
            add(store, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert heard == [0]
            store.confirm(LEDGER, Session(1), EntryId(1))
        assert heard == [0, 1]

    trio.run(main)


class StoreMachine(RuleBasedStateMachine):
    """The store against two dictionaries: what is committed, and what a crash may not take away."""

    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="gnomon-store-"))
        self.model: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.promised: dict[int, int] = {}
        self.pending: list[tuple[int, int, int, bytes, Answers, bool]] = []
        self.environment: Any = None
        self.number = 0
        self._open()

    def _open(self) -> None:
        clock = _Clock()
        self.environment = _Environment(self.directory / "bookie", automatic=False)
        self.store = EntryStore(self.environment, clock)

    @rule(ledger=st.integers(1, 3), entry=st.integers(0, 5), session=st.integers(1, 4))
    def add(self, ledger: int, entry: int, session: int) -> None:
        self.number += 1
        payload = b"%d" % self.number
        accepted = session >= self.promised.get(ledger, 0)
        if accepted:
            self.promised[ledger] = session
        answers = add(self.store, entry, session, payload, LedgerId(ledger))
        self.pending.append((ledger, entry, session, payload, answers, accepted))

    @rule(ledger=st.integers(1, 3), session=st.integers(1, 4))
    def fence(self, ledger: int, session: int) -> None:
        accepted = session >= self.promised.get(ledger, 0)
        if accepted:
            self.promised[ledger] = session
        answers = fence(self.store, session, LedgerId(ledger))
        self.commit()
        result, error = answers[0]
        assert (error is None) == accepted
        if accepted:
            entries = [entry for at, entry in self.model if at == ledger]
            assert result is not None
            assert result.last_entry == max(entries, default=NO_ENTRY)

    @rule()
    def commit(self) -> None:
        self.environment.flush()
        for ledger, entry, session, payload, answers, accepted in self.pending:
            assert len(answers) == 1
            assert isinstance(answers[0][1], Fenced) != accepted
            if accepted:
                self.model[ledger, entry] = (session, payload)
        self.pending.clear()

    @rule()
    def crash(self) -> None:
        self.environment.crash()
        durable: dict[int, int] = {}
        self._open()
        for ledger in self.promised:
            sessions = [self._promised_on_disk(ledger)]
            durable[ledger] = max(sessions)
            assert durable[ledger] >= max((s for (at, _), (s, _) in self.model.items() if at == ledger), default=0)
            assert durable[ledger] <= self.promised[ledger]
        self.promised = durable
        for _, _, _, _, answers, _ in self.pending:
            assert answers == []
        self.pending.clear()

    def _promised_on_disk(self, ledger: int) -> int:
        return self.store._load(LedgerId(ledger)).promised

    @rule(minimum=st.integers(0, 4))
    def read_everything(self, minimum: int) -> None:
        for ledger in range(1, 4):
            for entry in range(6):
                session, payload = self.model.get((ledger, entry), (-1, b""))
                if session >= minimum:
                    assert read(self.store, entry, minimum, LedgerId(ledger)) == payload
                else:
                    with pytest.raises(NoSuchEntry):
                        read(self.store, entry, minimum, LedgerId(ledger))

    def teardown(self) -> None:
        if getattr(self, "environment", None) is not None:
            self.commit()
            self.read_everything(0)
            self.environment.environment.close()
            shutil.rmtree(self.directory)


_Clock: Any = None
_Environment: Any = None


@pytest.fixture(autouse=True)
def _tools_for_the_machine(clock: Any, make_environment: Any) -> None:
    global _Clock, _Environment
    _Clock, _Environment = type(clock), make_environment


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
