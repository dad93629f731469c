"""Bugs in tables; the sweep over clients of tables looks for them."""

from __future__ import annotations

from typing import Any

import pytest
from table_scenario import TABLES, TABLES_UNHEARD

from gnomon.broker.kafka import configs
from gnomon.broker.tables import table_state
from gnomon.broker.tables.hosted_table import HostedTable
from gnomon.broker.tables.recent_operations import RecentOperations
from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.transaction import ExpireKey
from gnomon.log.tables.changes import KeyPlacement

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
            for _, entries in list(state._given_out)[-1:]:
                for key in entries:
                    state._newest[key] = newest.get(key) or state.engine.get(key) or entries[key]

    patch.setattr(TableState, "give_out", leaving_out)
    patch.setattr(TableState, "durable", _tolerant(TableState.durable))


def _tolerant(durable: Any) -> Any:
    """`durable` of a table whose newest entries are not those that were given out."""

    def tolerant(state: Any, next_offset: Any) -> None:
        for _, entries in state._given_out:
            for key, packed in entries.items():
                state._newest.setdefault(key, packed)
        durable(state, next_offset)

    return tolerant


@planted("the newest entries stay after a failed append", breaks="broker.tables.table_state 3", quick=True)
def kept_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    def lost(state: Any) -> None:
        state._given_out.clear()
        state.operations.lost()

    patch.setattr(TableState, "lost", lost)
    patch.setattr(TableState, "durable", _tolerant(TableState.durable))


@planted("a read shows what is not durable", breaks="broker.tables.table_state 1", quick=True)
def before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    confirmed = HostedTable._confirmed

    def early(table: Any, look: Any, refuse: Any, certain: bool) -> None:
        state = table._state
        for key, packed in state._newest.items():
            state.engine.put(key, packed)
        confirmed(table, look, refuse, certain)

    patch.setattr(HostedTable, "_confirmed", early)


@planted("a read is not confirmed", breaks="broker.tables.hosted_table 4", scenario=TABLES_UNHEARD)
def unconfirmed(patch: pytest.MonkeyPatch) -> None:
    def read(table: Any, look: Any, refuse: Any, stale: bool, reason: str | None) -> None:
        if reason is not None:
            refuse(reason)
        else:
            look(table._state)

    patch.setattr(HostedTable, "_read", read)


@planted("a batch is applied record by record", breaks="broker.tables.table_state 1", quick=True)
def record_by_record(patch: pytest.MonkeyPatch) -> None:
    durable = TableState.durable

    def in_two_turns(state: Any, next_offset: Any) -> None:
        late = getattr(state, "applied", 0)
        held = {}
        for end, entries in state._given_out:
            if end <= next_offset and end == next_offset and len(entries) > 1:
                held[list(entries)[-1]] = state.engine.get(list(entries)[-1])
        durable(state, next_offset)
        assert late <= state.applied
        for key, before in held.items():
            packed = state.engine.get(key)
            if before is None:
                state.engine.delete(key)
            else:
                state.engine.put(key, before)
            pending.append((state, key, packed))

    pending: list[Any] = []
    confirmed = HostedTable._confirmed

    def then_the_rest(table: Any, look: Any, refuse: Any, certain: bool) -> None:
        confirmed(table, look, refuse, certain)
        for state, key, packed in [each for each in pending if each[0] is table._state]:
            if packed is None:
                state.engine.delete(key)
            else:
                state.engine.put(key, packed)
        pending[:] = [each for each in pending if each[0] is not table._state]

    patch.setattr(TableState, "durable", in_two_turns)
    patch.setattr(HostedTable, "_confirmed", then_the_rest)


@planted("a key that was put again expires", breaks="broker.tables.hosted_table 5", quick=True)
def put_again(patch: pytest.MonkeyPatch) -> None:
    decide = HostedTable.decide

    def whatever(table: Any, operation: Any, base_offset: Any, now_ms: int) -> Any:
        if operation.then and isinstance(operation.then[0], ExpireKey):
            newest = table._state.newest
            operation.then = [
                ExpireKey(each.key, table_state.numbers_of(newest(each.key) or bytes(32))[0]) for each in operation.then
            ]
        return decide(table, operation, base_offset, now_ms)

    patch.setattr(HostedTable, "decide", whatever)


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
