"""Checks the metadata at each commit of a storm: shadows, their sources and the subscriptions of both are consistent.

    with cast_checker(simulation):
        ...

1. Each shadow has an existing source, and a place of its own among the shadows of that source.
2. After a topic has grown, the topic and its shadows have each subscription of the first partition in the new ones.
3. The keys that belong to a topic are deleted with it.

The product has no hook for the checker: its functions are wrapped from outside. A finding ends the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from gnomon.log.subscription_keys import HOLDS, READERS, REPLICATORS, SUBSCRIPTIONS, subscriptions_prefix
from gnomon.log.topic import SHADOWS_PREFIX, TOPICS_PREFIX, Topic
from gnomon.metadata.draft import Draft
from gnomon.metadata.state import State
from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.storms.patches import Patches

SHADOWS_SEEN = "casts/shadows seen"
GROWN = "casts/growths with subscriptions"
COUNTERS = (SHADOWS_SEEN, GROWN)
"""The counters that a sweep has to reach."""
BELONGING = (SHADOWS_PREFIX, HOLDS, READERS, SUBSCRIPTIONS, REPLICATORS)
"""The prefixes of keys that name topics by their ids."""


@contextmanager
def cast_checker(simulation: Simulation) -> Iterator[None]:
    """Checks during the block."""
    judge = _Judge(simulation)

    def adopt(before: Callable[[State, Draft, float], None]) -> Any:
        def followed(state: State, draft: Draft, now: float) -> None:
            touched = [any(each.key.startswith(TOPICS_PREFIX) for each in batch.events) for batch in draft.batches]
            before(state, draft, now)
            if any(touched):
                judge.look(state, alone=touched[-1] and sum(touched) == 1)

        return followed

    with ExitStack() as stack:
        Patches(stack)(State, "adopt", adopt)
        yield


class _Judge:
    """Checks the topics; keeps their previous partition counts."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._partitions: dict[UUID, int] = {}

    def look(self, state: State, alone: bool) -> None:
        """Checks after some topics have changed.

        Args:
            alone: all topics changed in the last batch that is in the state. Otherwise a growth is not checked, because
                subscriptions may have been created after it.
        """
        topics = {topic.id: topic for topic in map(Topic.decode, state.range(TOPICS_PREFIX).items)}
        self._check_shadows(topics)
        self._check_keys(state, topics)
        if alone:
            for topic in topics.values():
                before = self._partitions.get(topic.id, topic.partitions)
                if before < topic.partitions:
                    self._check_growth(state, topic, range(before, topic.partitions), topics)
        self._partitions = {topic.id: topic.partitions for topic in topics.values()}

    def _check_shadows(self, topics: dict[UUID, Topic]) -> None:
        places: dict[tuple[UUID, int], str] = {}
        for topic in topics.values():
            if topic.source is None:
                continue
            self._simulation.coverage.count(SHADOWS_SEEN)
            source = topics.get(topic.source.id)
            if source is None or source.name != topic.source.name:
                self._fail(f"shadow {topic.name} exists, and its source {topic.source.name} does not")
            other = places.setdefault((topic.source.id, topic.place), topic.name)
            if other != topic.name:
                self._fail(f"shadows {topic.name} and {other} both have place {topic.place}")

    def _check_keys(self, state: State, topics: dict[UUID, Topic]) -> None:
        for prefix in BELONGING:
            for key in state.keys_under(prefix):
                for part in key.removeprefix(prefix).split("/")[: 2 if prefix == READERS else 1]:
                    if UUID(part) not in topics:
                        self._fail(f"{key} exists, and its topic does not")

    def _check_growth(self, state: State, source: Topic, new: range, topics: dict[UUID, Topic]) -> None:
        def names(topic: Topic, index: int) -> list[str]:
            prefix = subscriptions_prefix(topic.id, index)
            return [key.removeprefix(prefix) for key in state.keys_under(prefix)]

        for topic in topics.values():
            if topic.ranked_as != source.id:
                continue
            expected = names(topic, 0)
            self._simulation.coverage.count(GROWN, bool(expected))
            for index in new:
                if names(topic, index) != expected:
                    self._fail(
                        f"{source.name} grew to {source.partitions} partitions: {topic.name} has the subscriptions "
                        f"{expected}, and {names(topic, index)} in partition {index}"
                    )

    def _fail(self, text: str) -> None:
        self._simulation.fail("cast checker", AssertionError(text))
