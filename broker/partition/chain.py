"""The ledgers of one partition: how its segments are found, claimed, continued and given up.

1. The ledgers are named after the offset they begin at, so that one range read gives the whole chain in order.
2. Only the last ledger of a chain takes entries; all others are sealed, and their records say where they end.
3. The claim of the last ledger raises the leader epoch; it is the only write that opening costs.
4. The first segment's record says where the log starts, where that is not at the segment's beginning.
5. Nothing is created for a topic that is gone: the first ledger's creation compares the topic's record.
6. Where something is given up that somebody may not have read, that is recorded with it (`cut`).
7. A claim compares the first segment, and whoever gives up something at the front compares the claim: each knows of the
   other, or changes nothing. A leader that was replaced goes on until it hears of that.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

import trio

from gnomon.bookie.errors import DigestMismatch, LedgerError, LedgerFenced
from gnomon.bookie.ledger import (
    Bookies,
    EntryCache,
    EntryId,
    Ledger,
    NotInMemory,
    Quorum,
    adopt_ledger,
    claim_ledger,
    create_ledger,
    delete_ledgers,
    is_local,
    read_from_memory,
)
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.broker.partition.cut import Cut, cut_key
from gnomon.broker.partition.entry import HEADER_BYTES, EntryHeader, LeaderEpoch, Offset, unpack_header
from gnomon.broker.partition.log import LogSettings, PartitionLog
from gnomon.broker.partition.segment import Segment
from gnomon.broker.partition.segment_record import (
    BATCHES_BYTES,
    CREATED_MS,
    EPOCH,
    MAX_TIMESTAMP,
    NEXT_OFFSET,
    START_OFFSET,
    YOUNGEST_MS,
    base_offset_of,
    segment_name,
    size_and_youngest,
)
from gnomon.metadata.client import Compare, Field, KeyValue, Metadata, Operation, Put, Revision

PARTITIONS = "topics/"
"""Where the names of all partitions' ledgers begin."""
_PREFIX = re.compile(f"{ledger_key(PARTITIONS)}([0-9a-f]{{32}})/([0-9]+)")
SINGLE = Quorum()
PARTITIONS_PER_TURN = 100
"""Looking at all partitions leaves others their turn after so many."""


def ledgers_prefix(topic_id: uuid.UUID, partition: int | None = None) -> str:
    """Where the names of a topic's (or of one partition's) ledgers begin."""
    return f"{PARTITIONS}{topic_id.hex}/" if partition is None else f"{PARTITIONS}{topic_id.hex}/{partition}/"


