from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for `one_by_one`: test folders are no packages

from one_by_one import assert_alike, decoded, reason, rows

from gnomon.spark.formats.plain_values import RawDecoder, TextDecoder

VALUES = st.lists(st.none() | st.binary(max_size=8), max_size=8)


def test_raw_values_are_kept() -> None:
    assert rows(RawDecoder(), b"\xff", None, b"") == [{"value": b"\xff"}, {"value": None}, {"value": b""}]


def test_texts_are_read_and_a_null_stays_null() -> None:
    assert rows(TextDecoder(), "é".encode(), None, b"") == [{"value": "é"}, {"value": None}, {"value": ""}]


def test_bytes_that_are_no_text_are_a_misfit() -> None:
    assert "utf-8" in reason(TextDecoder(), b"a\xff")
    found = decoded(TextDecoder(), b"a", b"\xff", None)
    assert found.columns.to_pylist() == [{"value": "a"}, {"value": None}]
    assert [misfit.row for misfit in found.misfits] == [1]


@given(values=VALUES)
def test_a_value_is_decoded_in_the_same_way_alone_and_among_others(values: list[bytes | None]) -> None:
    assert_alike(RawDecoder(), values)
    assert_alike(TextDecoder(), values)
