"""Looks inside brokers while a storm rages: at every instant a shadow is a beginning of its source.

    with shadow_checker(simulation):
        ...

1. What a source has is what its writers appended, up to where they, or a claim, confirmed it; each change of a shadow's
   high watermark is held against that when it happens: batch by batch, without a gap, and never back.
2. Each entry that anybody reads of a topic's ledger, through a shadow or not, has the CRC of what was appended there,
   and is confirmed: so segment, entry, offsets and bytes are the source's.
3. A high watermark that is shown lies where the shadow's own segments can be read.
4. No shadow claims, cuts or deletes a ledger; a topic's ledgers go together with its record, or from its front.

The product has no trace of it. A finding ends the simulation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from gnomon.bookie import ledger as ledgers
from gnomon.bookie.entry_cache import CachedView
from gnomon.bookie.errors import LedgerFenced
from gnomon.bookie.handle import Ledger
from gnomon.bookie.ids import NO_ENTRY, EntryId, LedgerId, Session
from gnomon.bookie.local_view import LocalView
from gnomon.bookie.record import LEDGERS
from gnomon.broker.partition.chain import Chain
from gnomon.broker.partition.entry import unpack_header
from gnomon.broker.shadow.image import SourceImage
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.topics import TOPICS_PREFIX
from gnomon.metadata.client import Delete, DeletePrefix, KeyValue, Operation, Put
from gnomon.metadata.embedded import EmbeddedMetadata
from gnomon.testing.ledger_probes import Patches
from gnomon.testing.simulation import Simulation

TOPIC_LEDGERS = "topics/"
LEDGERS_OF_TOPICS = f"{LEDGERS}{TOPIC_LEDGERS}"
COUNTERS = tuple(
    f"shadow/{event}" for event in ("shown", "rolled", "trimmed", "claimed", "opened again", "read", "many partitions")
)
"""What a sweep has to reach."""

_by_shadow: ContextVar[bool] = ContextVar("by_shadow", default=False)
_recovered: ContextVar[EntryId | None] = ContextVar("recovered", default=None)


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
            now = _standing(image)
            for at, event in ((1, "rolled"), (2, "trimmed"), (3, "claimed")):
                if now[at] > before[at]:
                    self.count(event)

    # --- what nobody may do -----------------------------------------------------------------------------------------

    def changes(self, what: str, ledger: str) -> None:
        """Somebody changes a ledger."""
        if _by_shadow.get():
            self.found(f"a shadow {what} {ledger}")

    def transaction(self, operations: Iterable[Operation]) -> None:
        """What has taken effect on the metadata."""
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
        self._cut([each.key for each in operations if isinstance(each, Delete)])

    def _cut(self, deleted: list[str]) -> None:
        for key in sorted(key for key in deleted if key.startswith(LEDGERS_OF_TOPICS)):
            chain = self._chains[key.rpartition("/")[0]]
            chain.discard(key)
            if not chain or min(chain) < key:
                self.found(f"{key} was deleted, and is not at the front of its partition")


def partition_of(shadow: ShadowPartition) -> str:
    """How the names of its source's ledgers begin."""
    prefix: str = shadow._source._prefix
    return f"{prefix.removeprefix(LEDGERS)}{shadow._index}"


def _standing(image: SourceImage) -> tuple[int, int, int, int]:
    last_offset = max((each.base_offset for each in image.segments), default=0)
    return len(image.segments), last_offset, image.start_offset, image.epoch


@contextmanager
def shadow_checker(simulation: Simulation) -> Iterator[None]:
    """Looks inside during the block."""
    with ExitStack() as stack:
        patch, truth = Patches(stack), SourceTruth(simulation)
        _follow_writers(patch, truth)
        _follow_claims(patch, truth)
        _follow_readers(patch, truth)
        _follow_shadows(stack, patch, truth)
        _follow_changes(patch, truth)
        yield


def _follow_writers(patch: Patches, truth: SourceTruth) -> None:
    def append(before: Callable[..., EntryId]) -> Any:
        def followed(ledger: Ledger, payload: Any, done: Any) -> EntryId:
            entry = before(ledger, payload, done)
            truth.appended(ledger, entry, b"".join(payload))
            return entry

        return followed

    def confirmed_to(before: Callable[..., None]) -> Any:
        def followed(ledger: Ledger, entry: EntryId) -> None:
            truth.confirmed(ledger.id, entry)
            before(ledger, entry)

        return followed

    patch(Ledger, "append", append)
    patch(Ledger, "confirmed_to", confirmed_to)


