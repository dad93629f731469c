"""The names of topics that a request names by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

from gnomon.log.topic import Topic
from gnomon.wire.kafka.fields import NO_UUID


class KnownTopics(Protocol):
    """The topics that a broker knows."""

    def get(self, name: str) -> Topic | None:
        """A topic by its name."""

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""


class TopicIds:
    """Gives items with a `topic_id` the name of their topic."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics

    def id_of(self, name: str) -> UUID:
        """The id of a topic, NO_UUID if there is no such topic."""
        topic = self._topics.get(name)
        return NO_UUID if topic is None else topic.id

    def partitions_of(self, name: str) -> int:
        """The number of a topic's partitions, 0 if there is no such topic."""
        topic = self._topics.get(name)
        return 0 if topic is None else topic.partitions

    def exists(self, name: str) -> bool:
        """Whether there is a topic of this name."""
        return self._topics.get(name) is not None

    def name_of(self, item: Any) -> str | None:
        """The name of an item's topic, None where no topic has its id."""
        if item.topic_id == NO_UUID:
            name: str = item.name or ""
            return name
        topic = self._topics.get_by_id(item.topic_id)
        return None if topic is None else topic.name

    def named(self, items: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """The items of topics, each with its name set; and the items whose id no topic has."""
        known: list[Any] = []
        unknown: list[Any] = []
        for item in items:
            name = self.name_of(item)
            if name is None:
                unknown.append(item)
            else:
                item.name = name
                known.append(item)
        return known, unknown
