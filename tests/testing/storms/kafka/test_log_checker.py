from __future__ import annotations

from collections.abc import Callable

import pytest

from gnomon.testing.storms.kafka.log_checker import Anomaly, LogHistory, check_log


def clean(records: int = 60) -> LogHistory:
    """Three producers in turn and two consumers; every tenth send is unknown, and half of those are in the log."""
    history = LogHistory()
    for number in range(records):
        send = history.send(f"producer-{number % 3}", b"value %d" % number)
        offset = len(history.final)
        if number % 20 == 10:
            continue
        history.final.append((offset, send.value))
        if number % 10:
            send.acknowledged(offset)
    history.polls = {"all": history.final[:], "late": history.final[30:]}
    return history


def lose(history: LogHistory) -> None:
    history.final.pop()
    history.polls.clear()


def lose_after_read(history: LogHistory) -> None:
    history.sends[-1].outcome = history.sends[0].outcome
    history.final.pop()


def double(history: LogHistory) -> None:
    history.final.append((len(history.final), history.final[5][1]))


def change(history: LogHistory) -> None:
    history.polls["all"][7], history.polls["all"][8] = (
        (7, history.polls["all"][8][1]),
        (8, history.polls["all"][7][1]),
    )


def acknowledge_elsewhere(history: LogHistory) -> None:
    history.sends[7].offset += 100
    history.polls.clear()


def invent(history: LogHistory) -> None:
    history.final.append((len(history.final), b"nobody's"))


def fail_one(history: LogHistory) -> None:
    history.sends[3].failed()


def poll_twice(history: LogHistory) -> None:
    history.polls["all"].append(history.polls["all"][-1])


def skip(history: LogHistory) -> None:
    del history.polls["all"][4:6]


def acknowledge_backwards(history: LogHistory) -> None:
    history.sends[5].offset, history.sends[8].offset = history.sends[8].offset, history.sends[5].offset


def reorder(history: LogHistory) -> None:
    history.polls.clear()
    (first, one), (second, other) = history.final[1], history.final[4]
    history.final[1], history.final[4] = (first, other), (second, one)
    for send in history.sends:
        send.offset = -1


def leave_a_gap(history: LogHistory) -> None:
    history.final = [(offset + (offset >= 30), value) for offset, value in history.final]


PLANTED: dict[Anomaly, Callable[[LogHistory], None]] = {
    Anomaly.LOST_WRITE: lose,
    Anomaly.LOST_AFTER_READ: lose_after_read,
    Anomaly.DUPLICATE: double,
    Anomaly.INCONSISTENT_OFFSET: change,
    Anomaly.UNSENT_VALUE: invent,
    Anomaly.FAILED_WRITE_APPEARS: fail_one,
    Anomaly.NON_MONOTONIC_POLL: poll_twice,
    Anomaly.SKIPPED_POLL: skip,
    Anomaly.NON_MONOTONIC_SEND: acknowledge_backwards,
    Anomaly.PRODUCER_ORDER: reorder,
    Anomaly.GAP: leave_a_gap,
}


def test_a_clean_history_passes_with_unknown_sends_that_appeared_and_that_did_not() -> None:
    assert check_log(clean()) == []


@pytest.mark.parametrize("anomaly", Anomaly, ids=lambda anomaly: anomaly.value)
def test_each_planted_anomaly_is_found(anomaly: Anomaly) -> None:
    history = clean()
    PLANTED[anomaly](history)
    assert anomaly in {finding.anomaly for finding in check_log(history)}


def test_an_acknowledgement_at_another_offset_is_inconsistent() -> None:
    history = clean()
    acknowledge_elsewhere(history)
    assert Anomaly.INCONSISTENT_OFFSET in {finding.anomaly for finding in check_log(history)}


def test_records_below_the_log_start_may_be_missing() -> None:
    history = clean()
    history.log_start_offset = 20
    del history.final[:20]
    assert check_log(history) == []


def test_without_idempotence_a_retry_may_double_and_reorder() -> None:
    history = clean()
    double(history)
    assert check_log(history, idempotent=False) == []


def test_a_log_with_transactions_may_have_gaps() -> None:
    history = clean()
    leave_a_gap(history)
    assert Anomaly.GAP not in {finding.anomaly for finding in check_log(history, dense=False)}


def test_ten_examples_of_a_kind_are_enough() -> None:
    history = clean(300)
    history.final.clear()
    history.polls.clear()
    assert len(check_log(history)) == 10
