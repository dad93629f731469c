"""The numbers of a client's operations; numbers cite the invariants of `numbers`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.client.protocol import OUTSTANDING_MAX
from gnomon.client.tables.numbers import OperationNumbers


@given(st.data())
def test_the_lowest_number_without_an_answer_is_known(data: st.DataObject) -> None:  # 1, 2
    numbers, waiting, begun = OperationNumbers(), set[int](), 0
    for _ in range(data.draw(st.integers(0, 30))):
        if waiting and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(waiting)))
            numbers.end(ended)
            waiting.remove(ended)
        else:
            assert numbers.begin() == begun
            waiting.add(begun)
            begun += 1
        assert numbers.answered_below == min(waiting, default=begun)


def test_an_operation_without_an_answer_holds_up_a_limited_number_of_others() -> None:
    numbers = OperationNumbers()
    first = numbers.begin()
    for _ in range(OUTSTANDING_MAX - 1):
        assert numbers.has_room
        numbers.end(numbers.begin())
    assert not numbers.has_room
    numbers.end(first)
    assert numbers.has_room
