"""The live brokers: each registers itself under a lease, and every broker follows the registrations.

1. The key `brokers/<node id>` has the addresses of a broker, and exists as long as the broker's lease.
2. Changes are reported one by one, in order, so that no broker that led in between is overlooked. If changes were
   missed (a compacted history), an empty set of brokers is reported in their place.
3. No two live brokers have the same id: the second broker with an id is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gnomon.broker.placement.leadership import Leadership, LiveBroker
from gnomon.metadata.client import KeyValue, LeaseId, Metadata, MetadataError, RangeResult, WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock, WorldError

BROKERS = "brokers/"
LOOK_SECONDS = 0.2
LEASES_WAITED = 3
"""A dead broker's registration may last for this many leases: the service may renew a lease when it starts."""


class BrokerIdTaken(WorldError):
    """Another live broker has the id."""


def broker_key(broker_id: int) -> str:
    """The metadata key of a broker's registration."""
    return f"{BROKERS}{broker_id}"


def registered_id(key: str) -> int:
    """The broker id of a registration's key."""
    return int(key.removeprefix(BROKERS))


def _decode(item: KeyValue) -> LiveBroker:
    return LiveBroker.decode(registered_id(item.key), item.value)


async def wait_for_id(metadata: Metadata, clock: Clock, log: Logger, broker_id: int) -> None:
    """Waits until no live broker has the id; the registration of a killed broker ends with its lease.

    Logs once if it has to wait.

    Raises:
        BrokerIdTaken: a live broker has the id: its registration outlasts that of any dead broker.
        MetadataUnavailable: the registration could not be read.
    """
    looked_seconds, leases_waited, told = 0.0, 0, False
    while (found := await metadata.get(broker_key(broker_id))) is not None:
        other = _decode(found)
        if not told:
            told = True
            seconds_max = (1 + LEASES_WAITED) * other.lease_seconds
            log.warning(
                "waiting",
                reason=f"broker id {other.id} is that of a broker at {other.host}:{other.port}: if it was killed, its"
                f" lease ends, which is waited for up to {seconds_max:g} s",
            )
        await clock.sleep(LOOK_SECONDS)
        looked_seconds += LOOK_SECONDS  # counts looks, not time: while the service is away no lease ends
        if looked_seconds < other.lease_seconds:
            continue
        if leases_waited == LEASES_WAITED:
            raise id_taken(other)
        looked_seconds = 0.0
        with suppress(MetadataError):
            await metadata.lease(other.lease_seconds)  # answered only if the service writes, as ending a lease needs
            leases_waited += 1


def id_taken(other: LiveBroker) -> BrokerIdTaken:
    """The error for an id that another live broker has."""
    return BrokerIdTaken(
        f"broker id {other.id} is taken: the broker at {other.host}:{other.port} has it; "
        "give each broker an id of its own (setting kafka.broker.id)"
    )


class Brokers:
    """The live brokers as registered in the metadata, once `follower` has loaded them."""

    def __init__(self, metadata: Metadata, clock: Clock, log: Logger) -> None:
        """Knows no broker yet."""
        self.follower = Follower(metadata, clock, log, BROKERS, self._replace, self._apply)
        self.leadership = Leadership([])
        """The leadership that follows from the live brokers."""
        self._watchers: list[Callable[[Leadership], None]] = []
        self._registered: dict[int, tuple[LiveBroker, LeaseId | None]] = {}

    def watch(self, changed: Callable[[Leadership], None]) -> None:
        """Has `changed` called with the leadership after every change."""
        self._watchers.append(changed)

    @property
    def alive(self) -> Sequence[LiveBroker]:
        """The registered brokers."""
        return [broker for broker, _ in self._registered.values()]

    def shows_lease(self, broker_id: int, lease: LeaseId | None) -> bool:
        """Whether the image shows a broker's registration under this lease, and so every earlier change."""
        found = self._registered.get(broker_id)
        return found is not None and lease is not None and found[1] == lease

    async def shown(self, broker: LiveBroker) -> None:
        """Waits until the image shows exactly this registration."""
        while broker not in self.alive:
            await self.follower.moved()

    def _replace(self, found: RangeResult) -> None:
        if self._registered:
            self._registered = {}
            self._report()
        self._registered = {registered_id(item.key): (_decode(item), item.lease) for item in found.items}
        self._report()

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.current is not None:
                self._registered[registered_id(event.key)] = (_decode(event.current), event.current.lease)
            else:
                self._registered.pop(registered_id(event.key), None)
            self._report()

    def _report(self) -> None:
        self.leadership = Leadership(self.alive)
        for changed in self._watchers:
            changed(self.leadership)
