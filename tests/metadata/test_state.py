"""The pure metadata state machine, against its numbered invariants and against the reference model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gnomon.metadata import records
from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    HistoryCompacted,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    MetadataError,
    Put,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.draft import EVENT_BYTES, Changes, Draft
from gnomon.metadata.request import Compact, Grant, KeepAlive, Reply, Request, Revoke, Tick, Txn
from gnomon.metadata.state import Snapshot, State
from gnomon.testing.storms.metadata.metadata_model import MetadataModel, prefixes, requests


def done(state: State, *operations: Put | Delete | DeletePrefix | Get, now: float = 0.0) -> TxnOutcome:
    reply, _ = state.apply(Txn((), operations), now)
    assert isinstance(reply, TxnOutcome)
    return reply


def leased(state: State, seconds: float) -> LeaseId:
    lease, _ = state.apply(Grant(seconds), 0.0)
    assert isinstance(lease, int)
    return LeaseId(lease)


def watched(state: State, prefix: str = "", from_revision: int = 1) -> list[WatchBatch]:
    batches = []
    batch, position = state.next_batch(prefix, Revision(from_revision))
    while batch is not None:
        batches.append(batch)
        batch, position = state.next_batch(prefix, position)
    return batches


def test_a_branch_that_changes_nothing_does_not_grow_the_revision() -> None:  # invariant 1
    state = State()
    done(state, Put("a", b"1"))
    reply, changes = state.apply(Txn((), (Get("a"), Delete("b"), DeletePrefix("c"))), 0.0)
    assert reply == TxnOutcome(True, Revision(1), (state.get("a"), 0, 0))
    assert changes is None


def test_a_put_of_the_same_value_is_a_write() -> None:  # invariants 1 and 4
    state = State()
    done(state, Put("a", b"1"))
    assert done(state, Put("a", b"1")).results == (KeyValue("a", b"1", Revision(1), Revision(2), 2),)


def test_a_refused_request_has_no_effect_even_after_others_of_its_draft() -> None:  # invariant 2
    state = State()
    draft = Draft(state)
    draft.apply(Txn((), (Put("a", b"1"),)), 0.0)
    refused = draft.apply(Txn((), (Put("b", b"1"), Put("c", b"", lease=LeaseId(7)))), 0.0)
    assert isinstance(refused, LeaseNotFound)
    state.adopt(draft, 0.0)
    assert [item.key for item in state.range("").items] == ["a"]
    assert state.revision == 1


def test_a_draft_is_visible_to_its_later_requests_and_to_the_state_only_after_adoption() -> None:
    state = State()
    draft = Draft(state)
    draft.apply(Txn((), (Put("a/1", b""), Put("a/2", b""))), 0.0)
    reply = draft.apply(Txn((Compare.version("a/1", 1),), (Delete("a/1"), DeletePrefix("a/"), Get("a/2"))), 0.0)
    assert reply == TxnOutcome(True, Revision(2), (1, 1, None))
    assert state.revision == 0
    assert state.get("a/2") is None
    state.adopt(draft, 0.0)
    assert len(state) == 0
    assert [len(batch.events) for batch in watched(state)] == [2, 2]


def test_a_second_draft_over_the_same_base_is_not_adopted() -> None:  # invariant 8
    state = State()
    first, second = Draft(state), Draft(state)
    state.adopt(first, 0.0)
    with pytest.raises(AssertionError, match="invariant 8"):
        state.adopt(second, 0.0)


def test_a_deleted_prefix_is_one_revision_with_one_event_per_key() -> None:  # invariant 3
    state = State()
    for key in ["p/1", "q", "p/2"]:
        done(state, Put(key, b""))
    assert done(state, DeletePrefix("p/")).results == (2,)
    assert watched(state, from_revision=4) == [WatchBatch(Revision(4), (Event("p/1", None), Event("p/2", None)))]


def test_a_key_that_is_created_again_starts_a_new_life() -> None:  # invariant 4
    state = State()
    done(state, Put("a", b"1"))
    done(state, Put("a", b"2"))
    done(state, Delete("a"))
    assert done(state, Put("a", b"3")).results == (KeyValue("a", b"3", Revision(4), Revision(4), 1),)


def test_the_history_keeps_the_last_revisions_and_older_ones_are_compacted() -> None:  # invariant 5
    state = State(history_revisions=3)
    for number in range(5):
        _, changes = state.apply(Txn((), (Put("a", b"%d" % number),)), 0.0)
    assert changes is not None
    assert changes.dropped == range(2, 3)
    assert [batch.revision for batch in watched(state, from_revision=3)] == [3, 4, 5]
    with pytest.raises(HistoryCompacted, match="the oldest kept is 3") as raised:
        state.next_batch("", Revision(2))
    assert (raised.value.asked, raised.value.oldest) == (2, 3)


VALUE = bytes(1000)
EVENT = EVENT_BYTES + len(VALUE)


def test_the_history_has_a_limit_of_bytes_except_for_those_of_the_newest_revision() -> None:  # invariant 5
    state = State(history_bytes_max=10 * EVENT)
    for step in range(8):
        done(state, *(Put(f"{step}/{number}", VALUE) for number in range(3)))
        assert (
            state.history_bytes
            == 3 * min(step + 1, 3) * EVENT
            == sum(EVENT * len(batch.events) for batch in watched(state, "", state.compacted + 1))
        )
    assert state.compacted == 5
    with pytest.raises(HistoryCompacted):
        state.next_batch("", Revision(5))
    done(state, *(Put(str(number), VALUE) for number in range(20)))
    assert [len(batch.events) for batch in watched(state, "", state.compacted + 1)] == [20]
    state.apply(Compact(state.revision), 0.0)
    done(state, Put("a", b""))
    assert (state.history_bytes, state.compacted) == (EVENT_BYTES, state.revision - 1)


def test_a_snapshot_with_too_many_bytes_for_the_history_loses_the_oldest() -> None:  # invariant 5
    before = State()
    for step in range(8):
        done(before, *(Put(f"{step}/{number}", VALUE) for number in range(3)))
    batches = watched(before)
    snapshot = Snapshot(revision=before.revision, keys=before.range("").items, batches=batches)
    after = State(snapshot, history_bytes_max=10 * EVENT)
    assert (after.compacted, after.history_bytes, watched(after, "", 6)) == (5, 9 * EVENT, batches[5:])


def test_a_snapshot_with_a_gap_in_its_history_is_a_bug() -> None:  # invariant 5
    state = State()
    state.apply(Txn((), (Put("a", b""),)), 0.0)
    store = Store()
    _, changes = state.apply(Txn((), (Put("a", b""),)), 0.0)
    store.write(changes)
    with pytest.raises(AssertionError, match="invariant 5"):
        store.state(0.0, 10)


def test_a_lease_ends_at_its_deadline_and_deletes_its_keys_in_one_revision() -> None:  # invariant 6
    state = State()
    lease = leased(state, 10.0)
    done(state, Put("b", b"", lease=lease), Put("a", b"", lease=lease), Put("kept", b""))
    state.apply(Tick(), 9.99)
    assert len(state) == 3
    assert state.next_deadline == 10.0
    reply, _ = state.apply(Txn((), (Get("a"),)), 10.0)
    assert reply == TxnOutcome(True, Revision(2), (None,))
    assert watched(state, from_revision=2) == [WatchBatch(Revision(2), (Event("a", None), Event("b", None)))]


def test_a_renewed_lease_lives_its_full_time_from_then_on() -> None:  # invariant 6
    state = State()
    lease = leased(state, 10.0)
    assert state.apply(KeepAlive(lease), 9.0) == (None, None)
    done(state, Put("a", b"", lease=lease), now=18.9)
    reply, _ = state.apply(KeepAlive(lease), 19.0)
    assert isinstance(reply, LeaseNotFound)
    assert len(state) == 0


def test_the_time_of_a_lease_begins_when_the_draft_that_granted_or_renewed_it_is_adopted() -> None:  # invariant 6
    state = State()
    renewed, ended = leased(state, 10.0), leased(state, 10.0)
    draft = Draft(state)
    granted = draft.apply(Grant(1.0), 5.0)
    assert draft.apply(KeepAlive(renewed), 9.0) is None
    draft.apply(Tick(), 30.0)
    state.adopt(draft, 40.0)
    assert {lease: item.deadline for lease, item in state.leases.items()} == {renewed: 50.0, granted: 41.0}
    assert isinstance(state.apply(KeepAlive(ended), 40.0)[0], LeaseNotFound)
    assert state.next_deadline == 41.0


def test_a_key_put_again_without_its_lease_outlives_it() -> None:  # invariant 7
    state = State()
    lease = leased(state, 10.0)
    done(state, Put("a", b"", lease=lease))
    done(state, Put("a", b""))
    _, changes = state.apply(Revoke(lease), 0.0)
    assert changes is not None
    assert changes.ended == (lease,)
    assert state.revision == 2
    assert state.get("a") is not None


def test_a_draft_that_ends_a_lease_deletes_keys_it_attached_and_keeps_keys_it_detached() -> None:  # invariant 7
    state = State()
    lease = leased(state, 10.0)
    done(state, Put("before", b"", lease=lease), Put("detached", b"", lease=lease), Put("deleted", b"", lease=lease))
    draft = Draft(state)
    draft.apply(Txn((), (Put("detached", b""), Put("attached", b"", lease=lease), Delete("deleted"))), 0.0)
    draft.apply(Revoke(lease), 0.0)
    state.adopt(draft, 0.0)
    assert [item.key for item in state.range("").items] == ["detached"]
    assert watched(state, from_revision=3) == [
        WatchBatch(Revision(3), (Event("attached", None), Event("before", None)))
    ]


def test_a_lease_id_is_not_granted_again_after_its_end() -> None:  # invariant 7
    state = State()
    granted = [state.apply(Grant(1.0), now)[0] for now in (0.0, 0.0, 5.0, 10.0, 10.0)]
    assert len(set(granted)) == 5
    assert state.next_lease == 6


def test_many_keys_written_or_deleted_at_once_stay_in_order() -> None:
    state = State()
    names = [f"k/{number * 7919 % 1500:04}" for number in range(1500)]
    done(state, *[Put(name, b"") for name in names])
    done(state, Put("k/0250x", b""), Put("a", b""))
    assert [item.key for item in state.range("").items] == ["a", *sorted([*names, "k/0250x"])]
    for prefix, left in [("k/010", 1491), ("k/0", 500), ("k/", 0)]:
        done(state, DeletePrefix(prefix))
        keys = [item.key for item in state.range("k/").items]
        assert keys == sorted(name for name in [*names, "k/0250x"] if not name.startswith(prefix))
        assert len(keys) == left


class Store:
    """Three databases in memory."""

    def __init__(self) -> None:
        self.databases: dict[str, dict[bytes, bytes]] = {name: {} for name in records.DATABASES}

    def write(self, changes: Changes | None) -> None:
        for database, key, value in [] if changes is None else records.writes(changes):
            if value is None:
                self.databases[database].pop(key, None)
            else:
                self.databases[database][key] = value

    def state(self, now: float, history_revisions: int) -> State:
        found = (sorted(self.databases[name].items()) for name in records.DATABASES)
        return State(records.snapshot(*found), now=now, history_revisions=history_revisions)


class StateAgainstModel(RuleBasedStateMachine):
    """Drafts of random requests, some of them dropped, some made durable as bytes, with restarts from those bytes."""

    @initialize(history_revisions=st.sampled_from([1, 2, 5, 10_000]))
    def begin(self, history_revisions: int) -> None:
        self.history_revisions = history_revisions
        self.state = State(history_revisions=history_revisions)
        self.model = MetadataModel(history_revisions)
        self.store = Store()
        self.now = 0.0

    @rule(asked=st.lists(requests, min_size=1, max_size=4))
    def commit(self, asked: list[Request]) -> None:
        draft = Draft(self.state)
        for request in asked:
            self.check(draft.apply(request, self.now), request)
        self.store.write(draft.changes())
        self.state.adopt(draft, self.now)

    @rule(asked=st.lists(requests, min_size=1, max_size=3))
    def drop(self, asked: list[Request]) -> None:
        draft = Draft(self.state)
        for request in asked:
            draft.apply(request, self.now)
        draft.changes()

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        self.state = self.store.state(self.now, self.history_revisions)
        self.model.restart(self.now)

    @rule(prefix=prefixes)
    def read(self, prefix: str) -> None:
        expected = [item for key, item in sorted(self.model.keys.items()) if key.startswith(prefix)]
        assert list(self.state.range(prefix).items) == expected

    @rule(prefix=prefixes, back=st.integers(0, 20))
    def watch(self, prefix: str, back: int) -> None:
        start = max(0, self.model.revision - back)
        if max(start, 1) < self.model.oldest_kept:
            with pytest.raises(HistoryCompacted):
                watched(self.state, prefix, start)
            return
        assert in_key_order(watched(self.state, prefix, start)) == self.model.watched(prefix, start)

    @invariant()
    def nothing_else_moves(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.state.range("").items == tuple(item for _, item in sorted(self.model.keys.items()))
        assert self.state.revision == self.model.revision
        assert {lease: item.deadline for lease, item in self.state.leases.items()} == {
            lease: deadline for lease, (_, deadline) in self.model.leases.items()
        }
        assert len(self.store.databases[records.HISTORY]) == self.state.revision - self.state.compacted

    def check(self, reply: Reply, request: Request) -> None:
        expected = self.model.apply(request, self.now)
        assert (type(reply) if isinstance(reply, MetadataError) else reply) == expected


def in_key_order(batches: list[WatchBatch]) -> list[WatchBatch]:
    return [WatchBatch(batch.revision, tuple(sorted(batch.events, key=lambda event: event.key))) for batch in batches]


StateAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestStateAgainstModel = StateAgainstModel.TestCase


@given(st.lists(st.text("ab/", max_size=4), max_size=5), st.text("ab/", max_size=4))
def test_a_batch_below_a_prefix_has_the_events_below_it_in_order(keys: list[str], prefix: str) -> None:
    batch = WatchBatch(Revision(1), tuple(Event(key, None) for key in keys))
    assert batch.below(prefix) == WatchBatch(
        Revision(1), tuple(Event(key, None) for key in keys if key.startswith(prefix))
    )
