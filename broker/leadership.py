"""Which broker leads a partition: computed by each broker alike from who lives. Pure.

1. The leader of a partition is the broker with the highest rank for it (rendezvous hashing): the same everywhere for
   the same brokers, spread evenly, and few partitions move when a broker comes or goes.
2. A broker that drains leads nothing.
3. The answers are remembered: each partition is ranked once for one set of brokers.
4. The k-th shadow of a partition is led by the broker at place k of its source's ranking, so that source and shadows
   are led by distinct brokers as far as there are brokers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

import msgpack

NOBODY = -1
"""Stands for the leader while no broker may lead."""
RANKS_PER_HASH = 8
"""One hash has room for the ranks of so many partitions: 10,000 of them on three brokers take some 10 ms."""
_RANKS = Struct(f">{RANKS_PER_HASH}Q")


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """What a broker says of itself as long as its lease lives."""

    id: int
    host: str
    port: int
    rack: str = ""
    draining: bool = False
    """It is about to end and gives its partitions away."""
    lease_seconds: float = 0.0
    """How long its registration outlives it."""
    native_port: int = 0
    """Where native clients find it."""

    def encode(self) -> bytes:
        """The value of its key."""
        encoded: bytes = msgpack.packb(
            [self.host, self.port, self.rack, self.draining, self.lease_seconds, self.native_port]
        )
        return encoded

    @classmethod
    def decode(cls, broker_id: int, value: bytes) -> LiveBroker:
        """Undoes `encode`."""
        return cls(broker_id, *msgpack.unpackb(value))


class Leadership:
    """The brokers alive at one time, and who of them leads what."""

    def __init__(self, brokers: Iterable[LiveBroker]) -> None:
        self.brokers: Mapping[int, LiveBroker] = {
            broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)
        }
        """All that live, by id, the lowest first."""
        self.leading = [broker.id for broker in self.brokers.values() if not broker.draining]
        """Those that may lead."""
        self._leaders: dict[tuple[uuid.UUID, int], list[int]] = {}

    @property
    def controller(self) -> int:
        """The broker that clients are told to take for the controller: any could be it."""
        return next(iter(self.leading or self.brokers), NOBODY)

    def told(self) -> list[LiveBroker]:
        """Those that clients are to know of: not the draining ones, as long as there are others."""
        return [self.brokers[broker] for broker in self.leading] or list(self.brokers.values())

    def leader(self, topic: uuid.UUID, partition: int, place: int = 0) -> int:
        """The broker that leads a partition; at place k, that of its k-th shadow."""
        if len(self.leading) < 2:
            return self.leading[0] if self.leading else NOBODY
        known = self._leaders.get((topic, place))
        if known is not None and partition < len(known):
            return known[partition]
        return self.leaders(topic, partition + 1, place)[partition]

    def leaders(self, topic: uuid.UUID, partitions: int, place: int = 0) -> Sequence[int]:
        """The leaders of a topic's first partitions, by number; at place k, those of its k-th shadow."""
        if len(self.leading) < 2:
            return [self.leading[0] if self.leading else NOBODY] * partitions
        known = self._leaders.setdefault((topic, place), [])
        while len(known) < partitions:
            known += _ranked(topic, len(known) // RANKS_PER_HASH, self.leading, place % len(self.leading))
        return known if len(known) == partitions else known[:partitions]

    def forget(self, topic: uuid.UUID, place: int = 0) -> None:
        """The topic, or its shadow at a place, is gone."""
        self._leaders.pop((topic, place), None)


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
