"""Which brokers there are: each registers itself under a lease, and every broker follows that.

1. `brokers/<node id>` says where a broker is and lives as long as its lease.
2. Changes are told one by one, in order, so that nobody who led in between is overlooked; where some were missed (a
   compacted history), that is told as a time without any broker.
3. No two live brokers have one id: the second one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import trio

from gnomon.broker.leadership import Leadership, LiveBroker
from gnomon.metadata.client import Compacted, Event, KeyValue, Metadata, MetadataError, Revision
from gnomon.runtime.world import Clock, WorldError

BROKERS = "brokers/"
RETRY_SECONDS = 0.5
LOOK_SECONDS = 0.2
LEASES_WAITED = 3
"""How many lengths of its lease a dead broker's registration may last: the service may begin it anew when it starts."""


class BrokerIdTaken(WorldError):
    """Another broker that lives has the id."""


def broker_key(broker_id: int) -> str:
    """The metadata key of a broker's registration."""
    return f"{BROKERS}{broker_id}"


def _decode(item: KeyValue) -> LiveBroker:
    return LiveBroker.decode(int(item.key.removeprefix(BROKERS)), item.value)


async def wait_for_id(metadata: Metadata, clock: Clock, broker_id: int) -> None:
    """Returns when no live broker has the id; what is left of a broker that was killed goes with its lease.

    Raises:
        BrokerIdTaken: one has it, and keeps it for longer than a dead one could.
        MetadataUnavailable: that could not be found out.
    """
    looked_seconds, leases_waited = 0.0, 0
    while (found := await metadata.get(broker_key(broker_id))) is not None:
        other = _decode(found)
        await clock.sleep(LOOK_SECONDS)
        looked_seconds += LOOK_SECONDS  # not by the clock: while the service is away no lease ends
        if looked_seconds < other.lease_seconds:
            continue
        if leases_waited == LEASES_WAITED:
            raise id_taken(other)
        looked_seconds = 0.0
        with suppress(MetadataError):
            await metadata.lease(other.lease_seconds)  # is answered when the service writes: only then do leases end
            leases_waited += 1


def id_taken(other: LiveBroker) -> BrokerIdTaken:
    """The error that says so."""
    return BrokerIdTaken(
        f"broker id {other.id} is taken: a broker that lives at {other.host}:{other.port} has it; "
        "give each broker an id of its own (setting kafka.broker.id)"
    )


class Brokers:
    """The brokers alive as the metadata names them; `run` follows it."""

    def __init__(self, metadata: Metadata, clock: Clock, changed: Callable[[Leadership], None]) -> None:
        """Knows nobody before `load`; `changed` is told of every change."""
        self._metadata = metadata
        self._clock = clock
        self._changed = changed
        self._revision = Revision(0)
        self._alive: dict[int, LiveBroker] = {}
        self._moved = trio.Event()

    @property
    def alive(self) -> Sequence[LiveBroker]:
        """Those whose lease lives."""
        return list(self._alive.values())

    async def shown(self, broker: LiveBroker) -> None:
        """Waits until the image shows a broker as it is given."""
        while self._alive.get(broker.id) != broker:
            await self._moved.wait()

    async def load(self) -> None:
        """Reads who there is: one metadata read.

        Raises:
            MetadataUnavailable: it could not be read.
        """
        found = await self._metadata.range(BROKERS)
        if self._alive:
            self._alive = {}
            self._tell()
        self._revision = found.revision
        self._alive = {broker.id: broker for broker in map(_decode, found.items)}
        self._tell()

    async def run(self) -> NoReturn:
        """Follows the registrations until cancelled."""
        while True:
            try:
                async with self._metadata.watch(BROKERS, Revision(self._revision + 1)) as batches:
                    async for batch in batches:
                        for event in batch.events:
                            self._apply(event)
                        self._revision = batch.revision
            except Compacted:
                await self._load_again()
            except MetadataError:
                await self._clock.sleep(RETRY_SECONDS)

    async def _load_again(self) -> None:
        try:
            await self.load()
        except MetadataError:
            await self._clock.sleep(RETRY_SECONDS)

    def _apply(self, event: Event) -> None:
        if event.current is not None:
            broker = _decode(event.current)
            self._alive[broker.id] = broker
        else:
            self._alive.pop(int(event.key.removeprefix(BROKERS)), None)
        self._tell()

    def _tell(self) -> None:
        self._changed(Leadership(self._alive.values()))
        moved, self._moved = self._moved, trio.Event()
        moved.set()
