"""The entry store: the times of its answers, and its promises."""

from __future__ import annotations

from typing import Any

import lmdb
import pytest
import trio
import trio.testing
from store_calls import LEDGER, add, fence, put_copy, read
from turns import turns_during

from gnomon.bookie.bookie import FenceResult
from gnomon.bookie.errors import BookieLeaving, EntryAltered, EntryShrunk, EntryUnknown, Fenced, NoSuchEntry
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.storage import entry_store
from gnomon.bookie.storage.add_queue import GROUP_BYTES_MAX
from gnomon.bookie.storage.entry_store import ENTRIES, EntryStore
from gnomon.bookie.storage.store_view import StoreView
from gnomon.metadata.client import Revision
from gnomon.runtime.world import DiskFull


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


def test_an_add_that_the_last_commits_bring_after_the_end_of_the_store_is_not_submitted(
    manual: Any, clock: Any
) -> None:
    late: list[Any] = []
    store = EntryStore(manual, clock, on_group=lambda: late.append(add(store, 1)))

    async def until_cancelled() -> None:
        with trio.move_on_after(0):
            await store.run()

    last = add(store, 0)
    trio.run(until_cancelled)
    manual.flush()  # as an environment that closes
    assert last == [(0, None)]
    assert late == [[]]
    assert len(manual.queue) == 0


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


@pytest.mark.parametrize("following", ["add", "check for space"])
def test_a_promise_of_a_failed_commit_is_stored_with_the_next_add_or_check_for_space(
    following: str, manual: Any, clock: Any, make_environment: Any
) -> None:
    store = EntryStore(manual, clock)
    manual.fault = DiskFull("no room")
    fenced = fence(store, 4)
    manual.flush()
    assert isinstance(fenced[0][1], DiskFull)
    manual.fault = None
    clock.now += 10
    if following == "add":
        add(store, 0, session=4)
    else:
        store.adds.probe()
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


def test_a_copy_never_replaces_one_of_a_higher_session(manual: Any, clock: Any) -> None:
    """Two claims used the same session; the loser recovered an older entry at the id of the winner's first append."""
    store = EntryStore(manual, clock)
    appended = add(store, 1, session=2)
    older, below = put_copy(store, 1, 1, 2), put_copy(store, 0, 1, 2)
    manual.flush()
    assert appended == [(1, None)]
    assert [type(answer[0]) for answer in (older, below)] == [Fenced, type(None)]
    assert (read(store, 0), read(store, 1)) == (b"copy", b"x")


def test_present_entries_are_listed_in_runs_without_a_scan_of_absent_ids(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    for entry, session in ((0, 1), (1, 1), (2, 3), (3, 3), (6, 2), (7, 3)):
        put_copy(store, entry, written_by=session, session=3)
    manual.flush()
    with store.view() as view:

        def present(first: int, last: int, session: int, ledger: int = LEDGER) -> list[tuple[int, int]]:
            return list(view.present(LedgerId(ledger), EntryId(first), EntryId(last), SessionId(session)))

        assert present(0, 2**60, 1) == [(0, 3), (6, 7)]
        assert present(0, 100, 3) == [(2, 3), (7, 7)]
        assert present(1, 2, 1) == [(1, 2)]
        assert present(4, 5, 1) == present(8, 100, 1) == present(0, 100, 4) == []
        assert present(0, 100, 1, ledger=LEDGER - 1) == present(0, 100, 1, ledger=LEDGER + 1) == []


def test_a_leaving_store_answers_earlier_adds_and_refuses_later_calls(manual: Any, clock: Any) -> None:
    store = EntryStore(manual, clock)
    answers: list[tuple[object, object]] = []

    async def main() -> None:
        taken = [add(store, entry, payload=b"x" * 2_000_000) for entry in range(4)]  # more than one group
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.leave)
            await trio.testing.wait_all_tasks_blocked()
            late = add(store, 4)
            store.put_copies(LEDGER, SessionId(1), [], lambda result, error: answers.append((result, error)))
            with pytest.raises(BookieLeaving):
                await store.begin_session(LEDGER, SessionId(1), [])
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


