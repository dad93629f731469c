"""Plans of reads, and the holds that come with them: for readers that get the entries from bookies.

1. A plan comes from the leader of each of its partitions, at a time at which the leader's lease lives. It names
   confirmed entries only.
2. The ledger records of a plan are read from the metadata, after the hold was taken: the records that a leader
   remembers of sealed segments may name bookies that entries have left. If planned records were deleted meanwhile, the
   plan is refused.
3. An answer has at most PLANNED_SEGMENTS_MAX segments, and about ANSWER_BYTES_MAX. A partition without room gets fewer
   segments than its range has, or none.
4. A plan takes many turns of the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gnomon.bookie.ids import BookieId, LedgerId
from gnomon.bookie.ledgers.catalog import live_addresses
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.native.hosts import not_open
from gnomon.broker.partition.readable import Readable
from gnomon.broker.retention.read_holds import HeldPlace, ReadHolds
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.client.errors import NoSuchTopic, Unavailable
from gnomon.client.protocol import PLANNED_SEGMENTS_MAX
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds
from gnomon.log.plans.planned_range import PlannedRange
from gnomon.log.plans.read_plan import PlannedBookie, PlannedSegment, encode_segment, plain_plan
from gnomon.log.segment import Segment
from gnomon.log.topic import Topic
from gnomon.metadata.client import GETS_MAX, KeyValue, read_many
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock

ANSWER_BYTES_MAX: Final = 4 << 20
OPENED_PER_TURN: Final = 100
"""Partitions that come into use in a turn."""
PER_TURN: Final = 100
"""Weights of segments in a turn of the event loop, some 3 ms."""
SEARCH_WEIGHT: Final = 20
"""The weight of a segment that is searched; one that is planned as a whole has the weight 1."""

Ranges: TypeAlias = Mapping[int, tuple[Offset, Offset]]
"""First offset and end of a range, by partition."""


class WantedHold(NamedTuple):
    """The hold that a client asks for."""

    name: str
    seconds: int


class ReadPlanner:
    """Makes the plans that the clients of one broker ask for."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        routes: Routes,
        holds: ReadHolds,
        storage: Storage,
        cluster_id: str,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._records = records
        self._routes = routes
        self._holds = holds
        self._storage = storage
        self._cluster_id = cluster_id
        self._clock = clock

    async def plan(self, name: str, ranges: Ranges, hold: WantedHold | None) -> list[Any]:
        """The plan of ranges of partitions that this broker leads, as plain data (`log.plans.read_plan`).

        Args:
            hold: is taken at the beginning of each range before the plan is made; None for no hold.

        Raises:
            KafkaError: the topic or a partition does not exist, or another broker leads it.
            NativeError: a partition is not open, a segment was deleted meanwhile, or the hold is refused.
            MetadataError, LedgerError: something cannot be read.
        """
        await self._records.find(name)
        topic = self._topics.find(name)
        opened = await self._opened(topic, ranges)
        if hold is not None:
            places = {index: _held_place(each, log, ranges[index][0]) for index, (each, log) in opened.items()}
            await self._holds.take(self._source_of(topic), hold.name, hold.seconds, places)
            opened = await self._opened(topic, ranges)
        answer = _Answer(self._storage, self._clock)
        async for index in paced(ranges, OPENED_PER_TURN, self._clock):
            answer.add(index, *opened[index], *ranges[index])
        await answer.complete()
        bookies = [PlannedBookie(*at) for at in await live_addresses(self._storage.metadata, answer.bookies)]
        return plain_plan(topic.id, self._cluster_id, answer.partitions, tuple(bookies))

    async def holds(self, name: str) -> list[list[int]]:
        """Partition, number of read holds and their lowest offset, of each partition of a topic that has some.

        Raises:
            KafkaError: the topic does not exist.
            MetadataError: the holds cannot be read.
        """
        await self._records.find(name)
        found = await self._holds.of(self._source_of(self._topics.find(name)))
        return [[index, held.holds, held.offset] for index, held in sorted(found.items())]

    async def _opened(self, topic: Topic, ranges: Ranges) -> dict[int, tuple[Readable, LogBounds]]:
        partitions = {}
        async for index in paced(ranges, OPENED_PER_TURN, self._clock):
            partitions[index] = self._routes.to_read(topic.id.bytes, index)
            partitions[index].open_log()
        opened = {}
        for index, partition in partitions.items():
            log = await partition.opened()
            if log is None:
                raise not_open(topic.name, index, partition.failure)
            opened[index] = partition, log
        return opened

    def _source_of(self, topic: Topic) -> Topic:
        """The topic that stores the records."""
        source = topic if topic.source is None else self._topics.image.source_of(topic)
        if source is None:
            raise NoSuchTopic(f"the source of topic '{topic.name}' does not exist")
        return source


