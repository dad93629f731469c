"""A broker's registration in the metadata under a lease: the membership of a cluster of several brokers.

1. The broker may lead once its own image of the brokers shows its registration, and until its lease may be over.
2. Under a new lease the broker leads again only after its image has shown every change of the live brokers in between
   (or an empty set in place of missed changes).
3. A live broker keeps its id: a second broker with that id is not admitted, and a broker whose id is taken stops.
4. Before a broker stops, it hands over its partitions, and answers clients with the new leaders for REDIRECT_SECONDS if
   there are other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from gnomon.broker.placement.brokers import Brokers, broker_key, id_taken, wait_for_id
from gnomon.broker.placement.leadership import Leadership, LiveBroker
from gnomon.metadata.client import Compare, KeyField, Metadata
from gnomon.metadata.presence import KeyTaken, Presence
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock

REDIRECT_SECONDS: Final = 1.5
"""The time for which a stopping broker answers with the new leaders: clients ask again after 0.1 to 1 s."""


class BrokerRegistration:
    """`Membership` of one broker among others."""

    def __init__(self, metadata: Metadata, clock: Clock, log: Logger, broker_id: int, lease_seconds: float) -> None:
        """Not registered yet; `lease_seconds` after its death other brokers may take its partitions."""
        self.me = LiveBroker(broker_id, "", 0)
        self.brokers = Brokers(metadata, clock, log)
        self._metadata = metadata
        self._clock = clock
        self._log = log
        self._lease_seconds = lease_seconds
        self._presence: Presence | None = None
        self._registered = trio.CancelScope()

    @property
    def leadership(self) -> Leadership:
        """See `Membership.leadership`."""
        return self.brokers.leadership

    @property
    def claimant(self) -> tuple[Compare, ...]:
        """See `Membership.claimant`: the registration is that with which this broker began to serve."""
        return (Compare(broker_key(self.me.id), KeyField.VALUE, self.me.encode()),)

    @property
    def registered(self) -> bool:
        """See `Membership.registered`."""
        return self._lives_until() != float("-inf")

    def lives(self) -> bool:
        """See `Membership.lives`."""
        return self._clock.monotonic() < self._lives_until()

    def _lives_until(self) -> float:
        presence = self._presence
        if presence is None or not self.brokers.shows_lease(self.me.id, presence.lease):
            return float("-inf")
        return presence.alive_until

    def watch(self, changed: Callable[[Leadership], None]) -> None:
        """See `Membership.watch`."""
        self.brokers.watch(changed)

    async def admit(self) -> None:
        """See `Membership.admit`.

        Raises:
            BrokerIdTaken, MetadataUnavailable: as `wait_for_id`.
        """
        await wait_for_id(self._metadata, self._clock, self._log, self.me.id)

    async def load(self) -> None:
        """See `Membership.load`.

        Raises:
            MetadataUnavailable: the live brokers could not be read.
        """
        await self.brokers.follower.load()

    def serves_at(self, me: LiveBroker) -> None:
        """See `Membership.serves_at`; call it before `run`."""
        assert self._presence is None, "a registered broker stays where it is"
        self.me = replace(me, lease_seconds=self._lease_seconds)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Membership.run`.

        Raises:
            BrokerIdTaken: another broker has taken the id.
        """
        presence = self._presence = Presence(
            self._metadata,
            self._clock,
            broker_key(self.me.id),
            self.me.encode(),
            self._lease_seconds,
            exclusive=True,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._register, presence)
            await presence.announced()
            nursery.start_soon(self.brokers.follower.run)
            await self.brokers.shown(self.me)
            task_status.started()

    async def _register(self, presence: Presence) -> None:
        with self._registered:
            try:
                await presence.run()
            except KeyTaken as taken:
                raise id_taken(LiveBroker.decode(self.me.id, taken.value)) from None

    async def give_away(self) -> None:
        """See `Membership.give_away`."""
        assert self._presence is not None, "only a registered broker has partitions to give away"
        draining = replace(self.me, draining=True)
        self._presence.update(draining.encode())
        with trio.move_on_after(self._lease_seconds):
            await self.brokers.shown(draining)
        if len(self.brokers.alive) > 1:
            await self._clock.sleep(REDIRECT_SECONDS)

    async def leave(self) -> None:
        """See `Membership.leave`."""
        self._registered.cancel()
        if self._presence is not None:
            await self._presence.withdraw()
