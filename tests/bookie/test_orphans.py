"""The search for orphans at the beginning of a session (numbers: invariants of `entry_store`)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from store_calls import LEDGER, add, fence, put_copy, read, stored_entries

from gnomon.bookie.bookie import FenceResult
from gnomon.bookie.errors import Fenced, NoSuchEntry
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.entry_store import STATES, EntryStore

BOUNDS = [(EntryId(0), SessionId(1)), (EntryId(10), SessionId(2))]
"""The bounds of a claim that found the end of the ledger at entry 9."""


async def begin_searching(store: EntryStore, manual: Any, nursery: trio.Nursery) -> None:
    """Starts the search for orphans of session 2, and completes two of its chunks."""
    for entry in range(3_500):
        add(store, entry)
    fence(store, 2)
    manual.flush()
    nursery.start_soon(store.begin_session, LEDGER, SessionId(2), BOUNDS)
    for _ in range(2):
        await trio.testing.wait_all_tasks_blocked()
        manual.flush(1)
    await trio.testing.wait_all_tasks_blocked()


def test_a_search_for_orphans_lets_adds_through_and_fences_return_its_bound_after_its_end(
    manual: Any, clock: Any
) -> None:  # invariant 8
    store = EntryStore(manual, clock)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await begin_searching(store, manual, nursery)
            assert stored_entries(manual) == 1_500
            own, other = add(store, 10, session=2), add(store, 0, ledger=LedgerId(6))
            told = fence(store, 2)
            manual.flush(3)  # the third chunk, the waiting adds, and the fence
            assert (own, other) == ([(10, None)], [(0, None)])
            assert told[0][0] == FenceResult(EntryId(3_499), EntryId(3_498), SessionId(0))
            with pytest.raises(NoSuchEntry):
                read(store, 3_499, minimum=2)  # not removed, but excluded by every record with session 2
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked()
                manual.flush()
        assert stored_entries(manual) == 10 + 1 + 1
        assert read(store, 10, minimum=2) == b"x"
        told = fence(store, 2)
        manual.flush()
        assert told == [(FenceResult(EntryId(10), EntryId(9), SessionId(2)), None)]

    trio.run(main)


def test_a_search_for_orphans_refuses_copies_that_its_bounds_exclude(manual: Any, clock: Any) -> None:  # invariant 8
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
        assert stored_entries(manual) == 10

    trio.run(main)


@pytest.mark.parametrize("restarted", [False, True])
def test_excluded_copies_are_refused_also_if_the_last_session_has_several_fragments(
    manual: Any, clock: Any, restarted: bool
) -> None:
    """The bookie joined with the second fragment; a claimer that lost still copies entries of the first."""
    store = EntryStore(manual, clock)

    async def main() -> None:
        fence(store, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.begin_session, LEDGER, SessionId(2), [*BOUNDS, (EntryId(20), SessionId(2))])
            await trio.testing.wait_all_tasks_blocked()
            manual.flush()

    trio.run(main)
    if restarted:
        store = EntryStore(manual, clock)
    put_copy(store, 15, 1, 3)
    assert store.promised(LEDGER) == 2, "a refused copy promises nothing"
    late, below = put_copy(store, 15, 1, 2), put_copy(store, 9, 1, 2)
    manual.flush()
    assert [type(answer[0]) for answer in (late, below)] == [Fenced, type(None)]


@pytest.mark.parametrize("ended_by", ["a later session", "deletion"])
def test_a_search_for_orphans_stops_when_its_session_is_fenced_or_the_ledger_is_deleted(
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
            assert stored_entries(manual) == 0
            with manual.read() as transaction:
                assert removal.read_bound(transaction, manual.databases[STATES], LEDGER) == (0, 0)
        else:
            assert stored_entries(manual) == 500
            told = fence(store, 3)
            await store.begin_session(LEDGER, SessionId(3), [*BOUNDS, (EntryId(10), SessionId(3))])
            assert told[0][0] is not None
            assert told[0][0].bound == 0
            assert stored_entries(manual) == 10

    trio.run(main)


def test_the_next_session_repeats_a_search_for_orphans_that_a_crash_ended(
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
        copied = put_copy(store, 10, 1, 2)  # of a claimer that lost and found more entries; removed by a later search
        told = fence(store, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(late[0][1], Fenced)
        assert copied == [None]
        assert told[0][0] is not None
        assert told[0][0].bound == 0, "a search that did not come to its end counts for nothing"
        with pytest.raises(NoSuchEntry):
            read(store, 10, minimum=2)
        await store.begin_session(LEDGER, SessionId(3), [*BOUNDS, (EntryId(10), SessionId(3))])
        assert stored_entries(reopened) == 10
        told = fence(store, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert told[0][0] is not None
        assert told[0][0].bound == 3

    trio.run(claim_again)
    reopened.environment.close()
