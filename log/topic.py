"""The record of a topic in the metadata, and the keys that belong to it. Pure.

1. A topic has one record for all its partitions: id, partition count, configs and source.
2. A topic id names one life of a topic: a topic that is deleted and created again has another id (KIP-516).
3. The deletion of a topic writes the `deleted_key` of its name. The name cannot be used again until that key is gone:
   until the topic's group offsets are deleted and every live broker has seen the deletion.
4. The record of a shadow (a topic that shows the records of another topic, its source) names the source and holds no
   partition count. A shadow has the partitions of its source at every revision, and none once the source is deleted.
5. Each transaction that adds or removes a shadow of an existing source writes the source's `shadows_key`. A broker
   knows every shadow of the source if it reads this key, waits until its copy of all topics (the image) has reached the
   key's revision, and compares that revision in its transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgpack

from gnomon.log.topic_name import DEFAULT_NAMESPACE
from gnomon.metadata.client import KeyValue, Revision

TOPICS_PREFIX = "topics/"
DELETED_PREFIX = "deleted/"
SHADOWS_PREFIX = "shadows/"
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_BATCH_BYTES_MAX = 100 << 20
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})

NEVER = Revision(0)


def topic_key(name: str) -> str:
    """The metadata key of a topic."""
    return TOPICS_PREFIX + (name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}")


def name_of_key(key: str) -> str:
    """The name of the topic with this metadata key: undoes `topic_key`."""
    return key.removeprefix(TOPICS_PREFIX).removeprefix(f"{DEFAULT_NAMESPACE}/")


def deleted_key(name: str) -> str:
    """The metadata key of a deleted topic's name."""
    return DELETED_PREFIX + name


def shadows_key(source_id: uuid.UUID) -> str:
    """The metadata key that changes with the set of a topic's shadows: see invariant 5."""
    return SHADOWS_PREFIX + source_id.hex


class SourceRef(NamedTuple):
    """A shadow's reference to its source."""

    name: str
    id: uuid.UUID
    place: int
    """Its number among the shadows of that source, from 1 on; it determines the broker that leads a partition."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `configs` are those set on it, as text by Kafka's names."""

    name: str
    id: uuid.UUID
    partitions: int
    """The number of partitions. A shadow's record has 0; the image of all topics sets the number of its source."""
    configs: Mapping[str, str]
    create_revision: Revision = NEVER
    version: int = 0
    source: SourceRef | None = None
    """The topic whose records this one shows, None where it has its own."""
    copies: int | None = None
    """The copies that its ledgers keep of each record; None for as many as the brokers keep by default. A shadow's
    record has none; the image of all topics sets the number of its source."""

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return self.name in INTERNAL_TOPICS

    @property
    def ranked_as(self) -> uuid.UUID:
        """The id by which brokers are ranked for the topic's partitions: that of the source, or the topic's own."""
        return self.id if self.source is None else self.source.id

    @property
    def place(self) -> int:
        """The leader's place in the ranking of `ranked_as`; 0 is the first."""
        return 0 if self.source is None else self.source.place

    def encode(self) -> bytes:
        """The record's value."""
        fields: dict[str, Any] = {"id": self.id.bytes, "configs": dict(self.configs)}
        if self.source is None:
            fields["partitions"] = self.partitions
            if self.copies is not None:
                fields["copies"] = self.copies
        else:
            fields["source"] = [self.source.name, self.source.id.bytes, self.source.place]
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def decode(cls, item: KeyValue) -> Topic:
        """The topic of a record."""
        name = name_of_key(item.key)
        fields = msgpack.unpackb(item.value)
        source = None
        if "source" in fields:
            named, source_id, place = fields["source"]
            source = SourceRef(named, uuid.UUID(bytes=source_id), place)
        return cls(
            name,
            uuid.UUID(bytes=fields["id"]),
            fields["partitions"] if source is None else 0,
            fields["configs"],
            item.create_revision,
            item.version,
            source,
            fields.get("copies"),
        )

    def with_copies(self, copies: int | None) -> Topic:
        """The same topic with this number of copies of each record."""
        return replace(self, copies=copies)

    def with_partitions(self, partitions: int) -> Topic:
        """The same topic, grown."""
        return replace(self, partitions=partitions)

    def with_configs(self, configs: Mapping[str, str]) -> Topic:
        """The same topic with other configs."""
        return replace(self, configs=configs)

    def with_source(self, source: SourceRef, partitions: int) -> Topic:
        """The same topic as a shadow of this source."""
        return replace(self, source=source, partitions=partitions)