def _held_place(partition: Readable, log: LogBounds, first: Offset) -> HeldPlace:
    offset = min(max(first, log.start_offset), log.high_watermark)
    segments = partition.segments
    return HeldPlace(offset, segments[partition.segment_of(offset)] if segments else None)


class _Piece(NamedTuple):
    """A segment of a range, and the plain data of its partition's segments."""

    planned: PlannedRange
    segment: Segment
    segments: list[Any]


class _Answer:
    """The partitions of one answer."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.partitions: list[Any] = []
        """As plain data."""
        self.bookies: dict[BookieId, None] = {}
        """The bookies that the records name."""
        self._storage = storage
        self._clock = clock
        self._ranges: list[tuple[PlannedRange, LogBounds]] = []
        self._pieces: list[_Piece] = []
        self._bytes_left = ANSWER_BYTES_MAX

    def add(self, index: int, partition: Readable, log: LogBounds, first: Offset, end: Offset) -> None:
        """Adds a range of a partition, without its segments as yet."""
        room = PLANNED_SEGMENTS_MAX - len(self._pieces)
        planned, segments = PlannedRange.of(partition, log, first, end, room), list[Any]()
        self.partitions.append([index, planned.start_offset, planned.high_watermark, segments])
        self._ranges.append((planned, log))
        self._pieces += [_Piece(planned, segment, segments) for segment in planned.segments]

    async def complete(self) -> None:
        """Adds the segments, as far as they fit into the answer.

        Raises:
            MetadataError, LedgerError: something cannot be read.
            Unavailable: planned records were deleted meanwhile.
        """
        for at in range(0, len(self._pieces), GETS_MAX):
            group = self._pieces[at : at + GETS_MAX]
            keys = [ledger_key(piece.segment.ledger.name) for piece in group]
            found = await read_many(self._storage.metadata, keys)
            async for piece, key in paced(zip(group, keys, strict=True), PER_TURN, self._clock, _weight):
                piece.segments.append(await self._segment(piece, found.get(key)))
            if self._bytes_left <= 0:
                break
        for planned, log in self._ranges:
            if planned.segments and log.start_offset > planned.first:
                raise _deleted(f"the records from offset {planned.first} on")

    async def _segment(self, piece: _Piece, stored: KeyValue | None) -> list[Any]:
        segment = piece.segment
        ledger = segment.ledger
        run = await piece.planned.run(segment)
        if stored is None or LedgerId(stored.create_revision) != ledger.id or run.first > run.last:
            raise _deleted(f"segment {ledger.name!r}")
        record = decode_record(stored.value)
        if record.start_entry > run.first:
            raise _deleted(f"entries of segment {ledger.name!r}")
        self.bookies.update(dict.fromkeys(record.bookies))
        self._bytes_left -= len(stored.value)
        planned = PlannedSegment(
            segment.base_offset, ledger.id, record, run.first, run.last, run.next_offset, run.size_bytes
        )
        return encode_segment(planned)


def _weight(item: tuple[_Piece, str]) -> int:
    (planned, segment, _), _ = item
    return 1 if planned.is_whole(segment) else SEARCH_WEIGHT


def _deleted(what: str) -> Unavailable:
    return Unavailable(f"{what}: deleted just now; ask again")
