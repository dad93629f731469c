"""The placement of partitions as one broker knows it (numbers: invariants of `placement`)."""

from __future__ import annotations

from uuid import UUID

import pytest

from gnomon.broker.placement.leadership import Leadership, LiveBroker
from gnomon.broker.placement.membership import SoleMember
from gnomon.broker.placement.placement import Placement
from gnomon.log.topic import SourceRef, Topic
from gnomon.testing.storms.rest.sizes import sizes_of

SOURCE = Topic("orders", UUID(int=7), 3, {})
SHADOW = Topic("copy", UUID(int=8), 3, {}, source=SourceRef("orders", SOURCE.id, 1))


class Member(SoleMember):
    """Broker 1 of three."""

    def __init__(self) -> None:
        super().__init__(1)
        self.leadership = Leadership([LiveBroker(number, f"broker-{number}", 9092) for number in (1, 2, 3)])


@pytest.mark.parametrize("topic", [SOURCE, SHADOW])
def test_leaders_are_remembered_of_topics_that_exist_alone(topic: Topic) -> None:  # invariant 3
    existing = {topic.id}
    placement = Placement(Member(), lambda asked: asked.id in existing)

    def remembered() -> int:
        return sizes_of(placement).held["Leadership._leaders"]

    leaders = list(placement.leaders(topic, 3))
    assert remembered() == 1
    existing.clear()
    placement.forget(topic)  # the topic is deleted while a request waits, which then asks for its leaders
    assert [placement.leader(topic, index) for index in range(3)] == leaders
    assert list(placement.leaders(topic, 3)) == leaders
    assert placement.leads(topic, 0) == (leaders[0] == 1)
    assert remembered() == 0
