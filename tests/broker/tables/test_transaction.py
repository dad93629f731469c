"""Transactions on a table; numbers cite the invariants of `transaction`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_model import AT, applied, give_out, new_state, put

from gnomon.broker.tables.table_state import TableState
from gnomon.broker.tables.transaction import ExpireKey, TableOperation, Transaction, batch_of, decide
from gnomon.log.tables.changes import TableChanges, changes_of
from gnomon.log.tables.key_entry import NO_REVISION, unpack_entry
from gnomon.log.tables.operation_id import OperationId
from gnomon.log.tables.operations import (
    CompareOperator,
    CompareTarget,
    Comparison,
    DeleteKey,
    GetKey,
    IncrementKey,
    PutKey,
)
from gnomon.wire.kafka.batch import parse_batch

IS, IS_NOT, BELOW, ABOVE = CompareOperator
VALUE, VERSION, REVISION, CREATED = CompareTarget


def run(state: TableState, *then: TableOperation, when: Any = (), otherwise: Any = (), now_ms: int = AT) -> Transaction:
    """Decides a transaction, and gives out the batch that it would append, as the log would replay it."""
    transaction = Transaction(when, then, otherwise, OperationId(b"w" * 16, 1, 0))
    entries = state.next_entries()
    changes = decide(transaction, entries, now_ms)
    if changes:
        batch = memoryview(batch_of(changes, transaction.id, now_ms))
        replayed = changes_of(batch, parse_batch(batch), 1 << 20)
        assert replayed == TableChanges(changes, transaction.id)
        again = state.next_entries()
        again.add(replayed.changes)
        assert (again.before, again.after) == (entries.before, entries.after)
        state.give_out(replayed, state.given_out, -1)
    return transaction


def state_of(**values: bytes) -> TableState:
    state = new_state()
    for key, value in values.items():
        give_out(state, put(key.encode(), value))
    return state


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [
        (Comparison(b"a", VALUE, IS, b"1"), True),
        (Comparison(b"a", VALUE, IS_NOT, b"1"), False),
        (Comparison(b"a", VALUE, BELOW, b"2"), True),
        (Comparison(b"a", VALUE, ABOVE, b"1"), False),
        (Comparison(b"a", VALUE, IS, None), False),
        (Comparison(b"a", VALUE, IS_NOT, None), True),
        (Comparison(b"a", REVISION, IS, 1), True),
        (Comparison(b"a", REVISION, BELOW, 1), False),
        (Comparison(b"a", CREATED, IS, 0), True),
        (Comparison(b"a", VERSION, ABOVE, 1), True),
        (Comparison(b"absent", VALUE, IS, None), True),
        (Comparison(b"absent", VALUE, IS, b""), False),
        (Comparison(b"absent", VALUE, IS_NOT, b""), True),
        (Comparison(b"absent", VALUE, BELOW, b"x"), False),
        (Comparison(b"absent", VERSION, IS, 0), True),
        (Comparison(b"absent", REVISION, IS, NO_REVISION), True),
        (Comparison(b"absent", CREATED, IS, NO_REVISION), True),
    ],
)
def test_a_comparison_looks_at_the_newest_entry_durable_or_not(comparison: Comparison, holds: bool) -> None:  # 1
    state = state_of(a=b"0")
    state.durable(state.given_out)
    give_out(state, put(b"a", b"1"))
    assert run(state, GetKey(b"a"), when=[comparison]).succeeded is holds


def test_a_deletion_that_is_not_durable_counts_as_absence() -> None:  # 1
    state = state_of(a=b"0")
    state.durable(state.given_out)
    assert run(state, DeleteKey(b"a")).answers == [1]
    assert run(state, GetKey(b"a"), when=[Comparison(b"a", VALUE, IS, None)]).answers == [None]
    assert run(state, PutKey(b"a", b"1")).answers == [2]
    state.durable(state.given_out)
    assert applied(state)[b"a"][1:4] == (2, 2, 1)


def test_the_other_branch_is_done_where_a_comparison_does_not_hold() -> None:
    state = state_of(a=b"0")
    whens = [Comparison(b"a", VALUE, IS, b"0"), Comparison(b"b", VALUE, IS, b"0")]
    lost = run(state, PutKey(b"a", b"1"), when=whens, otherwise=[PutKey(b"b", b"0")])
    assert (lost.succeeded, lost.answers) == (False, [1])
    won = run(state, PutKey(b"a", b"1"), when=whens, otherwise=[PutKey(b"b", b"0")])
    assert (won.succeeded, won.answers) == (True, [2])


def test_operations_see_what_those_before_them_have_written() -> None:  # 2
    state = state_of(a=b"7")
    done = run(
        state, GetKey(b"a"), PutKey(b"a", b"8"), GetKey(b"a"), DeleteKey(b"b"), IncrementKey(b"n", 5), GetKey(b"n")
    )
    assert done.answers is not None
    before, put_at, after, gone, counted, number = done.answers
    assert unpack_entry(before).value == b"7"
    assert (put_at, unpack_entry(after)[:4]) == (1, (b"8", 1, 0, 2))
    assert gone == NO_REVISION
    assert counted == [2, 5]
    assert unpack_entry(number).value == b"5"
    assert state.given_out == 3


@pytest.mark.parametrize("value", [b"", b"one", b"1.5", b"9" * 20, b"9223372036854775808", b" 1"])
def test_an_increment_of_what_is_no_number_is_not_done_and_neither_is_the_rest(value: bytes) -> None:
    state = state_of(n=value)
    undone = run(state, PutKey(b"a", b"1"), IncrementKey(b"n", 1))
    assert "is no decimal number of 64 bits" in (undone.failure or "")
    assert undone.answers == []
    assert state.given_out == 1


@pytest.mark.parametrize(("value", "by"), [(b"9223372036854775807", 1), (b"-9223372036854775808", -1)])
def test_an_increment_that_overflows_is_not_done(value: bytes, by: int) -> None:
    state = state_of(n=value)
    assert "does not fit into 64 bits" in (run(state, IncrementKey(b"n", by)).failure or "")
    assert run(state, IncrementKey(b"n", -by)).answers == [[1, int(value) - by]]


def test_an_increment_keeps_the_expiry_of_its_key() -> None:
    state = new_state()
    run(state, PutKey(b"n", b"1", 1_000))
    run(state, IncrementKey(b"n", 1), now_ms=AT + 400)
    state.durable(state.given_out)
    assert applied(state)[b"n"] == (b"2", 1, 0, 2, AT + 1_000)


def test_a_key_that_was_put_again_does_not_expire() -> None:
    state = new_state()
    run(state, PutKey(b"a", b"1", 1))
    run(state, PutKey(b"a", b"2", 6))
    assert run(state, ExpireKey(b"a"), now_ms=AT + 5).answers == [NO_REVISION]
    run(state, PutKey(b"a", b"3"))
    assert run(state, ExpireKey(b"a"), now_ms=AT + 5).answers == [NO_REVISION]


def test_a_key_does_not_expire_before_its_time_by_the_clock_of_its_turn_in_the_log() -> None:
    state = new_state()
    run(state, PutKey(b"a", b"1", 10))
    assert run(state, ExpireKey(b"a"), now_ms=AT + 9).answers == [NO_REVISION]
    assert run(state, ExpireKey(b"a"), now_ms=AT + 10).answers == [1]
    assert run(state, ExpireKey(b"a"), now_ms=AT + 10).answers == [NO_REVISION]


@pytest.mark.parametrize(
    ("comparison", "is_final"),
    [
        (Comparison(b"a", REVISION, IS, 0), True),
        (Comparison(b"a", REVISION, IS, 5), False),
        (Comparison(b"a", REVISION, IS, NO_REVISION), False),
        (Comparison(b"a", REVISION, ABOVE, 9), False),
        (Comparison(b"a", VALUE, IS, b"other"), False),
        (Comparison(b"a", VERSION, IS, 9), False),
        (Comparison(b"absent", REVISION, IS, 0), False),
    ],
)
def test_only_a_revision_that_the_key_has_no_more_refuses_for_ever(comparison: Comparison, is_final: bool) -> None:  # 4
    state = state_of(a=b"0")
    give_out(state, put(b"a", b"1"))
    assert run(state, PutKey(b"a", b"2"), when=[comparison]).is_final is is_final


def test_a_read_is_never_final() -> None:  # 4
    assert not run(state_of(a=b"0"), GetKey(b"a")).is_final