class Chain:
    """The chain of ledgers of one partition; `topic_key` and `topic_revision` tell the life of its topic."""

    def __init__(
        self,
        metadata: Metadata,
        bookies: Bookies,
        entries: EntryCache,
        prefix: str,
        topic_key: str,
        topic_revision: Revision,
        quorum: Quorum = SINGLE,
        claimant: Sequence[Compare] = (),
    ) -> None:
        """The chain whose ledgers have names that begin with `prefix`.

        Args:
            quorum: of ledgers that begin here.
            claimant: what must hold for this broker to open it, judged together with the opening.
        """
        self._metadata = metadata
        self._bookies = bookies
        self._entries = entries
        self._prefix = prefix
        self._quorum = quorum
        self._claimant = tuple(claimant)
        self._topic_lives = Compare(topic_key, Field.CREATE_REVISION, topic_revision)

    def _name(self, base_offset: Offset) -> str:
        return segment_name(self._prefix, base_offset)

    async def open(self, settings: LogSettings, now_ms: int) -> tuple[PartitionLog, list[Segment]]:
        """Claims the chain and reads where its log stands: one metadata read, one metadata write.

        Raises:
            LedgerError, MetadataError, WorldError: it could not be opened; trying again is safe.
        """
        found = await self._metadata.range(ledger_key(self._prefix))
        if not found.items:
            segment = await self._begin(now_ms)
            return PartitionLog(LeaderEpoch(0), Offset(0), Offset(0), settings), [segment]
        *sealed, newest = found.items
        segments = [self._adopt(item) for item in sealed]
        last = await self._claim(newest, [_unchanged(item) for item in sealed[:1]])
        segments.append(last)
        first = segments[0]
        start = Offset(max(first.base_offset, first.ledger.properties.get(START_OFFSET, 0)))
        log = PartitionLog(LeaderEpoch(last.ledger.properties[EPOCH]), start, last.base_offset, settings)
        await self._restore(log, segments, now_ms)
        return log, segments

    async def _begin(self, now_ms: int) -> Segment:
        ledger = await create_ledger(
            self._metadata,
            self._bookies,
            self._name(Offset(0)),
            properties={EPOCH: 0, CREATED_MS: now_ms},
            quorum=self._quorum,
            compare=(self._topic_lives, *self._claimant),
        )
        return Segment(ledger, Offset(0), self._entries)

    def _adopt(self, item: KeyValue) -> Segment:
        ledger = adopt_ledger(self._metadata, self._bookies, item)
        segment = Segment(ledger, base_offset_of(ledger.name), self._entries)
        segment.sealed_as_recorded()
        return segment

    async def _claim(self, item: KeyValue, compare: Sequence[Compare]) -> Segment:
        before = adopt_ledger(self._metadata, self._bookies, item).properties
        properties = {**before, EPOCH: before[EPOCH] + 1}
        compare = (*self._claimant, *compare)
        ledger = await claim_ledger(self._metadata, self._bookies, item, properties=properties, compare=compare)
        return Segment(ledger, base_offset_of(ledger.name), self._entries)

    @classmethod
    async def _restore(cls, log: PartitionLog, segments: list[Segment], now_ms: int) -> None:
        """Takes the log to its end, and replays the producers from their last snapshot on.

        A segment that has no entry yet lacks its snapshot too, so that the producers are those of the one before it.
        """
        last = segments[-1]
        ledger = last.ledger
        if ledger.last_add_confirmed >= ledger.start_entry:
            header = await cls._replay(log, last, now_ms)
            # One with a snapshot alone must not roll: the next ledger would have its name.
            first_ms = ledger.properties[CREATED_MS] if header.next_offset > last.base_offset else None
            log.restore(header, ledger.last_add_confirmed, ledger.length_bytes, first_ms, now_ms)
            return
        log.next_offset = log.high_watermark = max(log.start_offset, last.base_offset)
        if len(segments) > 1:
            await cls._replay(log, segments[-2], now_ms)
            log.begin_segment()

    @staticmethod
    async def _replay(log: PartitionLog, segment: Segment, now_ms: int) -> EntryHeader:
        ledger = segment.ledger
        last = ledger.last_add_confirmed

        def last_header() -> EntryHeader:
            with segment.view() as view:
                return segment.header(view, last)

        def replay() -> EntryId:
            with segment.view() as view:
                for number in map(EntryId, range(entry, last + 1)):
                    try:
                        payload = view.payload(number)
                    except NotInMemory:
                        if number == entry:
                            raise
                        return number
                    log.replay(unpack_header(payload), payload[HEADER_BYTES:], now_ms)
            return EntryId(last + 1)

        header = await read_from_memory(last_header)
        entry = EntryId(max(header.replay_from, ledger.start_entry))
        while entry <= last:
            entry = await read_from_memory(replay)
        return header

    async def ask(self) -> None:
        """Asks the metadata for something, to see whether it answers.

        Raises:
            MetadataError: it does not.
        """
        await self._metadata.get(self._topic_lives.key)

    async def is_ours(self, last: Segment) -> bool:
        """Whether nobody else has claimed the chain since this broker has; False where that is not certain.

        Raises:
            LedgerFenced: it has been claimed since, perhaps by this broker itself.
            MetadataError: it does not answer.
        """
        found = await self._metadata.get(ledger_key(last.ledger.name))
        if found is None:
            return False
        now, claimed = decode_record(found.value), last.ledger.record
        if now.session > claimed.session:
            raise LedgerFenced(f"ledger {last.ledger.name!r} has another writer by now, as the metadata tells")
        return not now.sealed and now.session == claimed.session

    async def _claim_stands(self, last: Segment) -> Compare | None:
        """What is so in the metadata as long as nobody else claims the chain; None where somebody may have."""
        found = await self._metadata.get(ledger_key(last.ledger.name))
        if found is None or decode_record(found.value).session != last.ledger.record.session:
            return None
        return _unchanged(found)

    async def roll(self, log: PartitionLog, segment: Segment, now_ms: int) -> Segment:
        """Seals the last segment and begins the next one, in one transaction; nothing may be appended meanwhile."""
        sealed = {
            **segment.ledger.properties,
            NEXT_OFFSET: log.next_offset,
            MAX_TIMESTAMP: log.segment_max_timestamp,
            YOUNGEST_MS: log.segment_youngest_ms,
            BATCHES_BYTES: log.segment_bytes,
        }
        ledger = await segment.ledger.roll(
            self._name(log.next_offset),
            properties={EPOCH: log.epoch, CREATED_MS: now_ms},
            sealed_properties=sealed,
            quorum=self._quorum,
        )
        segment.sealed(log.next_offset, log.segment_max_timestamp, log.segment_youngest_ms, log.segment_bytes)
        return Segment(ledger, log.next_offset, self._entries)

    @staticmethod
    async def replay_start(log: PartitionLog, last: Segment) -> EntryId:
        """Where in the last segment a restart finds the producers: durable on return, so what is older may go.

        Raises:
            LedgerError: the snapshot that was on its way there was not stored.
        """
        entry, ledger = EntryId(log.replay_from), last.ledger
        if ledger.failure is not None:
            raise ledger.failure
        if entry < ledger.next_entry:
            await ledger.wait_for_lac(entry)
        return entry

    async def delete(
        self, segments: list[Segment], last: Segment, read_by_all: Sequence[Compare] | None = None
    ) -> bool:
        """Gives up sealed segments at the front of the chain, in one transaction.

        The first of them may be gone: an earlier deletion whose outcome was not known has taken effect.

        Args:
            last: the segment that this broker has claimed.
            read_by_all: what holds if all readers have read them; None where that is not known.

        Returns:
            False where the topic is gone, somebody has changed one of them or the last one meanwhile, or a comparison
            fails: nothing was deleted.
        """
        found = [await self._metadata.get(ledger_key(segment.ledger.name)) for segment in segments]
        items = [item for item in found if item is not None]
        claim_stands = await self._claim_stands(last)
        if claim_stands is None:
            return False
        compare = (self._topic_lives, claim_stands)
        if read_by_all is not None:
            return await delete_ledgers(self._metadata, items, compare=(*compare, *read_by_all))
        end = segments[-1]
        assert end.next_offset is not None, "only sealed segments are given up"
        cut = Cut(end.base_offset, end.ledger.last_add_confirmed + 1, 0, end.next_offset)
        return await delete_ledgers(self._metadata, items, compare=compare, also=(self._put_cut(cut),))

    def _put_cut(self, cut: Cut) -> Put:
        return Put(cut_key(self._prefix), cut.encode())

    async def cut_first(self, log: PartitionLog, segments: list[Segment], offset: Offset, replay_from: EntryId) -> None:
        """Moves the start of the log to `offset`, which lies in the first segment; see `replay_start`.

        Raises:
            LedgerFenced: somebody else has claimed the chain, perhaps; nothing changed.
        """
        segment, compare = segments[0], [self._topic_lives]

        def place() -> tuple[EntryId, int]:
            with segment.view() as view:
                entry, slot = segment.entry_of(view, offset), 0
                if entry <= segment.ledger.last_add_confirmed:
                    with suppress(DigestMismatch):
                        slot = max(0, offset - segment.header(view, entry).base_offset)
                return entry, slot

        entry, slot = await read_from_memory(place)
        cut = self._put_cut(Cut(segment.base_offset, entry, slot, offset))
        if segment is segments[-1]:
            entry = EntryId(min(entry, replay_from))
        elif claim_stands := await self._claim_stands(segments[-1]):
            compare.append(claim_stands)
        else:
            raise LedgerFenced(f"nothing was deleted before offset {offset}: the log may have another writer")
        await self.shrink(segment, entry, offset, compare=compare, also=(cut,))
        log.trim(offset)

    @staticmethod
    async def shrink(
        segment: Segment,
        end_entry: EntryId,
        start_offset: Offset,
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Gives up the entries of the first segment below `end_entry`; the log starts at `start_offset` from now on."""
        properties = {**segment.ledger.properties, START_OFFSET: start_offset}
        await segment.ledger.shrink(end_entry, properties=properties, compare=compare, also=also)


def _unchanged(item: KeyValue) -> Compare:
    return Compare(item.key, Field.MOD_REVISION, item.mod_revision)


async def all_segments(metadata: Metadata) -> AsyncGenerator[tuple[uuid.UUID, int, list[tuple[int, int]]], None]:
    """Every partition that has segments: topic, number, and what retention goes by; one read, and others go on.

    Yields:
        Per partition its sealed segments from the oldest on, each as (bytes, time of the youngest record); then the one
        being written as (0, when it began). Its record says no more: once that is long ago, only opening it tells.
    """
    found = await metadata.range(ledger_key(PARTITIONS))
    for count, (topic, partition, items) in enumerate(_by_partition(found.items)):
        if count % PARTITIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        *sealed, last = (decode_record(item.value) for item in items)
        segments = [*map(size_and_youngest, sealed), (0, last.properties[CREATED_MS])]
        yield topic, partition, segments


def _by_partition(ledgers: Iterable[KeyValue]) -> Iterator[tuple[uuid.UUID, int, list[KeyValue]]]:
    """Topic, number and segments of each partition; what is only called like a segment is passed over."""
    for prefix, items in groupby(ledgers, lambda item: item.key.rpartition("/")[0]):
        named = _PREFIX.fullmatch(prefix)
        if named is not None:
            yield uuid.UUID(named[1]), int(named[2]), list(items)


async def written_partitions(metadata: Metadata, topic_id: uuid.UUID) -> list[int]:
    """The numbers of a topic's partitions that have segments; one read."""
    found = await metadata.range(ledger_key(ledgers_prefix(topic_id)))
    return list(dict.fromkeys(int(item.key.split("/")[-2]) for item in found.items))


async def stored_bytes(metadata: Metadata, bookies: Bookies, entries: EntryCache) -> dict[tuple[uuid.UUID, int], int]:
    """The bytes of batches of every partition that has segments, by topic and number; one read, and opens nothing.

    Of the segment being written, what its bookies have counts, snapshots too, until somebody opens it; nothing where
    they cannot be asked.
    """
    found = await metadata.range(ledger_key(PARTITIONS))
    sizes = {}
    for count, (topic, partition, items) in enumerate(_by_partition(found.items)):
        if count % PARTITIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        *sealed, last = items
        size = sum(size_and_youngest(decode_record(item.value))[0] for item in sealed)
        sizes[topic, partition] = size + await _written_bytes(adopt_ledger(metadata, bookies, last), entries)
    return sizes


async def _written_bytes(ledger: Ledger, entries: EntryCache) -> int:
    if is_local(ledger):
        with ledger.view() as view:
            assert view is not None, f"the bookie of ledger {ledger.name!r} has left this process"
            last, payload_bytes = view.end()
    else:
        try:
            last, payload_bytes = await entries.end(ledger)
        except LedgerError:
            return 0
    return max(0, payload_bytes - HEADER_BYTES * (last + 1))
