"""A broker's image of all topics.

1. The image shows the metadata as of one revision. A metadata watch moves the image forward, never back.
2. A shadow in the image has the partitions of its source, which the record of the shadow does not hold
   (`topic` invariant 4).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from gnomon.log.topic import Topic, name_of_key
from gnomon.log.topic_name import metric_name
from gnomon.metadata.client import Event, RangeResult


class TopicImage:
    """All topics, as of one revision."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._shadows: dict[uuid.UUID, dict[str, Topic]] = {}
        """The shadows, by the ids of their sources and by name."""
        self._by_metric_name: dict[str, str] = {}
        """Names of topics that another name could collide with."""

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

    def colliding(self, name: str) -> str | None:
        """Another topic whose name has the same `metric_name`, which Kafka refuses."""
        other = self._by_metric_name.get(metric_name(name))
        return None if other == name else other

    def source_of(self, shadow: Topic) -> Topic | None:
        """The source of a shadow; None if it was deleted, even if a new topic has its name."""
        assert shadow.source is not None, f"topic '{shadow.name}' is no shadow"
        source = self._by_name.get(shadow.source.name)
        return source if source is not None and source.id == shadow.source.id else None

    def has_ended(self, topic: Topic) -> bool:
        """Whether a topic is a shadow whose source was deleted."""
        return topic.source is not None and self.source_of(topic) is None

    def shadows_of(self, topic: Topic) -> list[Topic]:
        """The shadows of a topic, as their own records say."""
        return list(self._shadows.get(topic.id, {}).values())

    def shadowed(self) -> list[uuid.UUID]:
        """The ids of the topics that have shadows, including deleted topics."""
        return list(self._shadows)

    def completed(self, topic: Topic) -> Topic:
        """The topic of a record with its number of partitions: see invariant 2."""
        if topic.source is None:
            return topic
        source = self.source_of(topic)
        if source is None:
            return topic.with_partitions(0)
        return topic.with_partitions(source.partitions).with_copies(source.copies)

    def put(self, topic: Topic) -> None:
        """Adds a topic that was created or changed."""
        self._drop(topic.name)
        self._set(self.completed(topic))
        self._complete_shadows(topic)

    def _set(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        shared = metric_name(topic.name)
        if "_" in shared:
            self._by_metric_name[shared] = topic.name
        self._by_id[topic.id] = topic
        if topic.source is not None:
            self._shadows.setdefault(topic.source.id, {})[topic.name] = topic

    def _complete_shadows(self, source: Topic) -> None:
        for shadow in self.shadows_of(source):
            self._set(self.completed(shadow))

    def replace(self, found: RangeResult) -> list[Topic]:
        """Replaces all topics by a fresh list; returns the topics that were deleted meanwhile."""
        before, self._by_id = self._by_id, {}
        self._by_name, self._shadows, self._by_metric_name = {}, {}, {}
        for item in found.items:
            self.put(Topic.decode(item))
        return [topic for topic in before.values() if topic.id not in self._by_id]

    def apply(self, event: Event) -> tuple[Topic | None, Topic | None]:
        """Applies one event of the watch; returns the topic that it deleted, and the topic that is new or changed."""
        if event.current is None:
            return self._drop(name_of_key(event.key)), None
        topic = Topic.decode(event.current)
        before = self._by_name.get(topic.name)
        self.put(topic)
        return before if before is not None and before.id != topic.id else None, topic

    def _drop(self, name: str) -> Topic | None:
        topic = self._by_name.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.id, None)
            shared = metric_name(name)
            if self._by_metric_name.get(shared) == name:
                del self._by_metric_name[shared]
            if topic.source is not None:
                shadows = self._shadows[topic.source.id]
                del shadows[name]
                if not shadows:
                    del self._shadows[topic.source.id]
            self._complete_shadows(topic)
        return topic
