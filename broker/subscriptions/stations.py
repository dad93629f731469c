"""The stations of one partition's readers: each reader waits at the next offset that it has to be given. Pure.

1. A reader waits at one station at most. A reader is a cohort of consumers, or a subscription that cannot be in a
   cohort: it is shared or key_shared, or has records to give again or to leave out.
2. Two cohorts of one channel never have the same position: they are merged, the smaller one into the larger one.
3. A reader that is found while its channel takes nothing is held up, and waits at no station until `resumed`.
4. No act examines all readers of a station: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import islice
from typing import Generic, TypeAlias

from gnomon.broker.subscriptions.channel import ChannelT
from gnomon.broker.subscriptions.cohort import Cohort
from gnomon.broker.subscriptions.subscription import Subscription
from gnomon.log.entry import Offset

READERS_AT_ONCE = 500
"""As many as the allowance of a turn pays for."""

Reader: TypeAlias = Cohort[ChannelT] | Subscription[ChannelT]


class Stations(Generic[ChannelT]):
    """The readers that wait, by offset."""

    def __init__(self) -> None:
        self._readers: dict[Offset, dict[Reader[ChannelT], None]] = {}
        self._cohorts: dict[tuple[ChannelT, Offset], Cohort[ChannelT]] = {}
        self._held_up: dict[Reader[ChannelT], None] = {}

    def next_wanted(self, end: Offset, excluded: Container[Offset]) -> Offset | None:
        """The first station below `end` and not in `excluded` where a reader takes a batch now; None without one."""
        while True:
            offset = next((each for each in self._readers if each < end and each not in excluded), None)
            if offset is None:
                return None
            for reader in self.at(offset):
                if reader.ready():
                    return offset
                self.hold_up(reader, offset)

    def at(self, offset: Offset) -> list[Reader[ChannelT]]:
        """The first readers that wait at an offset, at most READERS_AT_ONCE."""
        return list(islice(self._readers.get(offset, ()), READERS_AT_ONCE))

    def hold_up(self, reader: Reader[ChannelT], offset: Offset) -> None:
        """Removes a reader from its station until its channel takes deliveries again."""
        self.leave(reader, offset)
        self._held_up[reader] = None

    def leave(self, reader: Reader[ChannelT], offset: Offset) -> None:
        """Removes a reader from the station at this offset."""
        readers = self._readers.get(offset)
        if readers is not None:
            readers.pop(reader, None)
            if not readers:
                del self._readers[offset]

    def resumed(self, channel: ChannelT) -> list[Subscription[ChannelT]]:
        """A channel takes deliveries again: its cohorts wait again; returns its subscriptions that were held up."""
        subscriptions = []
        for reader in [each for each in self._held_up if each.uses(channel)]:
            del self._held_up[reader]
            if isinstance(reader, Cohort):
                self._readers.setdefault(reader.position, {})[reader] = None
            else:
                subscriptions.append(reader)
        return subscriptions

    # --- subscriptions ------------------------------------------------------------------------------------------

    def place(self, subscription: Subscription[ChannelT]) -> None:
        """Lets a subscription wait at the next offset that it has to give, if a consumer has permits."""
        if not subscription.consumers or not subscription.permitted():
            return
        if subscription.shared or subscription.skips():
            wanted = subscription.wanted()
            if wanted is not None and (subscription.shared or subscription.skips()):
                subscription.station = wanted
                self._readers.setdefault(wanted, {})[subscription] = None
                return
            if subscription.shared:
                return
        consumer = subscription.consumers[0]
        key = (consumer.channel, subscription.position)
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = Cohort(*key)
            self.stand(cohort)
        cohort.join(consumer)

    def remove(self, subscription: Subscription[ChannelT]) -> None:
        """Removes a subscription and its consumers from their stations."""
        if subscription.station is not None:
            self.leave(subscription, subscription.station)
            subscription.station = None
        self._held_up.pop(subscription, None)
        for consumer in () if subscription.shared else subscription.consumers:
            cohort = consumer.cohort
            if cohort is not None:
                cohort.leave(consumer)
                if not cohort.members:
                    self._disband(cohort)

    # --- cohorts ------------------------------------------------------------------------------------------------

    def stand(self, cohort: Cohort[ChannelT]) -> None:
        """Lets a cohort wait at its position, merged with the cohort of its channel that waits there already."""
        key = (cohort.channel, cohort.position)
        there = self._cohorts.get(key)
        if there is not None:
            if len(there.members) >= len(cohort.members):
                there.absorb(cohort)
                return
            cohort.absorb(there)
            self.leave(there, there.position)
            self._held_up.pop(there, None)
        self._cohorts[key] = cohort
        self._readers.setdefault(cohort.position, {})[cohort] = None

    def take(self, cohort: Cohort[ChannelT]) -> None:
        """Removes a cohort from the index of positions: no other cohort is merged with it any more."""
        del self._cohorts[cohort.channel, cohort.position]

    def _disband(self, cohort: Cohort[ChannelT]) -> None:
        self.take(cohort)
        self.leave(cohort, cohort.position)
        self._held_up.pop(cohort, None)
