"""Judges shadows and readers against the entries that the sources' writers appended.

1. A source consists of the entries that its writers appended, up to the last one that a writer or a claim confirmed.
   Each change of a shadow's high watermark is compared with them at once: batch by batch, without gaps, never back.
2. Each entry that is read from a topic's ledger, through a shadow or not, is confirmed and has the CRC of the appended
   payload. So segment, entry, offsets and bytes are those of the source.
3. A high watermark that a shadow shows is at an entry that the shadow's own segments can read.
4. No shadow claims, shrinks or deletes a ledger. A topic's ledgers are deleted with its record, or from the front.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

import msgpack

from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.record import LEDGERS
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.log.entry import unpack_header
from gnomon.log.topic import TOPICS_PREFIX
from gnomon.metadata.client import Delete, DeletePrefix, Operation, Put
from gnomon.testing.simulation.simulation import Simulation

TOPIC_LEDGERS = "topics/"
LEDGERS_OF_TOPICS = f"{LEDGERS}{TOPIC_LEDGERS}"
COUNTERS = tuple(
    f"shadow/{event}" for event in ("shown", "rolled", "trimmed", "claimed", "opened again", "read", "many partitions")
)
"""The counters that a sweep has to reach."""


class _Entry(NamedTuple):
    session: SessionId
    crc: int
    base_offset: int
    next_offset: int


class _EntryPlace(NamedTuple):
    ledger: LedgerId
    entry: EntryId


class SourceTruth:
    """The entries appended to the ledgers of topics, the confirmed ends, and the positions that shadows show."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._entries: dict[LedgerId, dict[EntryId, _Entry]] = {}
        self._confirmed: dict[LedgerId, EntryId] = defaultdict(lambda: NO_ENTRY)
        self._claimed: dict[LedgerId, list[EntryId]] = defaultdict(list)
        """The last entry of each claim that did not fail: its record may have been seen, also without an answer."""
        self._begins: dict[tuple[str, int], _EntryPlace] = {}
        self._ends: dict[tuple[str, int], _EntryPlace] = {}
        """The places of batches, by partition and first (or next) offset."""
        self._shown: dict[str, set[str]] = defaultdict(set)
        self._topics: dict[str, str] = {}
        """Ids of topics in hex, by the keys of their records."""
        self._chains: dict[str, set[str]] = defaultdict(set)
        """The keys of ledgers, by partition."""

    def count(self, event: str) -> None:
        """Counts an event that a sweep has to reach."""
        assert f"shadow/{event}" in COUNTERS, event
        self._simulation.coverage.count(f"shadow/{event}")

    def found(self, text: str) -> None:
        """Fails the simulation with a finding."""
        self._simulation.fail("shadow checker", AssertionError(text))

    # --- the source -------------------------------------------------------------------------------------------------

    def appended(self, ledger: Ledger, entry: EntryId, payload: bytes) -> None:
        """A writer has appended an entry; it replaces that of a lower session."""
        if not ledger.name.startswith(TOPIC_LEDGERS):
            return
        entries = self._entries.setdefault(ledger.id, {})
        before, session = entries.get(entry), ledger.session
        if before is not None and before.session > session:
            return
        if before is not None and entry <= self._confirmed[ledger.id]:
            self.found(f"entry {entry} of {ledger.name} is confirmed, and session {session} appends it again")
        header = unpack_header(memoryview(payload))
        entries[entry] = _Entry(session, crc32(payload), header.base_offset, header.next_offset)
        if header.next_offset > header.base_offset:
            partition = ledger.name.rpartition("/")[0]
            self._begins[partition, header.base_offset] = _EntryPlace(ledger.id, entry)
            self._ends[partition, header.next_offset] = _EntryPlace(ledger.id, entry)

    def confirmed(self, ledger: LedgerId, entry: EntryId) -> None:
        """All entries up to this one are confirmed."""
        self._confirmed[ledger] = max(self._confirmed[ledger], entry)

    def claiming(self, ledger: LedgerId, entry: EntryId) -> None:
        """A claim is about to record that the ledger continues after an entry."""
        self._claimed[ledger].append(entry)

    def not_claimed(self, ledger: LedgerId, entry: EntryId) -> None:
        """One claim failed: an earlier one, perhaps with the same last entry, had changed the record."""
        self._claimed[ledger].remove(entry)

    def _end(self, ledger: LedgerId) -> int:
        return max(self._confirmed[ledger], *self._claimed[ledger], NO_ENTRY)

    # --- readers ---------------------------------------------------------------------------------------------------

    def read(self, ledger: Ledger, entry: EntryId, payload: memoryview) -> None:
        """A reader got an entry."""
        entries = self._entries.get(ledger.id)
        if entries is None:
            return
        appended = entries.get(entry)
        if appended is None or appended.crc != crc32(payload):
            self.found(f"entry {entry} of {ledger.name} was read, and differs from the appended entry")
        if entry > self._end(ledger.id):
            self.found(f"entry {entry} of {ledger.name} was read; the last confirmed one is {self._end(ledger.id)}")
        self.count("read")

    # --- shadows ----------------------------------------------------------------------------------------------------

    def high_watermark_moved(self, image: SourceImage, shadow: ShadowPartition, before: int, now: int) -> None:
        """A shadow has changed its high watermark from `before` to `now`."""
        partition = partition_of(shadow)
        if now < before:
            self.found(f"a shadow of {partition} went back from {before} to {now}")
        position = image.__dict__.get("walked", 0)
        while position < now:
            place = self._begins.get((partition, position))
            if place is None or place.entry > self._end(place.ledger):
                self.found(f"a shadow of {partition} shows up to {now}; only records below {position} are confirmed")
                return
            following = self._entries[place.ledger][place.entry].next_offset
            if following > now:
                if now > image.start_offset:
                    self.found(f"a shadow of {partition} ends at {now}, within the batch [{position}, {following})")
                return
            position = image.__dict__["walked"] = following
        self.count("shown")

    def shown(self, shadow: ShadowPartition) -> None:
        """A shadow notifies its readers of a change."""
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
        """A shadow has applied changes of its source's records."""
        if image.segments and before[0]:
            now = standing(image)
            for at, event in ((1, "rolled"), (2, "trimmed"), (3, "claimed")):
                if now[at] > before[at]:
                    self.count(event)

    # --- changes of ledgers -----------------------------------------------------------------------------------------

    def changed_by_shadow(self, what: str, ledger: str) -> None:
        """A shadow has changed a ledger."""
        self.found(f"a shadow {what} {ledger}")

    def transaction(self, operations: Iterable[Operation], exists: Callable[[str], bool]) -> None:
        """A transaction on the metadata has taken effect.

        Args:
            exists: whether a key exists now; a transaction whose service died before it answered is not reported.
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
                    self.found(f"the ledgers of topic {topic} were deleted, and the topic exists")
        self._cut([each.key for each in operations if isinstance(each, Delete)], exists)

    def _cut(self, deleted: list[str], exists: Callable[[str], bool]) -> None:
        for key in sorted(key for key in deleted if key.startswith(LEDGERS_OF_TOPICS)):
            topic = key.split("/")[2]
            if not any(exists(name) for name, topic_id in self._topics.items() if topic_id == topic):
                continue  # the topic was deleted in the same turn, which is reported next
            chain = self._chains[key.rpartition("/")[0]]
            chain -= {each for each in chain if not exists(each)}
            if not chain or min(chain) < key:
                self.found(f"{key} was deleted, and is not at the front of its partition")


def partition_of(shadow: ShadowPartition) -> str:
    """The common prefix of the names of the source's ledgers: the partition."""
    prefix: str = shadow._source._prefix
    return f"{prefix.removeprefix(LEDGERS)}{shadow._index}"


def standing(image: SourceImage) -> tuple[int, int, int, int]:
    """The number of known segments, base offset of the last one, start offset of the log, and its epoch."""
    last_offset = max((each.base_offset for each in image.segments), default=0)
    return len(image.segments), last_offset, image.start_offset, image.epoch