def _follow_claims(patch: Patches, truth: SourceTruth) -> None:
    def recover(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(bookies: Any, ledger_id: LedgerId, name: str, record: Any, session: Session) -> Any:
            if name.startswith(TOPIC_LEDGERS):
                truth.changes("claims", name)
            found = await before(bookies, ledger_id, name, record, session)
            truth.claiming(ledger_id, found.last_entry)
            _recovered.set(found.last_entry)
            return found

        return followed

    def claim(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(metadata: Any, bookies: Any, stored: KeyValue, *others: Any) -> Any:
            ledger = LedgerId(stored.create_revision)
            _recovered.set(None)
            try:
                written, found = await before(metadata, bookies, stored, *others)
            except LedgerFenced:
                end = _recovered.get()
                if end is not None:
                    truth.not_claimed(ledger, end)
                raise
            truth.confirmed(ledger, found.last_entry)
            return written, found

        return followed

    patch(ledgers, "recover", recover)
    patch(ledgers, "_claim", claim)


def _follow_readers(patch: Patches, truth: SourceTruth) -> None:
    def payload(before: Callable[..., memoryview]) -> Any:
        def followed(view: Any, entry: EntryId) -> memoryview:
            found = before(view, entry)
            truth.read(view._ledger, entry, found)
            return found

        return followed

    patch(CachedView, "payload", payload)
    patch(LocalView, "payload", payload)


def _follow_shadows(stack: ExitStack, patch: Patches, truth: SourceTruth) -> None:
    def high_watermark(image: SourceImage) -> int:
        value: int = image.__dict__["high_watermark"]
        return value

    def moved(image: SourceImage, now: int) -> None:
        before, shadow = image.__dict__.get("high_watermark", 0), image.__dict__.get("shadow")
        image.__dict__["high_watermark"] = now
        if shadow is not None and now != before:
            truth.high_watermark_moved(image, shadow, before, now)

    def init(before: Callable[..., None]) -> Any:
        def followed(shadow: ShadowPartition, *args: Any) -> None:
            before(shadow, *args)
            shadow._image.__dict__["shadow"] = shadow

        return followed

    def changed(before: Callable[..., None]) -> Any:
        def followed(shadow: ShadowPartition) -> None:
            truth.shown(shadow)
            before(shadow)

        return followed

    def live(before: Callable[..., Awaitable[None]]) -> Any:
        async def followed(shadow: ShadowPartition, *args: Any) -> None:
            _by_shadow.set(True)
            truth.opened(shadow)
            await before(shadow, *args)

        return followed

    def taken(before: Callable[..., None]) -> Any:
        def followed(image: SourceImage, changes: Any) -> None:
            standing = _standing(image)
            before(image, changes)
            truth.records_taken(image, standing)

        return followed

    SourceImage.high_watermark = property(high_watermark, moved)  # type: ignore[assignment]
    stack.callback(delattr, SourceImage, "high_watermark")
    patch(ShadowPartition, "__init__", init)
    patch(ShadowPartition, "_changed", changed)
    patch(ShadowPartition, "_live", live)
    patch(SourceImage, "apply", taken)
    patch(SourceImage, "replace", taken)


def _follow_changes(patch: Patches, truth: SourceTruth) -> None:
    def by_its_owner(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(*args: Any, **options: Any) -> Any:
            token = _by_shadow.set(False)  # a shadow may have had it opened
            try:
                return await before(*args, **options)
            finally:
                _by_shadow.reset(token)

        return followed

    def shrink(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(ledger: Ledger, *args: Any, **options: Any) -> Any:
            truth.changes("cuts", ledger.name)
            return await before(ledger, *args, **options)

        return followed

    def txn(before: Callable[..., Awaitable[Any]]) -> Any:
        async def followed(metadata: EmbeddedMetadata, compare: Any, then: Any, otherwise: Any = ()) -> Any:
            result = await before(metadata, compare, then, otherwise)
            if result.succeeded:
                truth.transaction(then)
            return result

        return followed

    patch(Chain, "open", by_its_owner)
    patch(Ledger, "shrink", shrink)
    patch(EmbeddedMetadata, "txn", txn)