def test_a_removal_runs_in_chunks_and_continues_after_a_crash(manual: Any, clock: Any, make_environment: Any) -> None:
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
            manual.flush()  # one chunk, and the add that was queued after it
            assert between == [(2_500, None)]
            nursery.cancel_scope.cancel()

    trio.run(give_up_and_crash)
    manual.crash()
    reopened = make_environment(manual.path)
    store = EntryStore(reopened, clock)
    with reopened.environment.begin(db=reopened.databases[ENTRIES]) as transaction:
        assert transaction.stat()["entries"] == 1_501
    assert store.ledgers.given_up() == [LEDGER]
    with pytest.raises(EntryShrunk, match="first entry is now 2200"):
        read(store, 0)
    assert trio.run(store.remove, LEDGER) == 1_200
    assert store.ledgers.given_up() == []
    assert read(store, 2_200) == b"x"
    reopened.environment.close()


def test_a_deleted_ledger_refuses_adds_of_late_writers_and_leaves_no_entries(environment: Any, clock: Any) -> None:
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
        store.ledgers.owned({LedgerId(6)}, Revision(6))
        await store.delete(LEDGER)
        await store.remove(LEDGER)
        assert await store.ledgers.all() == [6]
        assert store.ledgers.given_up() == []
        slept, new = add(store, 1), add(store, 0, ledger=LedgerId(7))
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(slept[0][1], Fenced)
        assert new[0][1] is None

    trio.run(main)


def test_a_wait_for_a_last_add_confirmed_ends_with_a_later_add_or_a_confirm(environment: Any, clock: Any) -> None:
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
            store.confirm(LEDGER, SessionId(1), EntryId(1))
        assert heard == [0, 1]

    trio.run(main)


def test_listing_many_ledgers_yields_to_other_tasks(
    environment: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = EntryStore(environment, clock)
        written, promised = range(2, 62, 2), range(3, 63, 3)
        for ledger in written:
            add(store, 0, ledger=LedgerId(ledger))
        for ledger in promised:
            fence(store, 2, ledger=LedgerId(ledger))
        await store.leave()
        monkeypatch.setattr("gnomon.bookie.storage.stored_ledgers.LEDGERS_PER_TURN", 5)
        assert await store.ledgers.all() == sorted({*written, *promised})
        assert await turns_during(store.ledgers.all()) >= 8

    trio.run(main)


def test_a_confirmed_entry_is_never_replaced_by_other_bytes_of_its_session(manual: Any, clock: Any) -> None:
    """8."""
    store = EntryStore(manual, clock)
    add(store, 0, payload=b"first")
    add(store, 1, payload=b"second")
    manual.flush()
    altered = add(store, 0, payload=b"other")
    again = add(store, 0, payload=b"first")
    open_end = add(store, 1, payload=b"rewritten")
    manual.flush()
    assert isinstance(altered[0][1], EntryAltered)
    assert (again, open_end) == ([(0, None)], [(1, None)]), "a repeat is taken, and an entry that is not confirmed"
    assert (read(store, 0), read(store, 1)) == (b"first", b"rewritten")
    recovered = add(store, 0, session=2, payload=b"of a later session")
    manual.flush()
    assert recovered == [(0, None)], "what is here may be an orphan of a dead writer"


def test_a_damaged_page_is_no_answer_about_its_entries_and_others_are_served(
    manual: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5."""
    store = EntryStore(manual, clock)
    for entry in range(2):
        add(store, entry, payload=b"%d" % entry)
    manual.flush()

    class OnePageDamaged(StoreView):
        __slots__ = ()

        def __enter__(self) -> StoreView:
            super().__enter__()
            get = self._get

            def damaged(key: bytes, default: object, database: object) -> object:
                if key.endswith(b"\0"):
                    raise lmdb.CorruptedError("mdb_get")
                return get(key, default, database)

            self._get = damaged
            return self

    monkeypatch.setattr(entry_store, "StoreView", OnePageDamaged)
    with store.view() as view:
        with pytest.raises(EntryUnknown, match="a page of this bookie's file is damaged"):
            view.entry(LEDGER, EntryId(0))
        assert bytes(view.get(LEDGER, EntryId(1))) == b"1"
