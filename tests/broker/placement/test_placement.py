"""The placement of partitions as one broker knows it (numbers: invariants of `placement`)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from gnomon.broker.placement.leadership import NOBODY, RANKS_PER_HASH, Leadership, LiveBroker
from gnomon.broker.placement.membership import SoleMember
from gnomon.broker.placement.placement import Placement
from gnomon.log.topic import SourceRef, Topic
from gnomon.testing.storms.rest.sizes import sizes_of

SOURCE = Topic("orders", UUID(int=7), 3000, {})
SHADOW = Topic("copy", UUID(int=8), 3000, {}, source=SourceRef("orders", SOURCE.id, 1))
EACH_BLOCK_ONCE = dict.fromkeys(range(3000 // RANKS_PER_HASH), 1)


class CountedLeadership(Leadership):
    """Counts how often the ranks of each block are computed."""

    def __init__(self, *ids: int) -> None:
        super().__init__([LiveBroker(number, f"broker-{number}", 9092) for number in ids])
        self.computed: Counter[int] = Counter()

    def leaders(self, topic: UUID, block: int, place: int = 0) -> list[int]:
        """See `Leadership.leaders`."""
        self.computed[block] += 1
        return super().leaders(topic, block, place)


class Member(SoleMember):
    """Broker 1 of three."""

    def __init__(self) -> None:
        super().__init__(1)
        self.leadership: CountedLeadership = CountedLeadership(1, 2, 3)

    def move(self, leadership: CountedLeadership) -> None:
        """Reports other live brokers."""
        self.leadership = leadership
        for changed in self._watchers:
            changed(leadership)


class Placed:
    """The placement at broker 1, whose image has the topics with the ids `existing`."""

    def __init__(self) -> None:
        self.existing = {SOURCE.id, SHADOW.id}
        self.member = Member()
        self.placement = Placement(self.member, lambda asked: asked.id in self.existing)

    def delete(self, topic: Topic) -> None:
        """Deletes a topic as the image does."""
        self.existing.remove(topic.id)
        self.placement.forget(topic)

    def one_by_one(self, topic: Topic) -> list[int]:
        """The leaders, asked for in a loop over the partitions."""
        return [self.placement.leader(topic, index) for index in range(topic.partitions)]

    def remembered(self) -> int:
        """The number of topics whose leaders are remembered."""
        return sizes_of(self.placement).held["Placement._leaders"]


@pytest.mark.parametrize("topic", [SOURCE, SHADOW])
def test_leaders_are_remembered_of_topics_that_exist_alone(topic: Topic) -> None:  # invariant 3
    placed = Placed()
    leaders = list(placed.placement.leaders(topic, 3))
    assert placed.remembered() == 1
    placed.delete(topic)  # while a request waits, which then asks for its leaders
    assert [placed.placement.leader(topic, index) for index in range(3)] == leaders
    assert list(placed.placement.leaders(topic, 3)) == leaders
    assert placed.placement.leads(topic, 0) == (leaders[0] == 1)
    assert placed.remembered() == 0


@pytest.mark.parametrize("topic", [SOURCE, SHADOW])
def test_a_loop_over_the_partitions_of_a_deleted_topic_computes_each_block_of_ranks_once(  # invariant 4
    topic: Topic,
) -> None:
    placed = Placed()
    leaders = placed.one_by_one(topic)
    assert placed.member.leadership.computed == EACH_BLOCK_ONCE
    placed.delete(topic)
    placed.member.leadership.computed.clear()
    assert placed.one_by_one(topic) == leaders
    assert placed.member.leadership.computed == EACH_BLOCK_ONCE
    placed.member.leadership.computed.clear()
    assert list(placed.placement.leaders(topic, topic.partitions)) == leaders
    assert placed.member.leadership.computed == EACH_BLOCK_ONCE


def test_the_leaders_of_a_topic_that_exists_are_computed_once_for_one_set_of_brokers() -> None:  # invariant 4
    placed = Placed()
    for _ in range(3):
        placed.one_by_one(SOURCE)
        placed.placement.leaders(SOURCE, SOURCE.partitions)
    assert placed.member.leadership.computed == EACH_BLOCK_ONCE


def test_the_shadow_of_a_deleted_topic_is_not_confused_with_it() -> None:
    placed = Placed()
    source, shadow = placed.one_by_one(SOURCE), placed.one_by_one(SHADOW)
    placed.delete(SOURCE)
    placed.delete(SHADOW)
    both = [(placed.placement.leader(SOURCE, index), placed.placement.leader(SHADOW, index)) for index in range(20)]
    assert both == list(zip(source, shadow, strict=True))[:20]


def test_other_brokers_mean_other_leaders_of_existing_and_deleted_topics() -> None:
    placed = Placed()
    placed.delete(SHADOW)
    for leadership, leaders in (
        (CountedLeadership(1, 2, 3), {1, 2, 3}),
        (CountedLeadership(2, 3), {2, 3}),
        (CountedLeadership(3), {3}),
        (CountedLeadership(), {NOBODY}),
    ):
        placed.member.move(leadership)
        for topic in (SOURCE, SHADOW):
            assert set(placed.one_by_one(topic)) == leaders
            assert set(placed.placement.leaders(topic, topic.partitions)) == leaders
            assert {placed.placement.leader(topic, 0) for _ in range(2)} <= leaders


def test_a_topic_that_grows_keeps_its_leaders() -> None:
    placed = Placed()
    few = list(placed.placement.leaders(SOURCE, 5))
    assert placed.placement.leaders(SOURCE, 50)[:5] == few
    placed.placement.forget(SOURCE)
    assert placed.placement.leader(SOURCE, 4) == few[4]
