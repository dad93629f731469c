"""The leaders of partitions: every broker computes the same ones from the live brokers. Pure.

1. The leader of a partition is the broker with the highest rank for it (rendezvous hashing). All brokers compute the
   same leader from the same live brokers, leaders are spread evenly, and few partitions move when a broker joins or
   leaves.
2. A draining broker leads nothing.
3. For each partition of a source, the broker at place k of the ranking (from 0) leads that partition of the k-th
   shadow, a read-only topic with the same records. So source and shadows have distinct leaders if there are enough
   brokers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import msgpack

from gnomon.runtime.settings.endpoint import PLAINTEXT, Endpoint

NOBODY = -1
"""The id of the leader while no broker may lead."""
RANKS_PER_HASH = 8
"""One hash gives the ranks of this many partitions: 10,000 partitions on three brokers take some 10 ms."""
_NAMELESS: Final = 6
"""Elements of a registration without names of listeners."""
_RANKS = Struct(f">{RANKS_PER_HASH}Q")


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker's registration, which exists as long as its lease."""

    id: int
    host: str
    """The advertised address of the first listener for Kafka clients."""
    port: int
    rack: str = ""
    draining: bool = False
    """Whether the broker is about to end and hands over its partitions."""
    lease_seconds: float = 0.0
    """The time that the registration outlives the broker."""
    native_port: int = 0
    """The port for native clients."""
    listeners: tuple[Endpoint, ...] = ()
    """The advertised address of each listener, by name; empty for one listener, PLAINTEXT."""
    native_host: str = ""
    """The host for native clients; empty for `host`."""

    def encode(self) -> bytes:
        """The value of its key; without names of listeners it is one that earlier versions of gnomon read."""
        said = [self.host, self.port, self.rack, self.draining, self.lease_seconds, self.native_port]
        if self.listeners or self.native_host:
            said += [self.listeners, self.native_host]
        encoded: bytes = msgpack.packb(said)
        return encoded

    @classmethod
    def decode(cls, broker_id: int, value: bytes) -> LiveBroker:
        """Undoes `encode`."""
        said = msgpack.unpackb(value)
        if len(said) > _NAMELESS:
            said[_NAMELESS] = tuple(Endpoint(*one) for one in said[_NAMELESS])
        return cls(broker_id, *said)

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Host and port for Kafka clients of a listener; None if the broker has no listener of that name."""
        if not self.listeners:
            return (self.host, self.port) if listener == PLAINTEXT else None
        return next(((one.host, one.port) for one in self.listeners if one.name == listener), None)

    @property
    def native(self) -> tuple[str, int]:
        """Host and port for native clients and other brokers."""
        return self.native_host or self.host, self.native_port


class Leadership:
    """The live brokers at one time, and the partitions that each of them leads."""

    def __init__(self, brokers: Iterable[LiveBroker]) -> None:
        self.brokers: Mapping[int, LiveBroker] = {
            broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)
        }
        """All live brokers by id, the lowest id first."""
        self.leading = [broker.id for broker in self.brokers.values() if not broker.draining]
        """The ids of the brokers that may lead."""
        self.only = None if len(self.leading) > 1 else self.leading[0] if self.leading else NOBODY
        """The leader of all partitions; None if several brokers may lead."""

    @property
    def controller(self) -> int:
        """The broker that clients get as the controller: every broker can do its work."""
        return next(iter(self.leading or self.brokers), NOBODY)

    def shown_to_clients(self) -> list[LiveBroker]:
        """The brokers that clients may connect to: all that do not drain, or all if every broker drains."""
        return [self.brokers[broker] for broker in self.leading] or list(self.brokers.values())

    def leaders(self, topic: uuid.UUID, block: int, place: int = 0) -> list[int]:
        """The leaders of one block of RANKS_PER_HASH partitions, by number; with place k, those of the k-th shadow.

        They are computed at each call, which takes some 7 us on three brokers; `Placement` remembers them.
        """
        if self.only is not None:
            return [self.only] * RANKS_PER_HASH
        return _ranked(topic, block, self.leading, place % len(self.leading))


def _ranked(topic: uuid.UUID, block: int, brokers: Sequence[int], place: int) -> list[int]:
    """The brokers at one place for the partitions of one block of RANKS_PER_HASH."""
    ranks = []
    for broker in brokers:
        data = topic.bytes + block.to_bytes(8, "big") + broker.to_bytes(8, "big")
        ranks.append(_RANKS.unpack(hashlib.blake2b(data, digest_size=_RANKS.size).digest()))
    if place == 0:
        return [brokers[of_one.index(max(of_one))] for of_one in zip(*ranks, strict=True)]
    numbers = range(len(brokers))
    return [
        brokers[sorted(numbers, key=of_one.__getitem__, reverse=True)[place]] for of_one in zip(*ranks, strict=True)
    ]
