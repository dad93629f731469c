"""Incremental fetch sessions (KIP-227): the partitions that each client follows, so that a poll names only changes.

1. A session's epoch grows by one with each request: 1, 2, 3 … (1 follows 2^31 - 1). Any other epoch is refused, and
   the client starts a new session.
2. After the first response, a response of a session names only partitions with records, with an error, or with a high
   watermark or log start that the client does not have yet.
3. There are at most `slots` sessions. A new session evicts the session that was idle for the longest time, if that is
   at least EVICTION_SECONDS. Otherwise the client is served without a session, which the protocol always allows.
4. A session follows at most SESSION_PARTITIONS_MAX partitions, and all sessions together ALL_PARTITIONS_MAX. A new
   session that would exceed one of these limits does not begin (its client is served without a session); a session that
   grows beyond one ends.
5. A partition whose records were sent moves to the end of its session, so that every partition gets its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gnomon.broker.errors import KafkaError
from gnomon.log.topic_name import NAME_CHARACTERS_MAX
from gnomon.runtime.world import RandomStream
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchPartition, FetchRequest

EVICTION_SECONDS = 120.0
SESSION_PARTITIONS_MAX = 100_000
"""A session outlives its client, so its size is bounded, as the number of sessions is."""
ALL_PARTITIONS_MAX = 100_000
"""Partitions of all sessions: each takes some 300 bytes; one with a name longer than a topic's counts for several."""
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = (1 << 31) - 1

TopicRef = str | bytes
"""A topic as a request refers to it: by name below version 13, by the 16 bytes of its id from version 13 on."""


@dataclass(slots=True)
class Followed:
    """One partition of a fetch: the client's position, and the high watermark and log start that it was sent last."""

    topic: TopicRef
    spec: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


class FetchSession:
    """The partitions that one client follows."""

    def __init__(self, session_id: int, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.used_at = now
        self.followed: dict[tuple[TopicRef, int], Followed] = {}
        self.weight = 0
        """The number of partitions as the limits count it: one with a name longer than a topic's counts for several."""

    def follow(self, request: FetchRequest) -> None:
        """Applies the partitions that a request adds, changes and forgets."""
        for topic, partitions in request.forgotten:
            for partition in partitions:
                if self.followed.pop((topic, partition), None) is not None:
                    self.weight -= _weight(topic)
        for followed in followed_by(request):
            key = (followed.topic, followed.spec.partition)
            known = self.followed.get(key)
            if known is None:
                self.followed[key] = followed
                self.weight += _weight(followed.topic)
            else:
                known.spec = followed.spec

    def served(self, followed: Followed) -> None:
        """Moves a partition whose records were sent to the end: the others come first in the next response."""
        key = (followed.topic, followed.spec.partition)
        if self.followed.pop(key, None) is not None:
            self.followed[key] = followed


def _weight(topic: TopicRef) -> int:
    return 1 + len(topic) // (NAME_CHARACTERS_MAX + 1)


def followed_by(request: FetchRequest) -> list[Followed]:
    """The partitions that the request itself names."""
    return [Followed(topic, spec) for topic, partitions in request.topics for spec in partitions]


class FetchSessions:
    """All sessions of a broker; times are monotonic seconds."""

    def __init__(self, slots: int, ids: RandomStream) -> None:
        self._slots = slots
        self._ids = ids
        self._sessions: dict[int, FetchSession] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, request: FetchRequest, now: float) -> tuple[FetchSession | None, Iterable[Followed]]:
        """Finds or begins the session of a request, if it has one, and the partitions that it asks for.

        Raises:
            KafkaError: the session is unknown, or the request has another epoch.
        """
        if request.session_epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return None, followed_by(request)
        if request.session_epoch == INITIAL_EPOCH:
            self._end(request.session_id)
            return self._create(request, now)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id} here")
        if session.epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at = now
        del self._sessions[session.id]
        self._sessions[session.id] = session
        weight = session.weight
        session.follow(request)
        self._weight += session.weight - weight
        if session.weight > SESSION_PARTITIONS_MAX or self._weight > ALL_PARTITIONS_MAX:
            self._end(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.id} follows more than {SESSION_PARTITIONS_MAX} partitions, or all together "
                f"more than {ALL_PARTITIONS_MAX}: it was ended",
            )
        return session, session.followed.values()

    def _create(self, request: FetchRequest, now: float) -> tuple[FetchSession | None, Iterable[Followed]]:
        session = FetchSession(self._new_id(), now)
        session.follow(request)
        if session.weight > SESSION_PARTITIONS_MAX or not self._make_room(session.weight, now):
            return None, followed_by(request)
        self._sessions[session.id] = session
        self._weight += session.weight
        return session, session.followed.values()

    def _new_id(self) -> int:
        session_id = self._ids.randrange(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._ids.randrange(1, EPOCH_MAX)
        return session_id

    def _make_room(self, weight: int, now: float) -> bool:
        while len(self._sessions) >= self._slots or self._weight + weight > ALL_PARTITIONS_MAX:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < EVICTION_SECONDS:
                return False
            self._end(oldest.id)
        return True

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._weight -= session.weight
