"""The names of segments (numbers: invariants of `segment_record`)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.log.entry import Offset
from gnomon.log.segment_record import NotASegment, is_segment_name, parse_segment_name, segment_name

PREFIX = "topics/00000000000000000000000000000007/3/"
OFFSETS = st.integers(0, (1 << 63) - 1).map(Offset)


@given(OFFSETS, st.integers(0, 1 << 40))
def test_a_name_is_parsed_as_it_was_made(base_offset: Offset, cleaning: int) -> None:
    name = segment_name(PREFIX, base_offset, cleaning)
    assert parse_segment_name(name) == (base_offset, cleaning)
    assert parse_segment_name(f"ledgers/{name}") == (base_offset, cleaning)
    assert is_segment_name(name)


@given(OFFSETS, OFFSETS, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_names_are_ordered_as_their_offsets_are(first: Offset, second: Offset, one: int, other: int) -> None:  # 1
    if first < second:
        assert segment_name(PREFIX, first, one) < segment_name(PREFIX, second, other)


def test_a_name_without_a_cleaning_has_twenty_digits_and_no_suffix() -> None:
    assert segment_name(PREFIX, Offset(17)) == PREFIX + "00000000000000000017"
    assert segment_name(PREFIX, Offset(17), 2) == PREFIX + "00000000000000000017.2"


@pytest.mark.parametrize(
    "last",
    ["", "17", "0" * 19, "0" * 21, "+" + "0" * 19, "0" * 18 + "_1", "a" * 20, "٣" * 20]
    + ["0" * 20 + suffix for suffix in (".", ".0", ".01", ".-1", ".x", ".1.1", " ", "\n", "..1")],
)
def test_an_invalid_name_is_an_error_that_contains_the_name(last: str) -> None:  # 3
    with pytest.raises(NotASegment, match=re.escape(repr(PREFIX + last))):
        parse_segment_name(PREFIX + last)
    assert not is_segment_name(PREFIX + last)
