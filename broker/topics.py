"""Topics as the metadata service keeps them, and this broker's image of them.

1. A topic is one record, whatever its number of partitions: id, partition count, configs.
2. A topic id names one life of a topic: deleting and creating it again gives a new one (KIP-516).
3. While a deleted topic's offsets are still to be forgotten its name has a `deleted_key`, and cannot be taken again.
4. The image only moves forward: it is the metadata as of one revision, moved on by the watch.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgpack

from gnomon.metadata.client import Event, KeyValue, RangeResult, Revision

TOPICS_PREFIX = "topics/"
DELETED_PREFIX = "deleted/"
DEFAULT_NAMESPACE = "public/default"
NAME_CHARACTERS_MAX = 249
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_BATCH_BYTES_MAX = 100 << 20
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})

NEVER = Revision(0)

_PART = re.compile(r"[a-zA-Z0-9._-]+")


class InvalidTopicName(ValueError):
    """The text says which rule the name breaks."""


def check_topic_name(name: str) -> None:
    """Kafka's rules for a plain name; a name with a namespace is `tenant/namespace/topic`, each part by the same rules.

    Raises:
        InvalidTopicName: the name breaks a rule.
    """
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidTopicName(f"topic name has {len(name)} characters: 1 to {NAME_CHARACTERS_MAX} are allowed")
    parts = name.split("/")
    if len(parts) not in (1, 3):
        raise InvalidTopicName(f"topic name {name!r}: use a plain name or tenant/namespace/topic")
    if len(parts) == 3 and name.startswith(f"{DEFAULT_NAMESPACE}/"):
        raise InvalidTopicName(
            f"topic name {name!r}: topics of {DEFAULT_NAMESPACE} go by their plain name {parts[2]!r}"
        )
    for part in parts:
        if part in (".", "..") or not _PART.fullmatch(part):
            raise InvalidTopicName(f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed")


def is_topic_name(name: str) -> bool:
    """Whether a topic may be called so."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def topic_key(name: str) -> str:
    """The metadata key of a topic."""
    return TOPICS_PREFIX + (name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}")


def deleted_key(name: str) -> str:
    """The metadata key that tells of a deleted topic's offsets."""
    return DELETED_PREFIX + name


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `configs` are those set on it, as text by Kafka's names."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    create_revision: Revision = NEVER
    version: int = 0

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return self.name in INTERNAL_TOPICS

    def encode(self) -> bytes:
        """The record's value."""
        packed: bytes = msgpack.packb(
            {"id": self.id.bytes, "partitions": self.partitions, "configs": dict(self.configs)}
        )
        return packed

    @classmethod
    def decode(cls, item: KeyValue) -> Topic:
        """The topic of a record."""
        name = item.key.removeprefix(TOPICS_PREFIX).removeprefix(f"{DEFAULT_NAMESPACE}/")
        fields = msgpack.unpackb(item.value)
        return cls(
            name,
            uuid.UUID(bytes=fields["id"]),
            fields["partitions"],
            fields["configs"],
            item.create_revision,
            item.version,
        )

    def with_partitions(self, partitions: int) -> Topic:
        """The same topic, grown."""
        return replace(self, partitions=partitions)

    def with_configs(self, configs: Mapping[str, str]) -> Topic:
        """The same topic with other configs."""
        return replace(self, configs=configs)


class TopicImage:
    """All topics, as of one revision."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        """A topic by name."""
        return self._by_name.get(name)

    def get_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """A topic by id."""
        return self._by_id.get(topic_id)

    def put(self, topic: Topic) -> None:
        """A topic was created or changed."""
        self._drop(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    def replace(self, found: RangeResult) -> list[Topic]:
        """Takes a fresh list of all topics; returns those whose lives have ended meanwhile."""
        before, self._by_id = self._by_id, {}
        self._by_name = {}
        for item in found.items:
            self.put(Topic.decode(item))
        return [topic for topic in before.values() if topic.id not in self._by_id]

    def apply(self, event: Event) -> tuple[Topic | None, Topic | None]:
        """Takes one event of the watch; returns the topic whose life it ended, and the one that is new or changed."""
        if event.current is None:
            return self._drop(event.key.removeprefix(TOPICS_PREFIX).removeprefix(f"{DEFAULT_NAMESPACE}/")), None
        topic = Topic.decode(event.current)
        before = self._by_name.get(topic.name)
        self.put(topic)
        return before if before is not None and before.id != topic.id else None, topic

    def _drop(self, name: str) -> Topic | None:
        topic = self._by_name.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.id, None)
        return topic
