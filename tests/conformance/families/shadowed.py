"""A client library that writes to sources and reads their shadows, while the test only names one topic.

The topic that a test creates is the shadow; its source has the same name with SOURCE appended. So a test reads,
commits, looks up and describes the shadow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from families.family import Admin, Family, Headers, Producer

SOURCE = ".source"


class ShadowedFamily:
    """A library whose producers write to sources and whose admin clients create shadows; all else is unchanged."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def producer(self, **settings: Any) -> Producer:
        return SourceProducer(self._family.producer(**settings))

    def admin(self) -> Admin:
        return ShadowAdmin(self._family.admin())


class SourceProducer:
    """Writes to the source of the given topic."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self._producer.send(
            topic + SOURCE, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    def answers(self) -> list[int | BaseException]:
        return self._producer.answers()

    def flush(self) -> list[int]:
        return self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class ShadowAdmin:
    """Creates a source together with its shadow."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] = {}) -> None:
        self._admin.create_topic(name + SOURCE, partitions, configs)
        self._admin.create_topic(name, partitions, {"gnomon.shadow.source": name + SOURCE})
