"""The rules that all kinds of tables share."""

from __future__ import annotations

import pytest
from lake_tables import OTHER_QUERY, QUERY

from gnomon.spark.tables.table import (
    ATTEMPTS_MAX,
    BadTable,
    CommitVerdict,
    TableBatch,
    TableBusy,
    checked_pipeline_name,
    decided,
    verdict,
)

OPEN, ALREADY, FENCED = CommitVerdict.OPEN, CommitVerdict.ALREADY, CommitVerdict.FENCED


@pytest.mark.parametrize(
    ("last", "batch", "replaces", "expected"),
    [
        (None, (QUERY, 0), None, OPEN),
        (None, (QUERY, 7), OTHER_QUERY, OPEN),
        ((QUERY, 4), (QUERY, 5), None, OPEN),
        ((QUERY, 4), (QUERY, 4), None, ALREADY),
        ((QUERY, 4), (QUERY, 3), None, ALREADY),
        ((QUERY, 4), (QUERY, 9), None, OPEN),
        ((OTHER_QUERY, 4), (QUERY, 5), None, FENCED),
        ((OTHER_QUERY, 4), (QUERY, 3), None, FENCED),
        ((OTHER_QUERY, 4), (QUERY, 0), OTHER_QUERY, OPEN),
        ((OTHER_QUERY, 4), (QUERY, 9), QUERY, FENCED),
        ((QUERY, 4), (QUERY, 4), QUERY, ALREADY),
        ((QUERY, 4), (QUERY, 4), OTHER_QUERY, ALREADY),
    ],
)
def test_a_verdict_follows_from_the_last_batch_and_the_query_that_is_replaced(
    last: tuple[str, int] | None, batch: tuple[str, int], replaces: str | None, expected: CommitVerdict
) -> None:  # 2
    known = None if last is None else TableBatch(*last)
    assert verdict(known, TableBatch(*batch), replaces) is expected
    short = None if known is None else TableBatch(known.query_digits, known.number)
    assert verdict(short, TableBatch(*batch), replaces) is expected  # 3


def test_a_query_is_known_by_its_first_digits() -> None:  # 3
    assert TableBatch(QUERY, 0).query_digits == "0f1e2d3c4b5a496"


def test_a_driver_decides_again_a_bounded_number_of_times() -> None:  # 4
    answers = iter([None] * (ATTEMPTS_MAX - 1) + [ALREADY])
    assert decided("t", lambda: next(answers)) is ALREADY
    with pytest.raises(TableBusy, match="t: 20 commits of a batch lost against other writers"):
        decided("t", lambda: None)


def test_a_name_of_a_pipeline_can_name_a_folder() -> None:
    assert checked_pipeline_name("orders-2.raw_x") == "orders-2.raw_x"
    for name in ("", ".hidden", "a/b", "a\n", "x" * 201):
        with pytest.raises(BadTable, match="is no name of a pipeline"):
            checked_pipeline_name(name)
