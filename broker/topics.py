"""Topics as the metadata service keeps them, and this broker's image of them.

1. A topic is one record, whatever its number of partitions: id, partition count, configs, source and shadows.
2. A topic id names one life of a topic: deleting and creating it again gives a new one (KIP-516).
3. While a deleted topic's offsets are still to be forgotten, or a live broker has not heard of the deletion, its name
   has a `deleted_key`, and cannot be taken again.
4. The image only moves forward: it is the metadata as of one revision, moved on by the watch.
5. A shadow names its source, and the source names its shadows: both records change in one transaction, so that whoever
   compares the version of the source's knows that no shadow came or went.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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


def plain_name(text: str) -> str:
    """The name that a topic goes by: that of the default namespace may be left out, and is then.

    Raises:
        InvalidTopicName: no topic can be called so.
    """
    namespace, _, plain = text.rpartition("/")
    name = plain if namespace == DEFAULT_NAMESPACE else text
    check_topic_name(name)
    return name


def is_topic_name(name: str) -> bool:
    """Whether a topic may be called so."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def metric_name(name: str) -> str:
    """What Kafka's metrics call a topic: no two topics may share it, and so not differ in '.' and '_' alone."""
    return name.replace(".", "_")


def topic_key(name: str) -> str:
    """The metadata key of a topic."""
    return TOPICS_PREFIX + (name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}")


def deleted_key(name: str) -> str:
    """The metadata key that tells of a deleted topic."""
    return DELETED_PREFIX + name


class SourceRef(NamedTuple):
    """What a shadow says of its source."""

    name: str
    id: uuid.UUID
    place: int
    """Its number among the shadows of that source, from 1 on: which broker leads a partition follows from it."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `configs` are those set on it, as text by Kafka's names."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    create_revision: Revision = NEVER
    version: int = 0
    source: SourceRef | None = None
    """The topic whose records this one shows, None where it has its own."""
    shadows: tuple[str, ...] = ()
    """The names of its shadows."""

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return self.name in INTERNAL_TOPICS

    @property
    def ranked_as(self) -> uuid.UUID:
        """The topic by whose id the brokers are ranked for its partitions."""
        return self.id if self.source is None else self.source.id

    @property
    def place(self) -> int:
        """Which broker of that ranking leads; 0 is the first one."""
        return 0 if self.source is None else self.source.place

    def encode(self) -> bytes:
        """The record's value; a topic that has nothing to do with shadows says nothing of them."""
        fields: dict[str, Any] = {"id": self.id.bytes, "partitions": self.partitions, "configs": dict(self.configs)}
        if self.source is not None:
            fields["source"] = [self.source.name, self.source.id.bytes, self.source.place]
        if self.shadows:
            fields["shadows"] = list(self.shadows)
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def decode(cls, item: KeyValue) -> Topic:
        """The topic of a record."""
        name = item.key.removeprefix(TOPICS_PREFIX).removeprefix(f"{DEFAULT_NAMESPACE}/")
        fields = msgpack.unpackb(item.value)
        source = None
        if "source" in fields:
            named, source_id, place = fields["source"]
            source = SourceRef(named, uuid.UUID(bytes=source_id), place)
        return cls(
            name,
            uuid.UUID(bytes=fields["id"]),
            fields["partitions"],
            fields["configs"],
            item.create_revision,
            item.version,
            source,
            tuple(fields.get("shadows", ())),
        )

    def with_partitions(self, partitions: int) -> Topic:
        """The same topic, grown."""
        return replace(self, partitions=partitions)

    def with_configs(self, configs: Mapping[str, str]) -> Topic:
        """The same topic with other configs."""
        return replace(self, configs=configs)

    def with_source(self, source: SourceRef, partitions: int) -> Topic:
        """The same topic as a shadow of this source."""
        return replace(self, source=source, partitions=partitions)

    def with_shadows(self, shadows: Iterable[str]) -> Topic:
        """The same topic with these shadows."""
        return replace(self, shadows=tuple(shadows))


class TopicImage:
    """All topics, as of one revision."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._shadows: dict[uuid.UUID, dict[str, Topic]] = {}
        """By the ids of their sources, and by name."""

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

    def source_of(self, shadow: Topic) -> Topic | None:
        """The topic that a shadow belongs to, None where that life of it is over."""
        assert shadow.source is not None, f"topic '{shadow.name}' is no shadow"
        source = self._by_name.get(shadow.source.name)
        return source if source is not None and source.id == shadow.source.id else None

    def has_ended(self, topic: Topic) -> bool:
        """Whether a topic is a shadow whose source is gone."""
        return topic.source is not None and self.source_of(topic) is None

    def shadows_of(self, topic: Topic) -> list[Topic]:
        """The shadows of a topic as they say themselves, whatever its own record lists."""
        return list(self._shadows.get(topic.id, {}).values())

    def shadowed(self) -> list[uuid.UUID]:
        """The ids of the topics that have shadows, whether they live or not."""
        return list(self._shadows)

    def put(self, topic: Topic) -> None:
        """A topic was created or changed."""
        self._drop(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        if topic.source is not None:
            self._shadows.setdefault(topic.source.id, {})[topic.name] = topic

    def replace(self, found: RangeResult) -> list[Topic]:
        """Takes a fresh list of all topics; returns those whose lives have ended meanwhile."""
        before, self._by_id = self._by_id, {}
        self._by_name, self._shadows = {}, {}
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
            if topic.source is not None:
                shadows = self._shadows[topic.source.id]
                del shadows[name]
                if not shadows:
                    del self._shadows[topic.source.id]
        return topic
