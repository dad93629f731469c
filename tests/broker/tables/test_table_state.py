"""The state of a table against a dictionary; numbers cite the invariants of `table_state`."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside these tests: test folders are no packages

from table_model import TableModel, applied, deletion, give_out, new_state, put

from gnomon.broker.tables import table_state
from gnomon.log.entry import Offset
from gnomon.log.tables.changes import KeyChange, TableChanges
from gnomon.log.tables.key_entry import unpack_entry

KEYS = st.sampled_from([b"", b"\0", b"a", b"a\0", b"a\xff", b"\xff", b"\xff\xff", b"k" * 500])
CHANGES = st.lists(
    st.one_of(st.builds(put, KEYS, st.binary(max_size=3), st.integers(0, 2)), st.builds(deletion, KEYS)),
    min_size=1,
    max_size=6,
).map(tuple)


class TableMachine(RuleBasedStateMachine):
    """Batches are given out, become durable and are lost; the model keeps the entries after each record."""

    def __init__(self) -> None:
        super().__init__()
        self._at_once = table_state.APPLIED_AT_ONCE, table_state.LOOKED_UP_AT_ONCE
        table_state.APPLIED_AT_ONCE = table_state.LOOKED_UP_AT_ONCE = 2  # type: ignore[misc]
        self.state, self.model = new_state(), TableModel()
        self.ends = [0]
        """The ends of the batches that were given out, from the durable end on."""

    @rule(changes=CHANGES, lost_meanwhile=st.booleans())
    def batch_is_prepared_and_given_out(self, changes: tuple[KeyChange, ...], lost_meanwhile: bool) -> None:
        batch = TableChanges(changes)
        steps = self.state.prepare(batch, -1)
        next(steps, None)
        if lost_meanwhile:
            self.the_rest_is_lost()
        for _ in steps:
            pass
        self.state.give_out(batch, self.state.given_out, -1)
        self.model.append(changes)
        self.ends.append(self.ends[-1] + len(changes))

    @rule(changes=CHANGES)
    def batch_is_given_out(self, changes: tuple[KeyChange, ...]) -> None:
        give_out(self.state, *changes)
        self.model.append(changes)
        self.ends.append(self.ends[-1] + len(changes))

    @precondition(lambda self: len(self.ends) > 1)
    @rule(data=st.data())
    def some_become_durable(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.ends) - 1))
        del self.ends[:count]
        self.state.durable(Offset(self.ends[0]))

    @rule()
    def some_more_are_applied(self) -> None:
        self.state.apply()

    @rule()
    def the_rest_is_lost(self) -> None:
        self.state.lost()
        del self.ends[1:]
        self.model.cut(self.ends[0])

    def teardown(self) -> None:
        table_state.APPLIED_AT_ONCE, table_state.LOOKED_UP_AT_ONCE = self._at_once  # type: ignore[misc]

    @invariant()
    def readers_see_whole_durable_batches(self) -> None:  # 1, 3
        if self.state.is_behind:
            assert self.state.applied < self.ends[0]
            return
        assert self.state.applied == self.ends[0]
        assert applied(self.state) == self.model.at[self.ends[0]]
        assert list(applied(self.state)) == sorted(self.model.at[self.ends[0]])
        assert len(self.state.engine) == len(self.model.at[self.ends[0]])

    @invariant()
    def decisions_see_everything_that_was_given_out(self) -> None:  # 2, 3, 4
        newest = self.model.at[-1]
        for key in {key for entries in self.model.at for key in entries}:
            packed = self.state.newest(key)
            entry = None if packed is None or not unpack_entry(packed).version else unpack_entry(packed)
            assert entry == newest.get(key)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_the_time_that_the_log_sets_is_the_one_that_a_time_to_live_counts_from() -> None:
    state = new_state()
    state.give_out(TableChanges((put(b"a", b"1", 50),)), Offset(0), 1_000)
    state.durable(Offset(1))
    assert applied(state)[b"a"].expires_ms == 1_050


@settings(max_examples=100, deadline=None)
@given(st.lists(CHANGES, max_size=8), st.data())
def test_the_same_log_in_other_batches_leaves_the_same_entries(
    batches: list[tuple[KeyChange, ...]], data: st.DataObject
) -> None:  # 4
    flat = [change for batch in batches for change in batch]
    one, other = new_state(), new_state()
    for batch in batches:
        give_out(one, *batch)
    while flat:
        size = data.draw(st.integers(1, len(flat)))
        give_out(other, *flat[:size])
        other.durable(other.given_out)
        del flat[:size]
    one.durable(one.given_out)
    assert applied(one) == applied(other)
