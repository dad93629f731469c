"""Takes, renews and moves read holds: leased metadata keys by which a reader without a subscription keeps records.

1. A hold begins, or moves back, only in a transaction that also writes `hold_key`, and compares that the segment with
   its offset exists. So each trim either knows the hold, or fails, or came before it and has left the segment.
2. Each request renews the lease of the hold, or puts the hold under a new lease. No broker keeps a lease alive, so a
   hold ends with its reader, and outlives every broker.
3. A hold moves forward without a write of `hold_key`.
4. A topic has at most HOLDS_MAX holds with different names, also if several brokers create holds at the same time.
5. No hold is created for a deleted topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from gnomon.bookie.record import ledger_key
from gnomon.broker.storage import Storage
from gnomon.client.errors import InvalidCall, Unavailable
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import HOLDS_MAX, READS, HoldPlace, ReadHold, reads_prefix
from gnomon.log.segment import Segment
from gnomon.log.subscription_keys import hold_key
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import (
    Compare,
    Get,
    KeyField,
    KeyValue,
    LeaseId,
    LeaseNotFound,
    Metadata,
    Operation,
    Put,
    read_many,
)
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock

PARTITIONS_MAX: Final = 60
"""Partitions in one transaction: each takes up to two comparisons, and an etcd takes 128."""
TRIES: Final = 10
"""Attempts of one transaction, if other holds and subscriptions are created meanwhile."""
HOLDS_PER_TURN: Final = 1_000
"""Keys of holds that are looked at in a turn of the event loop, some 3 ms."""


class HeldPlace(NamedTuple):
    """The place in a partition that a hold begins at."""

    offset: Offset
    segment: Segment | None
    """The segment of the offset; None for a log without any."""


class HeldPartition(NamedTuple):
    """The read holds of a partition."""

    holds: int
    offset: Offset
    """The lowest of them."""


class ReadHolds:
    """Takes the read holds that the clients of one broker ask for."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    async def take(self, source: Topic, name: str, seconds: int, wanted: Mapping[int, HeldPlace]) -> None:
        """Takes, renews or moves the hold `name` in some partitions; each is held for `seconds` from now on.

        Args:
            source: the topic that stores the records.
            wanted: the place by partition.

        Raises:
            InvalidCall: the topic has HOLDS_MAX holds with other names.
            Unavailable: a segment was deleted meanwhile, or too much was changed at the same time.
            MetadataError: whether the hold was taken is unknown.
        """
        taking = _Taking(self._storage.metadata, self._clock, source, name, seconds)
        rest = iter(wanted.items())
        while group := dict(islice(rest, PARTITIONS_MAX)):
            await taking.take(group)

    async def of(self, source: Topic) -> dict[int, HeldPartition]:
        """The read holds of a topic, by partition.

        Raises:
            MetadataError: they cannot be read.
        """
        return (await self._below(reads_prefix(source.id))).get(source.id, {})

    async def all(self) -> dict[uuid.UUID, dict[int, HeldPartition]]:
        """The read holds of all topics, by topic id and partition.

        Raises:
            MetadataError: they cannot be read.
        """
        return await self._below(READS)

    async def _below(self, prefix: str) -> dict[uuid.UUID, dict[int, HeldPartition]]:
        found: dict[uuid.UUID, dict[int, HeldPartition]] = {}
        items = (await self._storage.metadata.range(prefix)).items
        async for item in paced(items, HOLDS_PER_TURN, self._clock):
            place, offset = HoldPlace.of_key(item.key), ReadHold.decode(item.value).offset
            held = found.setdefault(place.source_id, {})
            holds, lowest = held.get(place.partition, HeldPartition(0, offset))
            held[place.partition] = HeldPartition(holds + 1, min(lowest, offset))
        return found


