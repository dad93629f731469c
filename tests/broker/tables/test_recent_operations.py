"""The operations that a table has done; numbers cite the invariants of `recent_operations`."""

from __future__ import annotations

import pytest

from gnomon.broker.tables import recent_operations
from gnomon.broker.tables.recent_operations import KEPT_SECONDS, DoneOperation, RecentOperations
from gnomon.log.entry import Offset
from gnomon.log.tables.operation_id import OperationId

AT = 1_700_000_000_000
ONE, OTHER = b"1" * 16, b"2" * 16


def note(
    operations: RecentOperations, writer: bytes, number: int, answered_below: int = 0, at: int = AT
) -> DoneOperation:
    done = DoneOperation(Offset(number), Offset(number + 1), at, succeeded=True, answers=[number])
    operations.note(OperationId(writer, number, answered_below), done)
    return done


def test_an_operation_is_found_until_its_client_has_the_answer() -> None:  # 1
    operations = RecentOperations()
    first = note(operations, ONE, 0)
    note(operations, ONE, 4, answered_below=0)
    assert operations.find(OperationId(ONE, 0, 0)) is first
    assert operations.find(OperationId(ONE, 1, 0)) is None
    note(operations, ONE, 5, answered_below=4)
    assert operations.find(OperationId(ONE, 0, 0)) is None
    assert operations.find(OperationId(ONE, 4, 4)) is not None
    assert operations.find(OperationId(OTHER, 4, 0)) is None


def test_a_client_is_forgotten_after_two_minutes_without_an_operation() -> None:  # 1
    operations, third = RecentOperations(), OperationId(b"3" * 16, 0, 0)
    note(operations, ONE, 0)
    assert operations.has_room(third, 50.0)  # the replay of the log ends about here
    note(operations, OTHER, 0, at=AT + 10 * 3_600_000)  # a clock that was set forward makes no difference
    assert operations.has_room(third, 50.0 + KEPT_SECONDS - 1)
    assert operations.find(OperationId(ONE, 0, 0)) is not None
    note(operations, OTHER, 1)
    assert operations.has_room(third, 50.0 + KEPT_SECONDS)
    assert operations.find(OperationId(ONE, 0, 0)) is None
    assert operations.find(OperationId(OTHER, 0, 0)) is not None
    assert operations.has_room(third, 50.0 + 2 * KEPT_SECONDS)
    assert len(operations) == 0


def test_lost_operations_are_not_done_and_durable_ones_are() -> None:  # 3
    operations = RecentOperations()
    note(operations, ONE, 0)
    note(operations, ONE, 1)
    operations.durable(Offset(1))
    operations.lost()
    assert operations.find(OperationId(ONE, 0, 0)) is not None
    assert operations.find(OperationId(ONE, 1, 0)) is None


def test_a_late_copy_of_an_answered_operation_is_recognized() -> None:  # 4
    operations = RecentOperations()
    note(operations, ONE, 0)
    note(operations, ONE, 1, answered_below=1)
    assert operations.is_answered(OperationId(ONE, 0, 0))
    assert not operations.is_answered(OperationId(ONE, 1, 0))
    assert not operations.is_answered(OperationId(OTHER, 0, 0))
    operations.has_room(OperationId(ONE, 2, 2), 1.0)  # one that is refused tells it, too
    assert operations.is_answered(OperationId(ONE, 1, 0))


def test_further_operations_are_refused_until_others_are_answered_or_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 5
    monkeypatch.setattr(recent_operations, "OPERATIONS_MAX", 3)  # two operations and a client
    operations = RecentOperations()
    note(operations, ONE, 0)
    note(operations, ONE, 1)
    assert not operations.has_room(OperationId(ONE, 2, 0), 1.0)
    assert not operations.has_room(OperationId(OTHER, 0, 0), 1.0)
    assert operations.has_room(OperationId(ONE, 2, 1), 1.0)
    note(operations, OTHER, 0)
    assert not operations.has_room(OperationId(OTHER, 1, 0), 1.0)
    operations.lost()
    assert operations.has_room(OperationId(OTHER, 1, 0), 1.0)
    note(operations, ONE, 2, answered_below=1)
    note(operations, OTHER, 0)
    assert operations.has_room(OperationId(b"3" * 16, 0, 0), 2 * KEPT_SECONDS)


def test_answers_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:  # 5
    monkeypatch.setattr(recent_operations, "ANSWERS_BYTES_MAX", 10)
    operations = RecentOperations()
    for number in range(2):
        done = DoneOperation(Offset(number), Offset(number + 1), AT, succeeded=True, answers=[number, b"6 read"])
        operations.note(OperationId(ONE, number, 0), done)
    kept = [operations.find(OperationId(ONE, number, 0)) for number in range(2)]
    assert [each and each.answers for each in kept] == [[0, b"6 read"], None]
