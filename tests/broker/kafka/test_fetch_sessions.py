"""Incremental fetch sessions (KIP-227; numbers: invariants of `fetch_sessions`)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka import fetch_sessions
from gnomon.broker.kafka.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_SECONDS,
    SESSION_PARTITIONS_MAX,
    FetchSession,
    FetchSessions,
)
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchPartition, FetchRequest


def _request(
    session: int, epoch: int, partitions: Sequence[int] = (), forgotten: Sequence[int] = (), offset: int = 0
) -> FetchRequest:
    wanted = [FetchPartition(index, -1, offset, -1, -1, 100) for index in partitions]
    return FetchRequest(
        0, 1, 1000, 0, session, epoch, [("t", wanted)] if wanted else [], [("t", list(forgotten))], "", -1
    )


def _sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, random.Random(1))


def _created(sessions: FetchSessions, partitions: Sequence[int] = (0, 1, 2), now: float = 0.0) -> FetchSession:
    session, _ = sessions.find(_request(0, 0, partitions), now)
    assert session is not None
    return session


def _followed(sessions: FetchSessions, request: FetchRequest, now: float = 0.0) -> list[tuple[int, int]]:
    _, followed = sessions.find(request, now)
    return [(item.spec.partition, item.spec.fetch_offset) for item in followed]


def test_a_request_without_a_session_names_all_its_partitions() -> None:
    sessions = _sessions()
    session, followed = sessions.find(_request(0, -1, [3, 4]), 0)
    assert session is None
    assert [item.spec.partition for item in followed] == [3, 4]
    assert len(sessions) == 0


def test_a_session_keeps_its_partitions_and_applies_changes() -> None:  # invariant 1
    sessions = _sessions()
    session = _created(sessions)
    assert _followed(sessions, _request(session.id, 1)) == [(0, 0), (1, 0), (2, 0)]
    assert _followed(sessions, _request(session.id, 2, [1], offset=7)) == [(0, 0), (1, 7), (2, 0)]
    assert _followed(sessions, _request(session.id, 3, [5], forgotten=[0, 9])) == [(1, 7), (2, 0), (5, 0)]


@pytest.mark.parametrize("epoch", [2, 5, EPOCH_MAX])
def test_another_epoch_is_refused_and_changes_nothing(epoch: int) -> None:  # invariant 1
    sessions = _sessions()
    session = _created(sessions)
    with pytest.raises(KafkaError) as refusal:
        sessions.find(_request(session.id, epoch, [8]), 0)
    assert refusal.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert _followed(sessions, _request(session.id, 1)) == [(0, 0), (1, 0), (2, 0)]


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(KafkaError) as refusal:
        _sessions().find(_request(77, 1), 0)
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_after_the_largest_is_one() -> None:  # invariant 1
    sessions = _sessions()
    session = _created(sessions)
    session.epoch = EPOCH_MAX
    sessions.find(_request(session.id, EPOCH_MAX), 0)
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [-1, 0])
def test_the_final_and_the_initial_epoch_end_the_session_they_name(epoch: int) -> None:
    sessions = _sessions()
    session = _created(sessions)
    sessions.find(_request(session.id, epoch, [0]), 0)
    assert len(sessions) == 1 + epoch
    with pytest.raises(KafkaError):
        sessions.find(_request(session.id, 1), 0)


def test_a_client_beyond_the_limit_is_served_without_a_session_until_another_one_is_idle_for_long() -> (
    None
):  # invariant 3
    sessions = _sessions(slots=2)
    first, second = _created(sessions, now=0), _created(sessions, now=1)
    sessions.find(_request(first.id, 1), EVICTION_SECONDS)
    session, followed = sessions.find(_request(0, 0, [6]), EVICTION_SECONDS)
    assert session is None
    assert [item.spec.partition for item in followed] == [6]
    third = _created(sessions, now=EVICTION_SECONDS + 1)
    assert len(sessions) == 2
    sessions.find(_request(first.id, 2), EVICTION_SECONDS + 1)
    sessions.find(_request(third.id, 1), EVICTION_SECONDS + 1)
    with pytest.raises(KafkaError):
        sessions.find(_request(second.id, 1), EVICTION_SECONDS + 1)


def test_zero_slots_allow_no_session() -> None:
    session, _ = _sessions(slots=0).find(_request(0, 0, [1]), 0)
    assert session is None


def test_a_partition_that_was_served_is_last_in_the_next_response() -> None:  # invariant 5
    sessions = _sessions()
    session = _created(sessions)
    session.served(session.followed["t", 0])
    assert [index for index, _ in _followed(sessions, _request(session.id, 1))] == [1, 2, 0]


def test_a_session_that_grows_beyond_the_limit_ends() -> None:  # invariant 4
    sessions = _sessions()
    session = _created(sessions)
    half = SESSION_PARTITIONS_MAX // 2
    sessions.find(_request(session.id, 1, range(half)), 0)
    with pytest.raises(KafkaError) as refusal:
        sessions.find(_request(session.id, 2, range(half, 2 * half + 1)), 0)
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_a_request_for_too_many_partitions_begins_no_session() -> None:  # invariant 4
    sessions = _sessions()
    session, followed = sessions.find(_request(0, 0, range(SESSION_PARTITIONS_MAX + 1)), 0)
    assert session is None
    assert len(list(followed)) == SESSION_PARTITIONS_MAX + 1
    assert len(sessions) == 0


def test_all_sessions_together_follow_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # invariant 4
    monkeypatch.setattr(fetch_sessions, "ALL_PARTITIONS_MAX", 10)
    sessions = _sessions()
    first, second = _created(sessions, range(4)), _created(sessions, range(4))
    assert sessions.find(_request(0, 0, range(4)), 1)[0] is None
    sessions.find(_request(first.id, 1, forgotten=range(3)), 1)
    third = _created(sessions, range(5), now=1)
    with pytest.raises(KafkaError, match="all together more than 10"):
        sessions.find(_request(second.id, 1, range(9)), 1)
    assert len(sessions) == 2
    late = 1 + EVICTION_SECONDS
    sessions.find(_request(third.id, 1), late)
    assert len(sessions.find(_request(0, 0, range(5)), late)[0].followed) == 5
    assert len(sessions) == 2


def test_names_longer_than_a_topics_count_for_several_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # invariant 4
    monkeypatch.setattr(fetch_sessions, "ALL_PARTITIONS_MAX", 100)
    sessions = _sessions()
    wanted = [("x" * 32_000, [FetchPartition(0, -1, 0, -1, -1, 100)])]
    assert sessions.find(_request(0, 0)._replace(topics=wanted), 0)[0] is None
    assert sessions.find(_request(0, 0, range(100)), 0)[0] is not None
