"""Incremental fetch sessions (KIP-227): what each client follows, so that a poll names only what changed.

1. A session's epoch goes 1, 2, 3 … (after 2^31 - 1 comes 1), one per request; any other epoch is refused, and
   the client begins again.
2. A response of a session names a partition when it has records, an error, or a mark that the client was not told.
3. There are at most `slots` sessions; a new one takes the place of the one that was idle longest if that was idle for
   EVICTION_SECONDS, else the client is served without one, which is always allowed.
4. A session follows SESSION_PARTITIONS_MAX partitions at most, and all together ALL_PARTITIONS_MAX: one that would be
   more does not begin (its client is served without), one that grows beyond ends.
5. Whoever was served records moves to the end of its session, so that everybody's turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gnomon.broker.errors import KafkaError
from gnomon.broker.topics import NAME_CHARACTERS_MAX
from gnomon.runtime.world import RandomStream
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchPartition, FetchRequest

EVICTION_SECONDS = 120.0
SESSION_PARTITIONS_MAX = 200_000
"""A session lives on when its client is gone: what one can hold is bounded, as their number is."""
ALL_PARTITIONS_MAX = 500_000
"""Of all sessions: each takes some 300 bytes, and one with a longer name than a topic can have counts for more."""
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = (1 << 31) - 1

TopicRef = str | bytes
"""A topic as the request names it: by name below version 13, from there on by the 16 bytes of its id."""


@dataclass(slots=True)
class Followed:
    """One partition of a fetch: where the client stands, and the marks it was told last."""

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
        """What it counts for: its partitions, those with names that no topic has for more than one."""

    def follow(self, request: FetchRequest) -> None:
        """Takes what a request adds, changes and forgets."""
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
        """The partition has given records: the others come first next time."""
        key = (followed.topic, followed.spec.partition)
        if self.followed.pop(key, None) is not None:
            self.followed[key] = followed


def _weight(topic: TopicRef) -> int:
    return 1 + len(topic) // (NAME_CHARACTERS_MAX + 1)


def followed_by(request: FetchRequest) -> list[Followed]:
    """The partitions that a request names itself."""
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
        """The session that a request belongs to, if any, and the partitions that it asks for.

        Raises:
            KafkaError: the session is not known here, or its epoch is another.
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
