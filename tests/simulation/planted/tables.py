"""Bugs in tables; the sweep over clients of tables looks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from table_scenario import TABLES, TABLES_UNHEARD

from gnomon.broker.kafka import configs
from gnomon.broker.placement.placement import Placement
from gnomon.broker.tables.recent_operations import RecentOperations
from gnomon.broker.tables.table_reads import TableReads
from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.watches.table_watches import KeyWatch, TableWatches
from gnomon.client.tables.table_partition import TablePartition
from gnomon.log.tables.changes import KeyPlacement
from gnomon.log.tables.key_entry import KeyEntry

from planted.planted_bug import ScenarioBugs

TABLE_BUGS = ScenarioBugs(TABLES)
planted = TABLE_BUGS.planted


@planted("a comparison looks at what is applied only", breaks="broker.tables.table_state 2", quick=True)
def applied_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableState, "newest", lambda state, key: state.engine.get(key))


@planted("a comparison does not see records of Kafka that are not durable", breaks="broker.tables.table_state 2")
def without_produced_records(patch: pytest.MonkeyPatch) -> None:
    give_out = TableState.give_out

    def leaving_out(state: Any, changes: Any, base_offset: Any, append_time_ms: int) -> None:
        newest = dict(state._newest)
        give_out(state, changes, base_offset, append_time_ms)
        if changes.operation is None:
            for _, entries, _ in list(state._given_out)[-1:]:
                for key, packed in entries.after.items():
                    state._newest[key] = newest.get(key) or state.engine.get(key) or packed

    patch.setattr(TableState, "give_out", leaving_out)
    patch.setattr(TableState, "durable", _tolerant(TableState.durable))


def _tolerant(durable: Any) -> Any:
    """`durable` of a table whose newest entries are not those that were given out."""

    def tolerant(state: Any, next_offset: Any) -> Any:
        for _, entries, _ in state._given_out:
            for key, packed in entries.after.items():
                state._newest.setdefault(key, packed)
        return durable(state, next_offset)

    return tolerant


@planted("the newest entries stay after a failed append", breaks="broker.tables.table_state 3")
def kept_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    def lost(state: Any) -> None:
        state._given_out.clear()
        state.operations.lost()

    patch.setattr(TableState, "lost", lost)
    patch.setattr(TableState, "durable", _tolerant(TableState.durable))


def _before_looking(patch: pytest.MonkeyPatch, act: Callable[[Any], None]) -> None:
    """Has `act` called with the state before a read looks at it."""
    read = TableReads.read

    def prepared(reads: Any, look: Any, refuse: Any, *, stale: bool = False) -> None:
        def looking(state: Any) -> None:
            act(state)
            look(state)

        read(reads, looking, refuse, stale=stale)

    patch.setattr(TableReads, "read", prepared)


@planted("a read shows what is not durable", breaks="broker.tables.table_state 1", quick=True)
def before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    def shown_early(state: Any) -> None:
        for key, packed in state._newest.items():
            state.engine.put(key, packed, state.engine.get(key))

    _before_looking(patch, shown_early)


@planted("a read is not confirmed", breaks="broker.tables.table_reads 2", scenario=TABLES_UNHEARD)
def unconfirmed(patch: pytest.MonkeyPatch) -> None:
    read = TableReads.read
    patch.setattr(TableReads, "read", lambda reads, look, refuse, *, stale=False: read(reads, look, refuse, stale=True))


@planted("a batch is applied record by record", breaks="broker.tables.table_state 1", quick=True)
def record_by_record(patch: pytest.MonkeyPatch) -> None:
    """The last record of a batch is applied after the next read, or with the next batch."""
    durable = TableState.durable
    late: dict[int, tuple[bytes, bytes | None]] = {}

    def finish(state: Any) -> None:
        key, packed = late.pop(id(state), (b"", None))
        if packed is not None:
            state.engine.put(key, packed, state.engine.get(key))

    def in_two_turns(state: Any, next_offset: Any) -> Any:
        finish(state)
        last = state._given_out[-1][1].after if state._given_out and state._given_out[-1][0] == next_offset else {}
        before = {key: state.engine.get(key) for key in list(last)[-1:] if len(last) > 1}
        applied = durable(state, next_offset)
        for key, packed in before.items():
            after = state.engine.get(key)
            if packed is not None and after is not None:
                late[id(state)] = key, after
                state.engine.put(key, packed, after)
        return applied

    patch.setattr(TableState, "durable", in_two_turns)
    read = TableReads.read

    def then_the_rest(reads: Any, look: Any, refuse: Any, *, stale: bool = False) -> None:
        def looking(state: Any) -> None:
            look(state)
            finish(state)

        read(reads, looking, refuse, stale=stale)

    patch.setattr(TableReads, "read", then_the_rest)


@planted("a key that was put again, or whose clock was set back, expires", breaks="broker.tables.table_expiry 1")
def put_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyEntry, "is_over", lambda entry, now_ms: True)


@planted("an operation that is sent again is done again", breaks="broker.tables.recent_operations 1", quick=True)
def done_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecentOperations, "find", lambda operations, operation: None)


@planted("an operation is not known after an opening", breaks="broker.tables.recent_operations 2")
def forgotten_after_an_opening(patch: pytest.MonkeyPatch) -> None:
    note = RecentOperations.note

    def only_own(operations: Any, operation: Any, done: Any) -> None:
        if done.answers is not None:
            note(operations, operation, done)

    patch.setattr(RecentOperations, "note", only_own)


@planted("a lost operation counts as done", breaks="broker.tables.recent_operations 3")
def lost_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecentOperations, "lost", lambda operations: operations._in_flight.clear())


@planted("a leader forgets an operation that has no answer", breaks="broker.tables.recent_operations 1")
def forgotten_too_early(patch: pytest.MonkeyPatch) -> None:
    note = RecentOperations.note
    patch.setattr(
        RecentOperations,
        "note",
        lambda operations, operation, done: note(operations, operation._replace(answered_below=operation.number), done),
    )


@planted(
    "a late copy of an answered operation is done again",
    breaks="broker.tables.recent_operations 4",
    found_by="tests/broker/native/test_table_arguments.py",
)
def late_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecentOperations, "is_answered", lambda operations, operation: False)


@planted(
    "the partition of a key is not checked",
    breaks="log.tables.changes 3",
    found_by="tests/log/tables/test_changes.py",
)
def placement_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyPlacement, "check", lambda placement, number, key: None)


@planted(
    "AlterConfigs drops the view of a table",
    breaks="broker.configs",
    found_by="tests/broker/configs/test_view_configs.py",
)
def view_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configs, "check_kept", lambda before, after: None)


@planted("a watch leaves a change out when its broker changes", breaks="client.tables.table_watch 1")
def one_ahead(patch: pytest.MonkeyPatch) -> None:
    watch = TablePartition.watch
    patch.setattr(TablePartition, "watch", lambda partition, prefix, at: watch(partition, prefix, at + 1 if at else 0))


@planted("a watch repeats a change when its broker changes", breaks="client.tables.table_watch 1", quick=True)
def one_behind(patch: pytest.MonkeyPatch) -> None:
    watch = TablePartition.watch
    patch.setattr(TablePartition, "watch", lambda partition, prefix, at: watch(partition, prefix, max(0, at - 1)))


@planted("a watch that waits passes over a change of its keys", breaks="broker.tables.watches.table_watches 3")
def passed_over(patch: pytest.MonkeyPatch) -> None:
    found = KeyWatch.found
    patch.setattr(KeyWatch, "found", lambda watch, base_offset: found(watch, base_offset + 1))


@planted(
    "a look-up at a broker whose lease may be over counts as any other",
    breaks="client.leaders 2",
    found_by="tests/client/tables/test_table_leaders.py",
)
def believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placement, "lease_problem", lambda placement: None)


@planted(
    "a watch waits at a broker whose lease may be over",
    breaks="broker.native.tables.table_methods 4",
    found_by="tests/client/tables/test_table_leaders.py",
)
def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    wait = TableWatches.wait

    async def never_idle(watches: TableWatches, watch: KeyWatch, seconds: float) -> bool:
        await wait(watches, watch, seconds)
        return False

    patch.setattr(TableWatches, "wait", never_idle)
