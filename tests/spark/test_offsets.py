"""The JSON of offsets, and the part of a backlog that a batch takes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.offsets import (
    BadOption,
    admitted,
    backlog,
    flat,
    nested,
    parse_assignment,
    parse_offsets,
)

places = st.builds(TopicPartition, st.text(min_size=1, max_size=3), st.integers(0, 2**31 - 1))
few = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))
offsets = st.dictionaries(places, st.integers(-2, 2**63 - 1), min_size=1)


@given(offsets)
def test_offsets_survive_their_json(given_offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(nested(given_offsets))
    assert parse_offsets("startingOffsets", text) == given_offsets
    assert json.dumps(nested(dict(reversed(given_offsets.items())))) == text
    assert flat(json.loads(text)) == given_offsets


def test_the_json_is_that_of_the_connector() -> None:
    found = {TopicPartition("b", 10): 5, TopicPartition("a", 0): -2, TopicPartition("b", 9): 7}
    assert json.dumps(nested(found), separators=(",", ":")) == '{"a":{"0":-2},"b":{"9":7,"10":5}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest!",
        "[]",
        "{}",
        '{"a":7}',
        '{"a":{}}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"²":1}}',
        '{"a":{"2147483648":1}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"0":1,"0":2}}',
        '{"a":{"0":1}} x',
    ],
)
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadOption, match="startingOffsets="):
        parse_offsets("startingOffsets", text)


@pytest.mark.parametrize("text", ["", "{}", '{"a":{"0":1}}', '{"a":[]}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}'])
def test_other_assignments_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadOption, match="assign="):
        parse_assignment("assign", text)


def test_an_assignment_is_in_order() -> None:
    found = parse_assignment("assign", '{"b":[1,0,1],"a":[2]}')
    assert found == [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)]


@given(st.dictionaries(few, st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1), st.integers(1, 120))
def test_a_batch_takes_what_is_allowed_and_no_partition_moves_backward(
    given_offsets: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    start = {place: first for place, (first, _) in given_offsets.items()}
    end = {place: last for place, (_, last) in given_offsets.items()}
    sizes = backlog(start, end)
    found = admitted(start, end, offsets_max)
    assert sum(backlog(start, found).values()) == min(offsets_max, sum(sizes.values()))
    assert found.keys() == end.keys()
    assert all(start[place] <= found[place] <= max(start[place], end[place]) for place in end)
    assert sum(backlog(start, admitted(start, end)).values()) == sum(sizes.values())


@given(st.integers(1, 4), st.lists(st.integers(1, 10_000), min_size=2, max_size=6))
def test_no_partition_waits_for_ever_while_others_grow(offsets_max: int, arrivals: list[int]) -> None:
    """A partition with a single record, beside others that get as many records as they hand out."""
    growing = [TopicPartition("a", number) for number in range(len(arrivals))]
    waiting = TopicPartition("a", len(arrivals))
    start, end = dict.fromkeys([*growing, waiting], 0), dict(zip([*growing, waiting], [*arrivals, 1], strict=True))
    for _ in range(4 * len(end)):
        found = admitted(start, end, offsets_max)
        end |= {place: end[place] + found[place] - start[place] for place in growing}
        start = found
    assert start[waiting] == 1
