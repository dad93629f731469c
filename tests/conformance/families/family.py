"""The calls of a client library that the conformance tests use, in a form that all libraries support.

Every call blocks; a consumer is used by one thread at a time. A result of `None` never means that the library lacks
the feature: missing features are listed in `Family.lacks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Headers = tuple[tuple[str, bytes | None], ...]
Start = int | Literal["earliest", "latest"]
REJOIN = {22, 25, 27}
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS: a commit came too late, so its records come again."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was consumed."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as the admin client describes it."""

    state: str
    members: int


class Producer(Protocol):
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None: ...

    def answers(self) -> list[int | BaseException]:
        """Waits for all answers; returns the offset or the error of each record since the last call, in their order."""

    def flush(self) -> list[int]:
        """Waits for all answers; returns the offsets of the records since the last call, or raises the first error."""

    def close(self) -> None: ...


class Consumer(Protocol):
    def poll(self, seconds: float) -> list[Record]: ...

    def owned(self) -> frozenset[int]:
        """The partitions of its topic that are assigned to it."""

    def commit(self) -> None:
        """Commits what was polled; a commit that came after a rebalance is dropped."""

    def close(self) -> None: ...


class Admin(Protocol):
    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> list[str]: ...
    def partitions(self, topic: str) -> int: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def configs(self, topic: str) -> dict[str, str]: ...
    def set_config(self, topic: str, name: str, value: str) -> None: ...
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Returns the first remaining offset."""

    def groups(self) -> list[str]: ...
    def describe_group(self, group: str) -> DescribedGroup: ...
    def delete_group(self, group: str) -> None: ...
    def committed(self, group: str, topic: str) -> dict[int, int]: ...
    def set_committed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...
    def close(self) -> None: ...


class Family(Protocol):
    """A client library, aimed at a broker."""

    name: str
    lacks: frozenset[str]

    def codecs(self) -> set[str]:
        """The codecs that the library supports on this machine."""

    def producer(
        self,
        *,
        codec: str | None = None,
        idempotent: bool | None = None,
        request_bytes_max: int | None = None,
        give_up_seconds: float | None = None,
        linger_ms: int | None = None,
        kafka_partitioner: bool = False,
    ) -> Producer:
        """A producer; a parameter that is None keeps the library's default.

        Args:
            kafka_partitioner: keys are placed as Kafka's default partitioner does; only librdkafka needs an option.
        """

    def reader(self, topic: str, partition: int, start: Start) -> Consumer:
        """A consumer outside of groups."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record has this timestamp or a later one; None if there is none."""

    def member(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        cooperative: bool = False,
        session_ms: int = 6000,
    ) -> Consumer:
        """A member of a group; it begins at the earliest record if nothing is committed."""

    def begin_transactions(self, transactional_id: str) -> None:
        """Makes the first call of a transactional producer."""

    def admin(self) -> Admin: ...

    def code(self, error: BaseException) -> int:
        """Kafka's error code in an exception; the library's own codes are negative."""

    def close(self) -> None: ...


def offsets(answers: Sequence[int | BaseException]) -> list[int]:
    """The offsets of records; raises the first error, if any."""
    first_error([answer for answer in answers if isinstance(answer, BaseException)])
    return [answer for answer in answers if isinstance(answer, int)]


def first_error(errors: Sequence[BaseException]) -> None:
    """Raises the first error, if any."""
    if errors:
        raise errors[0]
