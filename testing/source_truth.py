"""What sources have, as their writers appended it, and what a shadow may make of that.

1. What a source has is what its writers appended, up to where they, or a claim, confirmed it; each change of a shadow's
   high watermark is held against that when it happens: batch by batch, without a gap, and never back.
2. Each entry that anybody reads of a topic's ledger, through a shadow or not, has the CRC of what was appended there,
   and is confirmed: so segment, entry, offsets and bytes are the source's.
3. A high watermark that is shown lies where the shadow's own segments can be read.
4. No shadow claims, cuts or deletes a ledger; a topic's ledgers go together with its record, or from its front.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

import msgpack

from gnomon.bookie.handle import Ledger
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, Session
from gnomon.bookie.record import LEDGERS
from gnomon.broker.partition.entry import unpack_header
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.topics import TOPICS_PREFIX
from gnomon.metadata.client import Delete, DeletePrefix, Operation, Put
from gnomon.testing.simulation import Simulation

TOPIC_LEDGERS = "topics/"
LEDGERS_OF_TOPICS = f"{LEDGERS}{TOPIC_LEDGERS}"
COUNTERS = tuple(
    f"shadow/{event}" for event in ("shown", "rolled", "trimmed", "claimed", "opened again", "read", "many partitions")
)
"""What a sweep has to reach."""


class _Entry(NamedTuple):
    session: Session
    crc: int
    base_offset: int
    next_offset: int


class _Place(NamedTuple):
    ledger: LedgerId
    entry: EntryId


class SourceTruth:
    """What was appended to the ledgers of topics, how much of it is confirmed, and what shadows made of that."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._entries: dict[LedgerId, dict[EntryId, _Entry]] = {}
        self._confirmed: dict[LedgerId, EntryId] = defaultdict(lambda: NO_ENTRY)
        self._claimed: dict[LedgerId, set[EntryId]] = defaultdict(set)
        """Where claims ended whose outcome nobody knows yet: their records may have been seen."""
        self._begins: dict[tuple[str, int], _Place] = {}
        self._ends: dict[tuple[str, int], _Place] = {}
        """Batches, by partition and first (or next) offset."""
        self._shown: dict[str, set[str]] = defaultdict(set)
        self._topics: dict[str, str] = {}
        """Ids of topics in hex, by the keys of their records."""
        self._chains: dict[str, set[str]] = defaultdict(set)
        """Keys of ledgers, by partition."""

    def count(self, event: str) -> None:
        """Notes that something was reached."""
        assert f"shadow/{event}" in COUNTERS, event
        self._simulation.coverage.count(f"shadow/{event}")

    def found(self, text: str) -> None:
        """Something is wrong."""
        self._simulation.fail("shadow checker", AssertionError(text))

    # --- the source -------------------------------------------------------------------------------------------------

    def appended(self, ledger: Ledger, entry: EntryId, payload: bytes) -> None:
        """A writer has appended an entry: from now on it is what a later session says."""
        if not ledger.name.startswith(TOPIC_LEDGERS):
            return
        entries = self._entries.setdefault(ledger.id, {})
        before, session = entries.get(entry), ledger.session
        if before is not None and before.session > session:
            return
        if before is not None and entry <= self._confirmed[ledger.id]:
            self.found(f"entry {entry} of {ledger.name} is confirmed, and session {session} appends it anew")
        header = unpack_header(memoryview(payload))
        entries[entry] = _Entry(session, crc32(payload), header.base_offset, header.next_offset)
        if header.next_offset > header.base_offset:
            partition = ledger.name.rpartition("/")[0]
            self._begins[partition, header.base_offset] = _Place(ledger.id, entry)
            self._ends[partition, header.next_offset] = _Place(ledger.id, entry)

    def confirmed(self, ledger: LedgerId, entry: EntryId) -> None:
        """All up to an entry is confirmed."""
        self._confirmed[ledger] = max(self._confirmed[ledger], entry)

    def claiming(self, ledger: LedgerId, entry: EntryId) -> None:
        """A claim is about to record that the ledger goes on after an entry."""
        self._claimed[ledger].add(entry)

    def not_claimed(self, ledger: LedgerId, entry: EntryId) -> None:
        """Another was quicker."""
        self._claimed[ledger].discard(entry)

    def _end(self, ledger: LedgerId) -> int:
        return max(self._confirmed[ledger], *self._claimed[ledger], NO_ENTRY)

    # --- who reads --------------------------------------------------------------------------------------------------

    def read(self, ledger: Ledger, entry: EntryId, payload: memoryview) -> None:
        """Somebody was given an entry."""
        entries = self._entries.get(ledger.id)
        if entries is None:
            return
        appended = entries.get(entry)
        if appended is None or appended.crc != crc32(payload):
            self.found(f"entry {entry} of {ledger.name} was read, and is not what was appended there")
        if entry > self._end(ledger.id):
            self.found(f"entry {entry} of {ledger.name} was read; confirmed is {self._end(ledger.id)}")
        self.count("read")

    # --- shadows ----------------------------------------------------------------------------------------------------

    def high_watermark_moved(self, image: SourceImage, shadow: ShadowPartition, before: int, now: int) -> None:
        """A shadow says that its source goes up to `now`."""
        partition = partition_of(shadow)
        if now < before:
            self.found(f"a shadow of {partition} went back from {before} to {now}")
        position = image.__dict__.get("walked", 0)
        while position < now:
            place = self._begins.get((partition, position))
            if place is None or place.entry > self._end(place.ledger):
                self.found(f"a shadow of {partition} shows up to {now}; confirmed is what lies below {position}")
                return
            following = self._entries[place.ledger][place.entry].next_offset
            if following > now:
                if now > image.start_offset:
                    self.found(f"a shadow of {partition} ends at {now}, within the batch [{position}, {following})")
                return
            position = image.__dict__["walked"] = following
        self.count("shown")

    def shown(self, shadow: ShadowPartition) -> None:
        """A shadow tells its readers that something has changed."""
        image = shadow.log
        if image is None or image.high_watermark <= image.start_offset:
            return
        partition, end = partition_of(shadow), image.high_watermark
        place = self._ends.get((partition, end))
        if place is None:
            self.found(f"a shadow of {partition} shows up to {end}, where no batch ends")
            return
        segment = next((each for each in shadow.segments if each.ledger.id == place.ledger), None)
        if segment is None or segment.ledger.last_add_confirmed < place.entry:
            known = "not known" if segment is None else f"read up to {segment.ledger.last_add_confirmed}"
            self.found(f"a shadow of {partition} shows up to {end}, entry {place.entry} of a ledger that is {known}")

    def opened(self, shadow: ShadowPartition) -> None:
        """A shadow begins to show a partition."""
        partitions = self._shown[partition_of(shadow).split("/")[1]]
        if partition_of(shadow) in partitions:
            self.count("opened again")
        elif partitions:
            self.count("many partitions")
        partitions.add(partition_of(shadow))

    def records_taken(self, image: SourceImage, before: tuple[int, int, int, int]) -> None:
        """A shadow has heard of changes of its source's records."""
        if image.segments and before[0]:
            now = standing(image)
            for at, event in ((1, "rolled"), (2, "trimmed"), (3, "claimed")):
                if now[at] > before[at]:
                    self.count(event)

    # --- what nobody may do -----------------------------------------------------------------------------------------

    def changed_by_shadow(self, what: str, ledger: str) -> None:
        """A shadow changes a ledger."""
        self.found(f"a shadow {what} {ledger}")

    def transaction(self, operations: Iterable[Operation], exists: Callable[[str], bool]) -> None:
        """What has taken effect on the metadata.

        Args:
            exists: whether a key is there now. Of a transaction whose service died before it answered nobody is told.
        """
        operations = list(operations)
        gone = {self._topics.pop(each.key, "") for each in operations if isinstance(each, Delete)}
        for each in operations:
            if isinstance(each, Put) and each.key.startswith(TOPICS_PREFIX):
                self._topics[each.key] = msgpack.unpackb(each.value)["id"].hex()
            elif isinstance(each, Put) and each.key.startswith(LEDGERS_OF_TOPICS):
                self._chains[each.key.rpartition("/")[0]].add(each.key)
            elif isinstance(each, DeletePrefix) and each.prefix.startswith(LEDGERS_OF_TOPICS):
                topic = each.prefix.split("/")[2]
                if topic not in gone and topic in self._topics.values():
                    self.found(f"the ledgers of topic {topic} were deleted, and the topic was not")
        self._cut([each.key for each in operations if isinstance(each, Delete)], exists)

    def _cut(self, deleted: list[str], exists: Callable[[str], bool]) -> None:
        for key in sorted(key for key in deleted if key.startswith(LEDGERS_OF_TOPICS)):
            chain = self._chains[key.rpartition("/")[0]]
            chain -= {each for each in chain if not exists(each)}
            if not chain or min(chain) < key:
                self.found(f"{key} was deleted, and is not at the front of its partition")


def partition_of(shadow: ShadowPartition) -> str:
    """How the names of its source's ledgers begin."""
    prefix: str = shadow._source._prefix
    return f"{prefix.removeprefix(LEDGERS)}{shadow._index}"


def standing(image: SourceImage) -> tuple[int, int, int, int]:
    """How many segments it knows, where the last one begins, where the log begins, and its epoch."""
    last_offset = max((each.base_offset for each in image.segments), default=0)
    return len(image.segments), last_offset, image.start_offset, image.epoch
