from __future__ import annotations

import pytest

from gnomon.testing.storms.subscriptions.quota_truth import STORED_SECONDS, QuotaTruth

QUOTA = 10
LOOK_SECONDS = 2.0


def truth(acknowledged: int = 0, *topics: str) -> QuotaTruth:
    """Subscriptions that acknowledged this many records at time 0, judged from then on."""
    judge = QuotaTruth(QUOTA, LOOK_SECONDS)
    judge.judge_from(0.0)
    for topic in topics or ("orders",):
        judge.add(topic)
        for offset in range(acknowledged):
            judge.got(topic, offset)
            judge.acked(topic, offset, 0.0)
    return judge


def test_a_refusal_needs_a_backlog_beyond_the_quota_of_the_named_subscription() -> None:
    judge = truth(20, "orders", "copy")
    judge.refused("orders", 20 + QUOTA + 1, 100.0)
    with pytest.raises(AssertionError, match="refused for copy, which had acknowledged all below 20"):
        judge.refused("copy", 20 + QUOTA, 100.0)


def test_a_record_acknowledged_just_before_the_measurement_may_still_count() -> None:
    judge = truth(20)
    judge.refused("orders", 20, STORED_SECONDS + LOOK_SECONDS - 0.1)
    with pytest.raises(AssertionError):
        judge.refused("orders", 20, STORED_SECONDS + LOOK_SECONDS)


def test_a_measurement_from_before_the_judgement_may_be_wrong() -> None:
    judge = truth(20)
    judge.judge_from(100.0)
    judge.refused("orders", 20, 101.0)
    judge.starts(0, 20, 99.0)
    judge.starts(20, 20, 103.0)


def test_a_position_that_a_disturbed_owner_may_have_lost_is_not_certain() -> None:
    judge = truth(20)
    judge.disturbed("orders", STORED_SECONDS - 0.1)
    judge.refused("orders", 20, 100.0)


def test_the_acknowledgement_of_a_redelivered_record_was_not_stored() -> None:
    judge = truth(20)
    judge.got("orders", 5)
    judge.refused("orders", 5 + QUOTA + 1, 100.0)
    with pytest.raises(AssertionError, match="all below 5"):
        judge.refused("orders", 5 + QUOTA, 100.0)


def test_records_are_dropped_only_for_a_backlog() -> None:
    judge = truth(20)
    judge.starts(0, 40, 50.0)
    judge.starts(30, 40, 60.0)
    idle = truth(31)
    idle.starts(0, 31 + QUOTA, 50.0)
    with pytest.raises(AssertionError, match="records below 31 were dropped; acknowledged below"):
        idle.starts(31, 31 + QUOTA, 60.0)


def test_the_first_steps_of_a_drop_may_drop_records_that_all_have_read() -> None:
    judge = truth(20)
    judge.starts(0, 20 + QUOTA + 1, 50.0)
    judge.starts(5, 20 + QUOTA + 1, 60.0)
    judge.starts(21, 20 + QUOTA + 1, 60.5)


def test_records_within_the_quota_are_not_dropped() -> None:
    judge = truth(20)
    judge.starts(0, 40, 50.0)
    with pytest.raises(AssertionError, match="9 records are left"):
        judge.starts(31, 40, 60.0)


def test_an_acknowledged_record_is_not_reported_as_missed() -> None:
    judge = truth(20)
    judge.told("orders", 10, 22, 100.0)
    with pytest.raises(AssertionError, match="10 to 19 are reported as missed"):
        judge.told("orders", 10, 19, 100.0)


def test_each_accepted_record_has_to_come_or_to_be_reported_as_missed() -> None:
    judge = truth(3)
    judge.accepted.update(range(6))
    judge.told("orders", 4, 5, 1.0)
    assert judge.missing("orders") == [3, 5]
    assert judge.missed("orders") == {4}
