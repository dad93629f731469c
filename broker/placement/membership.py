"""A broker's membership of its cluster: the live brokers, and the lease under which this broker may lead.

1. The lease lives only as long as no other broker can consider this one dead.
2. Every set of live brokers is reported, in order, also a set that lasted only for a moment, because its leaders may
   have written. If sets were missed, an empty set is reported in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from gnomon.broker.placement.leadership import Leadership, LiveBroker
from gnomon.metadata.client import Compare


class Membership(Protocol):
    """One broker as a member of its cluster.

    The assembly calls `admit`, `load`, `serves_at`, `run`, `give_away` and `leave` in this order.
    """

    @property
    def me(self) -> LiveBroker:
        """This broker as clients see it."""

    @property
    def leadership(self) -> Leadership:
        """The leadership that follows from the live brokers."""

    @property
    def claimant(self) -> tuple[Compare, ...]:
        """The conditions on the metadata under which this broker may claim a partition."""

    @property
    def registered(self) -> bool:
        """Whether this broker holds its lease, or held it and could not renew it in time."""

    def lives(self) -> bool:
        """Whether the lease lives: no other broker can lead what this one leads."""

    def watch(self, changed: Callable[[Leadership], None]) -> None:
        """Has `changed` called with every new set of live brokers."""

    async def admit(self) -> None:
        """Waits until no other live broker has this broker's id."""

    async def load(self) -> None:
        """Reads the live brokers; clients may connect after this."""

    def serves_at(self, me: LiveBroker) -> None:
        """Sets the addresses at which clients find this broker from now on."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Takes part in the cluster; it has started once this broker may lead."""

    async def give_away(self) -> None:
        """Hands the partitions over, and waits for a bounded time until clients can know the new leaders."""

    async def leave(self) -> None:
        """Ends the membership."""


class SoleMember:
    """The membership of a broker whose cluster has no other: its lease never ends, and nothing of it is stored."""

    claimant: tuple[Compare, ...] = ()
    registered = True

    def __init__(self, broker_id: int) -> None:
        self.me = LiveBroker(broker_id, "", 0)
        self.leadership = Leadership([self.me])
        self._watchers: list[Callable[[Leadership], None]] = []

    def lives(self) -> bool:
        """See `Membership.lives`."""
        return True

    def watch(self, changed: Callable[[Leadership], None]) -> None:
        """See `Membership.watch`."""
        self._watchers.append(changed)

    async def admit(self) -> None:
        """See `Membership.admit`: there is no other broker."""

    async def load(self) -> None:
        """See `Membership.load`: there is no other broker."""

    def serves_at(self, me: LiveBroker) -> None:
        """See `Membership.serves_at`."""
        self.me, self.leadership = me, Leadership([me])
        for changed in self._watchers:
            changed(self.leadership)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Membership.run`: there is nothing to do."""
        task_status.started()

    async def give_away(self) -> None:
        """See `Membership.give_away`: no broker could take the partitions."""

    async def leave(self) -> None:
        """See `Membership.leave`: nothing is stored."""
