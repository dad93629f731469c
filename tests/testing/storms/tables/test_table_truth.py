"""The judge of the clients of a table finds each violation of its rules (numbers: invariants of `table_truth`)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gnomon.log.tables.changes import NO_TTL, KeyChange
from gnomon.log.tables.key_entry import ABSENT, KeyEntry
from gnomon.log.tables.operations import CompareOperator, CompareTarget, Comparison
from gnomon.testing.storms.tables.table_truth import CountedSum, LoggedBatch, TableRead, TableTruth, WatchedKeys

AT_MS = 1_000


def put(
    key: bytes, value: bytes | None, ttl_ms: int = NO_TTL, at_ms: int = AT_MS, *, expiry: bool = False
) -> KeyChange:
    return KeyChange(key, value, ttl_ms, at_ms, expiry)


def at_revision(revision: int) -> Comparison:
    return Comparison(b"a", CompareTarget.REVISION, CompareOperator.EQUAL, revision)


LOG = [
    LoggedBatch(0, [put(b"a", b"first")]),
    LoggedBatch(1, [put(b"a", b"second"), put(b"b", b"beside")]),
    LoggedBatch(3, [put(b"counter", b"1")]),
    LoggedBatch(4, [put(b"counter", b"2")]),
    LoggedBatch(5, [put(b"t", b"short", 500)]),
    LoggedBatch(6, [put(b"t", None, at_ms=AT_MS + 500, expiry=True)]),
]
FIRST, SECOND = KeyEntry(b"first", 0, 0, 1), KeyEntry(b"second", 1, 0, 2)
BESIDE = KeyEntry(b"beside", 2, 2, 1)


def right() -> TableTruth:
    """A history that its log confirms."""
    truth = TableTruth()
    truth.write([(b"a", b"first")], [at_revision(-1)], 1.0).done(0, 2.0)
    truth.write([(b"a", b"second"), (b"b", b"beside")], [at_revision(0)], 3.0).done(1, 4.0)
    truth.write([(b"a", b"lost")], [at_revision(0)], 3.0).refused({b"a": SECOND}, 4.5)
    truth.write([(b"a", b"never")], [], 5.0)
    truth.reads.append(TableRead({b"a": FIRST, b"b": ABSENT}, 2.5, 2.6))
    truth.reads.append(TableRead({b"a": SECOND, b"b": BESIDE}, 4.1, 4.2))
    truth.reads.append(TableRead({b"a": FIRST}, 6.0, 6.1, is_stale=True))
    truth.increments = 3
    truth.sums += [CountedSum(1, 5.0, 5.5), CountedSum(2, 5.6, 6.0)]
    truth.watched.append(WatchedKeys(b"a", None, {b"a": (0, b"first")}, [(1, b"a", b"second", False)], complete=6.0))
    return truth


def test_a_right_history_is_accepted() -> None:
    right().check(LOG)


def add_read(
    entries: dict[bytes, KeyEntry], called: float, returned: float, **more: bool
) -> Callable[[TableTruth], None]:
    return lambda truth: truth.reads.append(TableRead(entries, called, returned, **more))


def set_watch(**fields: object) -> Callable[[TableTruth], None]:
    def change(truth: TableTruth) -> None:
        for name, value in fields.items():
            setattr(truth.watched[0], name, value)

    return change


OVER_A_BATCH = [(b"a", b"second"), (b"b", b"beside"), (b"counter", b"1")]
WRONG: list[tuple[Callable[[TableTruth], object], str]] = [
    (lambda truth: truth.write([(b"a", b"x")], [], 6.0).done(7, 7.0), "was acknowledged at 7, is at None"),  # 1
    (lambda truth: truth.writes[0].done(1, 2.0), "was acknowledged at 1, is at 0"),  # 1
    (lambda truth: truth.writes[0].refused({b"a": FIRST}, 2.0), "was refused and is at 0"),  # 1
    (lambda truth: setattr(truth.writes[1], "changes", OVER_A_BATCH), "is not in one batch at 1"),  # 1
    (lambda truth: setattr(truth.writes[1], "comparisons", [at_revision(5)]), "did not hold"),  # 2
    (add_read({b"a": FIRST}, 4.1, 4.2), "the log had no such entries after 3 and up to"),  # 3
    (add_read({b"a": SECOND}, 2.1, 2.2), "and up to 1"),  # 3
    (add_read({b"a": SECOND, b"b": ABSENT}, 3.1, 4.2), "the log had no such entries"),  # 3: half of a batch
    (add_read({b"a": SECOND}, 4.1, 4.2, whole=True), "the log had no such entries"),  # 3: a key is missing
    (add_read({b"a": SECOND._replace(version=3)}, 4.1, 4.2), "no such"),  # 3
    (
        lambda truth: truth.write([(b"a", b"x")], [at_revision(1)], 5.0).refused({b"a": SECOND}, 6.0),
        "was refused by what it expected",
    ),  # 3
    (
        lambda truth: truth.write([(b"a", b"x")], [at_revision(7)], 5.0).refused({b"a": FIRST}, 6.0),
        "the log had no such entries after 3",
    ),  # 3: a refusal that is not final shows older entries
    (lambda truth: setattr(truth, "increments", 1), "2 increments of 1"),  # 4
    (lambda truth: truth.sums.append(CountedSum(2, 7.0, 8.0)), "two increments had one sum"),  # 4
    (lambda truth: truth.sums.append(CountedSum(3, 7.0, 8.0)), "was acknowledged at 3 of 2"),  # 4
    (lambda truth: truth.sums.__setitem__(0, CountedSum(1, 6.5, 7.0)), "after"),  # 4
    (set_watch(changes=[]), "a watch of b'a' from None showed"),  # 5: a gap
    (set_watch(changes=[(1, b"a", b"second", False)] * 2), "a watch of b'a'"),  # 5: a repeat
    (set_watch(currents={b"a": (1, b"second")}), "a watch of b'a'"),  # 5: a change that the present values have
    (set_watch(currents={}, first=1, changes=[(0, b"a", b"first", False)]), "a watch of b'a' from 1"),  # 5
]


@pytest.mark.parametrize(("change", "text"), WRONG)
def test_a_wrong_history_is_found(change: Callable[[TableTruth], object], text: str) -> None:
    truth = right()
    change(truth)
    with pytest.raises(AssertionError, match=re.escape(text)):
        truth.check(LOG)


WRONG_LOGS = [
    ([*LOG[:3], LoggedBatch(5, [put(b"counter", b"2")])], "the log has a gap before 5"),
    ([*LOG, LoggedBatch(7, [put(b"a", b"second")])], "b'second' is in the log twice"),  # 1
    ([*LOG[:3], LoggedBatch(4, [put(b"counter", b"3")]), *LOG[4:]], "the counter went"),  # 4
    ([*LOG[:4], LoggedBatch(5, [put(b"t", b"short", 501)]), LOG[5]], "expired at 1500, 1 ms early"),  # 6
    ([*LOG[:4], LoggedBatch(5, [put(b"t", b"short")]), LOG[5]], "without a time to live"),  # 6
]


@pytest.mark.parametrize(("log", "text"), WRONG_LOGS)
def test_a_wrong_log_is_found(log: list[LoggedBatch], text: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(text)):
        right().check(log)