class _Taking:
    """One request for a hold."""

    def __init__(self, metadata: Metadata, clock: Clock, source: Topic, name: str, seconds: int) -> None:
        self._metadata = metadata
        self._clock = clock
        self._source = source
        self._name = name
        self._seconds = seconds
        self._lease: LeaseId | None = None
        self._counted = False
        """Whether the hold is one of at most HOLDS_MAX."""

    async def take(self, wanted: Mapping[int, HeldPlace]) -> None:
        """Takes the hold in some partitions, in one transaction."""
        for _ in range(TRIES):
            try:
                if await self._try(wanted):
                    return
            except LeaseNotFound:
                self._lease = None
        raise Unavailable(
            f"hold {self._name!r} of topic '{self._source.name}' was not taken: too many subscriptions and holds are"
            " created at the same time; ask again"
        )

    async def _try(self, wanted: Mapping[int, HeldPlace]) -> bool:
        """One attempt; returns False if a key was changed meanwhile."""
        holds = hold_key(self._source.id)
        places = {HoldPlace(self._source.id, index, self._name).key: place for index, place in wanted.items()}
        found = await read_many(self._metadata, [holds, *places])
        compare = [Compare(topic_key(self._source.name), KeyField.CREATE_REVISION, self._source.create_revision)]
        if not self._counted and not found.keys() >= places.keys():
            await self._count()
            compare.append(_unchanged(holds, found))
        if self._lease is None:
            self._lease = await self._renewed([found[key] for key in places if key in found])
        change = _HoldChange(found, self._seconds, self._lease)
        for key, place in places.items():
            change.add(key, place)
        if not change.puts:
            return True
        then = [*change.puts, Put(holds, b"")] if change.begins else change.puts
        result = await self._metadata.txn([*compare, *change.compare], then, [Get(key) for key in change.segments])
        if not result.succeeded:
            self._check_segments(change.segments, result.results)
            return False
        self._counted = True
        return True

    async def _count(self) -> None:
        """Checks that the topic has the hold already, or has room for one more."""
        found = await self._metadata.range(reads_prefix(self._source.id))
        names = {item.key.rpartition("/")[2] async for item in paced(found.items, HOLDS_PER_TURN, self._clock)}
        if self._name not in names and len(names) >= HOLDS_MAX:
            raise InvalidCall(
                f"topic '{self._source.name}' has {len(names)} holds, {HOLDS_MAX} are allowed: use fewer names, or wait"
                " until some of them end"
            )

    async def _renewed(self, held: Sequence[KeyValue]) -> LeaseId:
        """The lease of the hold, renewed, if its keys have one lease of this time; otherwise a new lease."""
        leases = {item.lease for item in held if ReadHold.decode(item.value).seconds == self._seconds}
        if len(leases) == 1 and len(held) == sum(item.lease in leases for item in held):
            (lease,) = leases
            if lease is not None:
                with suppress(LeaseNotFound):
                    await self._metadata.keep_alive(lease)
                    return lease
        return await self._metadata.lease(self._seconds)

    def _check_segments(self, segments: Mapping[str, int], found: Iterable[object]) -> None:
        for (key, ledger), item in zip(segments.items(), found, strict=True):
            if not isinstance(item, KeyValue) or item.create_revision != ledger:
                raise Unavailable(
                    f"hold {self._name!r} of topic '{self._source.name}' was not taken: {key!r}, where it begins, was"
                    " deleted just now; ask again"
                )


class _HoldChange:
    """The changes of a hold in some partitions."""

    def __init__(self, found: Mapping[str, KeyValue], seconds: int, lease: LeaseId) -> None:
        self.compare: list[Compare] = []
        self.puts: list[Operation] = []
        self.segments: dict[str, int] = {}
        """The keys of the segments in which the hold begins or moves back, and their ledgers."""
        self.begins = False
        """Whether the hold begins or moves back in some partition."""
        self._found = found
        self._seconds = seconds
        self._lease = lease

    def add(self, key: str, place: HeldPlace) -> None:
        """Adds the change of one partition, unless it has none."""
        held, value = self._found.get(key), ReadHold(place.offset, self._seconds).encode()
        if held is not None and (held.value, held.lease) == (value, self._lease):
            return
        self.compare.append(_unchanged(key, self._found))
        self.puts.append(Put(key, value, self._lease))
        if held is not None and place.offset >= ReadHold.decode(held.value).offset:
            return
        self.begins = True
        if place.segment is not None:
            ledger = place.segment.ledger
            segment = ledger_key(ledger.name)
            self.segments[segment] = ledger.id
            self.compare.append(Compare(segment, KeyField.CREATE_REVISION, ledger.id))


def _unchanged(key: str, found: Mapping[str, KeyValue]) -> Compare:
    return Compare(key, KeyField.MOD_REVISION, found[key].mod_revision if key in found else 0)
