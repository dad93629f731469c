"""The placement of partitions on brokers, as one broker knows it, and whether this broker may act as a leader.

1. As long as a broker's lease may have ended, the broker answers as if it led nothing. Appends are an exception: the
   bookies refuse those of a replaced leader.
2. An answer to a client always names at least one broker.
3. Leaders are remembered only of topics that exist, and of the block of partitions that was asked for last. A request
   that waits may hold a topic that was deleted meanwhile.
4. A loop over the partitions of a topic, in order, computes the ranks of each block once for one set of brokers. This
   holds for deleted topics, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from gnomon.broker.errors import KafkaError
from gnomon.broker.placement.leadership import NOBODY, RANKS_PER_HASH, Leadership, LiveBroker
from gnomon.broker.placement.membership import Membership
from gnomon.log.topic import Topic
from gnomon.wire.kafka.errors import ErrorCode


class Advertised(NamedTuple):
    """A broker as the clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None


class Placement:
    """The leaders of all partitions, computed from the brokers of a membership."""

    def __init__(self, membership: Membership, exists: Callable[[Topic], bool]) -> None:
        """Leads nothing before the membership says so.

        Args:
            exists: whether this broker's image has a topic.
        """
        self._exists = exists
        self.node_id = membership.me.id
        self._use(membership.leadership)
        self.lease_lives = membership.lives
        """Whether no other broker can lead what this one leads; called in the hot path of fetches."""
        self._membership = membership
        self._watchers: list[Callable[[], None]] = []
        membership.watch(self._changed)

    def watch(self, changed: Callable[[], None]) -> None:
        """Has `changed` called after a broker joined, left or began to drain; earlier watchers are called first."""
        self._watchers.append(changed)

    def _changed(self, leadership: Leadership) -> None:
        self._use(leadership)
        for changed in self._watchers:
            changed()

    def _use(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self._only = leadership.only
        self._leaders: dict[UUID, list[int]] = {}
        """The leaders of the first partitions of topics, by the topic's id."""
        self._last_block: tuple[UUID, int, tuple[int, ...]] | None = None
        """Of the block that was asked for last, of a topic that does not exist: the topic, its number, its leaders."""

    # --- leaders ------------------------------------------------------------------------------------------------

    def leader(self, topic: Topic, index: int) -> int:
        """The broker that leads a partition, as far as this one knows."""
        if self._only is not None:
            return self._only
        known = self._leaders.get(topic.id)
        if known is None or index >= len(known):
            return self._computed(topic, index)
        return known[index]

    def leaders(self, topic: Topic, partitions: int) -> Sequence[int]:
        """The leaders of a topic's first partitions, by number."""
        if self._only is not None:
            return [self._only] * partitions
        known = self._leaders.get(topic.id)
        if known is None or len(known) < partitions:
            known = self._extended(topic, partitions)
        return known if len(known) == partitions else known[:partitions]

    def _computed(self, topic: Topic, index: int) -> int:
        """The leader of a partition that is not remembered."""
        if self._exists(topic):
            return self._extended(topic, index + 1)[index]
        block, position = divmod(index, RANKS_PER_HASH)
        last = self._last_block
        if last is None or last[0] != topic.id or last[1] != block:
            leaders = self.leadership.leaders(topic.ranked_as, block, topic.place)
            last = self._last_block = topic.id, block, tuple(leaders)
        return last[2][position]

    def _extended(self, topic: Topic, partitions: int) -> list[int]:
        """The leaders of at least so many partitions; remembered if the topic exists."""
        known = self._leaders.get(topic.id, [])
        while len(known) < partitions:
            known += self.leadership.leaders(topic.ranked_as, len(known) // RANKS_PER_HASH, topic.place)
        if self._exists(topic):
            self._leaders[topic.id] = known
        return known

    def leads(self, topic: Topic, index: int) -> bool:
        """Whether this broker leads a partition, as far as it knows."""
        return self.leader(topic, index) == self.node_id

    def check_led(self, topic: Topic, index: int) -> None:
        """Checks that this broker leads a partition, as far as it knows.

        Raises:
            KafkaError: another broker leads it.
        """
        leader = self.leader(topic, index)
        if leader != self.node_id:
            who = "no broker at the moment" if leader == NOBODY else f"broker {leader}"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {index} of topic '{topic.name}' is led by {who}"
            )

    def forget(self, topic: Topic) -> None:
        """Forgets the leaders of a deleted topic."""
        self._leaders.pop(topic.id, None)

    # --- brokers ------------------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> LiveBroker | None:
        """A broker that is alive, by its id."""
        return self.leadership.brokers.get(broker_id)

    def others(self) -> list[LiveBroker]:
        """The live brokers except this one."""
        return [each for each in self.leadership.brokers.values() if each.id != self.node_id]

    def advertised(self, listener: str) -> Mapping[int, Advertised]:
        """The brokers that answers to clients of a listener name, by id.

        They are the live ones that have a listener of this name, or this one alone if it knows of none: librdkafka
        (2.10 on) drops every broker that an answer does not name, also those that it was configured with. After an
        answer without brokers it has no broker to ask, for ever (seen in `make chaos`).
        """
        found = _at(listener, self.leadership.shown_to_clients())
        if not found:
            me = self._membership.me
            found[me.id] = Advertised(me.id, *(me.endpoint(listener) or (me.host, me.port)), me.rack or None)
        return found

    def controller(self, advertised: Mapping[int, Advertised]) -> int:
        """The controller in an answer that names these brokers."""
        controller = self.leadership.controller
        return controller if controller in advertised or controller == NOBODY else next(iter(advertised))

    # --- this broker's lease ------------------------------------------------------------------------------------

    @property
    def registered(self) -> bool:
        """Whether this broker has begun to lead."""
        return self._membership.registered

    def check_lease(self) -> None:
        """Checks that the lease lives.

        Raises:
            KafkaError: another broker may lead what this broker led.
        """
        if not self.lease_lives():
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads the partition"
            )

    def lease_problem(self) -> str | None:
        """The reason why the broker leads nothing, None while it may lead."""
        return None if self.lease_lives() else "its registration could not be renewed in time"


def leader_error(leader: int) -> ErrorCode:
    """The error code of a partition in an answer that does not name its leader."""
    return ErrorCode.LEADER_NOT_AVAILABLE if leader == NOBODY else ErrorCode.LISTENER_NOT_FOUND


def _at(listener: str, brokers: Sequence[LiveBroker]) -> dict[int, Advertised]:
    found = ((one, one.endpoint(listener)) for one in brokers)
    return {one.id: Advertised(one.id, *at, one.rack or None) for one, at in found if at is not None}
