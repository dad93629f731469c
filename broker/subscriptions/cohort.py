"""A cohort: consumers of one channel at the same position, which get the same records in one frame. Pure.

1. Every member has read everything below `position` and is given every record from there on.
2. The `permits` of a member include `given`, the records that the cohort was given: a batch for a thousand members
   changes one number.
3. `lowest` is at most the lowest `permits` of a member. A member without permits leaves before the next batch.
"""

from __future__ import annotations

from struct import pack
from typing import Generic, Protocol

from gnomon.broker.subscriptions.channel import ChannelT
from gnomon.log.entry import Offset

NONE_LEFT = 1 << 62


class CohortMember(Protocol[ChannelT]):
    """A consumer, as its cohort uses it."""

    number: int
    permits: int
    cohort: Cohort[ChannelT] | None

    def read_to(self, position: Offset) -> None:
        """Notes how far the member has read, when it leaves."""


class Cohort(Generic[ChannelT]):
    """See the module; the dispatcher makes and moves cohorts."""

    __slots__ = ("_packed", "channel", "given", "lowest", "members", "position")

    def __init__(self, channel: ChannelT, position: Offset) -> None:
        self.channel = channel
        self.position = position
        self.given = 0
        """Records given to the cohort so far."""
        self.lowest = NONE_LEFT
        self.members: dict[int, CohortMember[ChannelT]] = {}
        self._packed: bytes | None = None

    def ready(self) -> bool:
        """Whether the channel takes a batch now."""
        return self.channel.ready

    def uses(self, channel: ChannelT) -> bool:
        """Whether the members are consumers of this channel."""
        return self.channel is channel

    def join(self, member: CohortMember[ChannelT]) -> None:
        """Adds a consumer that has read up to `position`."""
        member.permits += self.given
        member.cohort = self
        self.members[member.number] = member
        self.lowest = min(self.lowest, member.permits)
        self._packed = None

    def leave(self, member: CohortMember[ChannelT]) -> None:
        """Removes a consumer, with its remaining permits."""
        del self.members[member.number]
        member.permits -= self.given
        member.cohort = None
        member.read_to(self.position)
        self._packed = None

    def absorb(self, other: Cohort[ChannelT]) -> None:
        """Adds all members of another cohort at the same position."""
        more = self.given - other.given
        for member in other.members.values():
            member.permits += more
            member.cohort = self
        self.members.update(other.members)
        self.lowest = min(self.lowest, other.lowest + more)
        self._packed = None

    def release_idle(self) -> None:
        """Removes the members without permits."""
        if self.given < self.lowest:
            return
        for member in [each for each in self.members.values() if each.permits <= self.given]:
            self.leave(member)
        self.lowest = min((member.permits for member in self.members.values()), default=NONE_LEFT)

    def numbers(self) -> bytes:
        """The members' numbers, packed as in a frame."""
        if self._packed is None:
            self._packed = pack(f"<{len(self.members)}I", *self.members)
        return self._packed
