"""Consumers of one connection that have read equally far and get the same: one frame for all of them. Pure.

1. Every member has read everything below `position` and is given everything from there on.
2. A member's permits count from `given` on: giving a batch to all changes one number, not a thousand.
3. `lowest` is at most the least permits of the members; who has none left leaves before the next batch.
"""

from __future__ import annotations

from struct import pack

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.subscription import Consumer, Link

NONE_LEFT = 1 << 62


class Cohort:
    """See the module; made and moved by the dispatcher."""

    __slots__ = ("_packed", "given", "link", "lowest", "members", "position")

    def __init__(self, link: Link, position: Offset) -> None:
        self.link = link
        self.position = position
        self.given = 0
        """Records since it began."""
        self.lowest = NONE_LEFT
        self.members: dict[int, Consumer] = {}
        self._packed: bytes | None = None

    def ready(self) -> bool:
        """Whether the connection takes a batch now."""
        return self.link.ready

    def join(self, consumer: Consumer) -> None:
        """Takes in a consumer that stands at `position`."""
        consumer.permits += self.given
        consumer.cohort = self
        self.members[consumer.number] = consumer
        self.lowest = min(self.lowest, consumer.permits)
        self._packed = None

    def leave(self, consumer: Consumer) -> None:
        """Lets a consumer go, with what is left of its permits."""
        del self.members[consumer.number]
        consumer.permits -= self.given
        consumer.cohort = None
        consumer.subscription.position = self.position
        self._packed = None

    def absorb(self, other: Cohort) -> None:
        """Takes in all of another one that has come to the same position."""
        more = self.given - other.given
        for consumer in other.members.values():
            consumer.permits += more
            consumer.cohort = self
        self.members.update(other.members)
        self.lowest = min(self.lowest, other.lowest + more)
        self._packed = None

    def release_idle(self) -> None:
        """Those without permits leave."""
        if self.given < self.lowest:
            return
        for consumer in [each for each in self.members.values() if each.permits <= self.given]:
            self.leave(consumer)
        self.lowest = min((consumer.permits for consumer in self.members.values()), default=NONE_LEFT)

    def numbers(self) -> bytes:
        """The members' numbers, as they stand in a frame."""
        if self._packed is None:
            self._packed = pack(f"<{len(self.members)}I", *self.members)
        return self._packed
