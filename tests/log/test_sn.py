"""The last record of a partition, and what a writer expects of it (numbers: invariants of `sn`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import EMPTY, SN, SN_MAX, Match, match

NUMBERS = st.one_of(st.none(), st.integers(-1, SN_MAX))
PLACES = st.one_of(st.none(), st.just(EMPTY.dlsn), st.builds(Dlsn, *[st.integers(0, SN_MAX)] * 3))
CURRENT = SN(Dlsn(20, 3, 1), 7, 24)


def test_nothing_written_and_the_first_record_differ_in_every_field() -> None:  # 3
    first = SN(Dlsn(0, 0, 0), 0, 0)
    for field in SN._fields:
        for expected, current in ((EMPTY, first), (first, EMPTY)):
            part = SN(**{field: getattr(expected, field)})
            assert match(part, expected) is Match.HOLDS
            assert match(part, current) is not Match.HOLDS, field


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (SN(sequence_id=24), Match.HOLDS),
        (SN(Dlsn(20, 3, 1)), Match.HOLDS),
        (SN(transaction_id=7), Match.HOLDS),
        (CURRENT, Match.HOLDS),
        (SN(sequence_id=25), Match.AHEAD),
        (SN(Dlsn(20, 3, 2)), Match.AHEAD),
        (SN(Dlsn(21, 0, 0)), Match.AHEAD),
        (SN(transaction_id=8), Match.AHEAD),
        (SN(sequence_id=23), Match.NEVER),
        (SN(sequence_id=-1), Match.NEVER),
        (SN(Dlsn(20, 2, 9)), Match.NEVER),
        (SN(transaction_id=6), Match.NEVER),
        (SN(Dlsn(20, 3, 2), sequence_id=23), Match.NEVER),
        (SN(Dlsn(20, 2, 0), sequence_id=25), Match.NEVER),
        (SN(transaction_id=6, sequence_id=24), Match.NEVER),
        (SN(transaction_id=8, sequence_id=24), Match.AHEAD),
    ],
)
def test_an_expectation_with_a_field_below_the_present_one_never_comes_true(expected: SN, found: Match) -> None:  # 2
    assert match(expected, CURRENT) is found


def test_an_expected_place_never_matches_one_that_is_not_known() -> None:
    assert match(SN(Dlsn(20, 3, 1)), CURRENT._replace(dlsn=None)) is Match.NEVER
    assert match(SN(sequence_id=24), CURRENT._replace(dlsn=None)) is Match.HOLDS


@given(st.builds(SN, PLACES, NUMBERS, NUMBERS))
def test_an_sn_is_decoded_as_it_was_encoded(sn: SN) -> None:
    assert SN.decode(sn.encode()) == sn


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (None, "an SN has a DLSN, a transaction id and a sequence id, not None"),
        ([], "an SN has"),
        ([None, None], "an SN has"),
        ([None, None, -2], f"a sequence id is a number from -1 to {SN_MAX}, not -2"),
        ([None, SN_MAX + 1, None], f"a transaction id is a number from -1 to {SN_MAX}, not {SN_MAX + 1}"),
        ([None, None, True], "a sequence id is a number"),
        ([None, None, "7"], "a sequence id is a number"),
        ([[0, 0], None, None], "a DLSN is three numbers from 0 on"),
        ([[0, 0, -2], None, None], "a DLSN is three numbers from 0 on"),
        ([[0, 1, -1], None, None], "a DLSN is three numbers from 0 on"),
        ([7, None, None], "a DLSN is three numbers from 0 on"),
    ],
)
def test_an_sn_of_another_form_is_refused(stored: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SN.decode(stored)


def test_the_text_of_an_sn_names_the_fields_that_are_set() -> None:
    assert str(CURRENT) == "sequence id 24, DLSN 20:3:1, transaction id 7"
    assert str(SN(sequence_id=-1)) == "sequence id -1"
