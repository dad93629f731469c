"""The chain of ledgers of one partition: finds, claims, rolls and drops its segments.

1. Each ledger is named after its base offset, so that one range read returns the whole chain in order.
2. Only the last ledger of a chain takes entries. All others are sealed, and their records name their ends.
3. An opening writes to the metadata once: it claims the last ledger, which raises the leader epoch, or creates the
   first one.
4. If the log does not start at the beginning of its first segment, that segment's record names the start.
5. No ledger is created for a deleted topic: the creation of the first ledger compares the topic's record.
6. A transaction that drops records which some subscription possibly has not read also stores the place up to which it
   drops (`log/cut.py`).
7. The transaction of a claim compares the record of the first segment, and a drop at the front compares the record of
   the last one. So of a concurrent claim and drop one fails. A replaced leader serves the log until it learns of the
   new claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from gnomon.bookie.errors import DigestMismatch, LedgerFenced
from gnomon.bookie.ledgers.catalog import (
    SINGLE,
    Bookies,
    EntryCache,
    EntryId,
    NotInMemory,
    Quorum,
    adopt_ledger,
    claim_ledger,
    create_ledger,
    delete_ledgers,
    read_from_memory,
)
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.broker.partition.log import PartitionLog, PartitionSettings
from gnomon.log.cut import Cut, cut_key
from gnomon.log.entry import EntryHeader, LeaderEpoch, Offset, UnknownEntry
from gnomon.log.last_record import last_sn
from gnomon.log.log_reader import read_header
from gnomon.log.segment import Segment
from gnomon.log.segment_record import (
    BATCHES_BYTES,
    CREATED_MS,
    EPOCH,
    LAST_RECORD,
    MAX_TIMESTAMP,
    NEXT_OFFSET,
    START_OFFSET,
    YOUNGEST_MS,
    parse_segment_name,
    segment_name,
)
from gnomon.log.sn import SN
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, Operation, Put, Revision


class Chain:
    """The chain of ledgers of one partition; `topic_key` and `topic_revision` identify the life of its topic."""

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
            quorum: of the ledgers that this broker creates.
            claimant: comparisons that must hold for this broker to open the chain, part of the opening's transaction.
        """
        self._metadata = metadata
        self._bookies = bookies
        self._entries = entries
        self._prefix = prefix
        self._quorum = quorum
        self._claimant = tuple(claimant)
        self._topic_lives = Compare(topic_key, KeyField.CREATE_REVISION, topic_revision)

    def _name(self, base_offset: Offset) -> str:
        return segment_name(self._prefix, base_offset)

    async def open(self, settings: PartitionSettings, now_ms: int) -> tuple[PartitionLog, list[Segment]]:
        """Claims the chain and restores the state of its log: one metadata read, one metadata write.

        Raises:
            LedgerError, MetadataError, WorldError: it could not be opened; trying again is safe.
        """
        found = await self._metadata.range(ledger_key(self._prefix))
        if not found.items:
            segment = await self._begin(now_ms)
            return PartitionLog(LeaderEpoch(0), Offset(0), Offset(0), settings), [segment]
        for item in found.items:
            parse_segment_name(item.key)  # raises before the claim if a ledger is not a segment
        *sealed, newest = found.items
        segments = [self._adopt(item) for item in sealed]
        last = await self._claim(newest, [_unchanged(item) for item in sealed[:1]])
        segments.append(last)
        first = segments[0]
        start = Offset(max(first.base_offset, first.ledger.properties.get(START_OFFSET, 0)))
        log = PartitionLog(LeaderEpoch(last.ledger.properties[EPOCH]), start, last.base_offset, settings)
        await self._restore(log, segments, now_ms)
        log.found(await last_sn(segments, log.next_offset))
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
        segment = Segment(ledger, parse_segment_name(ledger.name).base_offset, self._entries)
        segment.sealed_as_recorded()
        return segment

    async def _claim(self, item: KeyValue, compare: Sequence[Compare]) -> Segment:
        before = adopt_ledger(self._metadata, self._bookies, item).properties
        properties = {**before, EPOCH: before[EPOCH] + 1}
        compare = (*self._claimant, *compare)
        ledger = await claim_ledger(self._metadata, self._bookies, item, properties=properties, compare=compare)
        return Segment(ledger, parse_segment_name(ledger.name).base_offset, self._entries)

    @classmethod
    async def _restore(cls, log: PartitionLog, segments: list[Segment], now_ms: int) -> None:
        """Moves the log to its end, and replays the producers from their last snapshot.

        A segment without entries has no snapshot either: then the producers of the segment before it are replayed. That
        one has no entries if all its records were deleted while no producer was known.
        """
        last = segments[-1]
        ledger = last.ledger
        if _has_entries(last):
            header = await cls._replay(log, last, now_ms)
            # A segment with nothing except a snapshot must not roll: the next ledger would have the same name.
            first_ms = ledger.properties[CREATED_MS] if header.next_offset > last.base_offset else None
            log.restore(header, ledger.last_add_confirmed, ledger.length_bytes, first_ms, now_ms)
            return
        log.next_offset = log.high_watermark = max(log.start_offset, last.base_offset)
        if len(segments) > 1:
            if _has_entries(segments[-2]):
                await cls._replay(log, segments[-2], now_ms)
            log.begin_segment()

    @staticmethod
    async def _replay(log: PartitionLog, segment: Segment, now_ms: int) -> EntryHeader:
        ledger = segment.ledger
        last = ledger.last_add_confirmed

        def replay() -> EntryId:
            with segment.view() as view:
                for number in map(EntryId, range(entry, last + 1)):
                    try:
                        found, body = segment.entry(view, number)
                    except NotInMemory:
                        if number == entry:
                            raise
                        return number
                    _replay_one(log, found, body, now_ms, number, ledger.name)
            return EntryId(last + 1)

        header = await read_header(segment, last)
        entry = EntryId(max(header.replay_from, ledger.start_entry))
        while entry <= last:
            entry = await read_from_memory(replay)
        return header

    async def ask(self) -> None:
        """Reads from the metadata service, to find out whether it answers.

        Raises:
            MetadataError: it does not answer.
        """
        await self._metadata.get(self._topic_lives.key)

    async def is_ours(self, last: Segment) -> bool:
        """Whether this broker's claim of the chain is the newest; False if that is not certain.

        Raises:
            LedgerFenced: there is a newer claim, perhaps by this broker itself.
            MetadataError: the metadata service does not answer.
        """
        found = await self._metadata.get(ledger_key(last.ledger.name))
        if found is None:
            return False
        now, claimed = decode_record(found.value), last.ledger.record
        if now.session > claimed.session:
            raise LedgerFenced(f"ledger {last.ledger.name!r} has another writer by now, according to the metadata")
        return not now.sealed and now.session == claimed.session

    async def claim_unchanged(self, last: Segment) -> Compare:
        """A comparison that holds until the next claim of the chain.

        Raises:
            LedgerFenced: there may be a newer claim already.
        """
        found = await self._metadata.get(ledger_key(last.ledger.name))
        if found is None or decode_record(found.value).session != last.ledger.record.session:
            raise LedgerFenced(f"nothing was deleted: ledger {last.ledger.name!r} may have another writer by now")
        return _unchanged(found)

    async def roll(self, log: PartitionLog, segment: Segment, now_ms: int) -> Segment:
        """Seals the last segment and creates the next one, in one transaction; no append may happen meanwhile."""
        sealed = {
            **segment.ledger.properties,
            NEXT_OFFSET: log.next_offset,
            MAX_TIMESTAMP: log.segment_max_timestamp,
            YOUNGEST_MS: log.segment_youngest_ms,
            BATCHES_BYTES: log.segment_bytes,
        }
        ledger = await segment.ledger.roll(
            self._name(log.next_offset),
            properties={EPOCH: log.epoch, CREATED_MS: now_ms, LAST_RECORD: log.sn.encode()},
            sealed_properties=sealed,
            quorum=self._quorum,
        )
        segment.sealed(log.next_offset, log.segment_max_timestamp, log.segment_youngest_ms, log.segment_bytes)
        return Segment(ledger, log.next_offset, self._entries)

    @staticmethod
    async def replay_start(log: PartitionLog, last: Segment) -> EntryId:
        """The entry of the last segment from which a restart replays the producers: it is durable on return.

        Raises:
            LedgerError: the snapshot in flight could not be stored.
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
        """Drops sealed segments at the front of the chain, in one transaction.

        The first of them may be gone already, if an earlier deletion with an unknown outcome took effect.

        Args:
            last: the segment that this broker has claimed.
            read_by_all: comparisons that hold if every subscription has read the segments; None if that is not known.

        Returns:
            False if nothing was deleted: the topic is deleted, one of the segments or the last one was changed
            meanwhile, or a comparison failed.

        Raises:
            LedgerFenced: another broker may have claimed the chain; nothing was deleted.
        """
        found = [await self._metadata.get(ledger_key(segment.ledger.name)) for segment in segments]
        items = [item for item in found if item is not None]
        compare = (self._topic_lives, await self.claim_unchanged(last))
        if read_by_all is not None:
            return await delete_ledgers(self._metadata, items, compare=(*compare, *read_by_all))
        end = segments[-1]
        assert end.next_offset is not None, "only sealed segments are dropped"
        cut = Cut(end.base_offset, end.ledger.last_add_confirmed + 1, 0, end.next_offset)
        return await delete_ledgers(self._metadata, items, compare=compare, also=(self._put_cut(cut),))

    def _put_cut(self, cut: Cut) -> Put:
        return Put(cut_key(self._prefix), cut.encode())

    async def cut_first(self, log: PartitionLog, segments: list[Segment], offset: Offset, replay_from: EntryId) -> None:
        """Moves the start of the log to `offset`, which lies in the first segment; see `replay_start`.

        Raises:
            LedgerFenced: another broker may have claimed the chain; nothing was changed.
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
            last = await last_sn(segments, offset)
        else:
            compare.append(await self.claim_unchanged(segments[-1]))
            last = None
        await self.shrink(segment, entry, offset, last, compare=compare, also=(cut,))
        log.trim(offset)

    @staticmethod
    async def shrink(
        segment: Segment,
        end_entry: EntryId,
        start_offset: Offset,
        last: SN | None = None,
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Drops the entries of the first segment below `end_entry`; the log starts at `start_offset` from now on.

        Args:
            last: the SN of the record before `start_offset`, if no later segment records it.
        """
        properties = {**segment.ledger.properties, START_OFFSET: start_offset}
        if last is not None:
            properties[LAST_RECORD] = last.encode()
        await segment.ledger.shrink(end_entry, properties=properties, compare=compare, also=also)


def _replay_one(
    log: PartitionLog, header: EntryHeader, body: memoryview, now_ms: int, entry: EntryId, ledger: str
) -> None:
    try:
        log.replay(header, body, now_ms)
    except UnknownEntry as error:
        raise error.at(entry, ledger) from None


def _has_entries(segment: Segment) -> bool:
    return segment.ledger.last_add_confirmed >= segment.ledger.start_entry


def _unchanged(item: KeyValue) -> Compare:
    return Compare(item.key, KeyField.MOD_REVISION, item.mod_revision)
