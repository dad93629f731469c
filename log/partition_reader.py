"""Reads a topic partition straight from its bookies, without a broker: opens it, and yields its batches in order.

async with connect_ledgers("10.0.0.1:4001") as ledgers:
    reader = await open_partition(ledgers.metadata, ledgers.bookies, "orders", 0)
    async with aclosing(reader.batches()) as batches:
        async for batch in batches:
            print(batch.base_offset, batch.records)

1. A reader claims and fences nothing, and writes neither to bookies nor to the metadata.
2. A reader returns only confirmed entries, each once, in order.
3. An unreadable entry is an error; a reader skips nothing.
4. A shadow is read from its source's ledgers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import trio

from gnomon.bookie.errors import LedgerError, NoSuchLedger
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import Bookies, EntryCache, LocalViews, read_from_memory
from gnomon.bookie.record import ledger_key
from gnomon.log.chain_image import ChainImage
from gnomon.log.chains import ledgers_prefix, take_chain
from gnomon.log.entry import LeaderEpoch, Offset
from gnomon.log.log_positions import LogPositions
from gnomon.log.log_reader import LogReader, read_header
from gnomon.log.segment import Segment
from gnomon.log.topic import Topic, topic_key
from gnomon.log.topic_name import plain_name
from gnomon.metadata.client import Metadata
from gnomon.runtime.logs import SilentLogger

CACHE_BYTES_MAX: Final = 8 << 20
CONFIRMED_SECONDS: Final = 2.0
"""Time that bookies have to answer with the last add confirmed of a ledger; later answers are ignored."""
FIRST_LEDGER_SECONDS: Final = 0.5
"""The interval at which a follower looks for the first ledger of a partition without any."""


class NoSuchPartition(LookupError):
    """The topic or the partition does not exist, or was deleted while it was read."""


class OffsetNotInLog(LookupError):
    """The log has no such offset, or no longer has it."""


class PartitionBatch(NamedTuple):
    """One record batch as it is stored, and the watermarks of the log when it was given."""

    base_offset: Offset
    next_offset: Offset
    """The offset after the last one that the batch covers."""
    leader_epoch: LeaderEpoch
    records: bytes
    """The batch in Kafka's format, with its header; `wire.kafka.records.iterate_records` reads it."""
    high_watermark: Offset
    last_stable_offset: Offset


async def open_partition(
    metadata: Metadata, bookies: Bookies, topic: str, partition: int, *, cache_bytes_max: int = CACHE_BYTES_MAX
) -> PartitionReader:
    """Opens a topic partition for reading.

    Args:
        metadata: the cluster's metadata.
        bookies: the cluster's bookies; a bookie may be down as long as others hold its entries.
        topic: its name, with or without its namespace; a shadow is read from its source's ledgers.
        partition: its number, from 0 on.
        cache_bytes_max: entries that are kept in memory, which bounds how much is read ahead.

    Raises:
        NoSuchPartition: there is no such topic, or it has fewer partitions.
        InvalidTopicName: no topic can have this name.
        NotASegment: a ledger among those of the partition is none of its segments.
        LedgerError: the end of the log cannot be read: too few bookies answer, or the entry is of a newer gnomon.
        MetadataError: the metadata does not answer.
    """
    name = plain_name(topic)
    found = await _read_topic(metadata, name)
    if found is None:
        raise NoSuchPartition(f"there is no topic {name!r}")
    written = found
    if found.source is not None:
        source = await _read_topic(metadata, found.source.name)
        if source is None or source.id != found.source.id:
            raise NoSuchPartition(f"topic {name!r} is a shadow of {found.source.name!r}, which was deleted")
        written = source
    if not 0 <= partition < written.partitions:
        raise NoSuchPartition(
            f"topic {name!r} has {written.partitions} partitions, from 0 on: there is no partition {partition}"
        )
    reader = PartitionReader(metadata, bookies, written, partition, EntryCache(bookies, cache_bytes_max))
    await reader.refresh()
    return reader


async def _read_topic(metadata: Metadata, name: str) -> Topic | None:
    stored = await metadata.get(topic_key(name))
    return None if stored is None else Topic.decode(stored)


class PartitionReader:
    """One partition, as of the last refresh; `open_partition` makes it."""

    def __init__(self, metadata: Metadata, bookies: Bookies, topic: Topic, partition: int, entries: EntryCache) -> None:
        """The partition of this number of `topic`, which is no shadow; `refresh` reads the bounds of its log."""
        self.topic = topic
        """The topic whose ledgers are read: of a shadow its source."""
        self.partition = partition
        self.last_stable_offset = Offset(0)
        """The end of the log for a reader of committed records."""
        self._metadata, self._bookies, self._entries = metadata, bookies, entries
        self._image = ChainImage()
        self._log = LogReader(SilentLogger())
        self._positions = LogPositions(self._image, self._log)

    @property
    def start_offset(self) -> Offset:
        """The first offset that is kept."""
        return self._image.start_offset

    @property
    def high_watermark(self) -> Offset:
        """The end of the confirmed records."""
        return self._image.high_watermark

    async def refresh(self) -> None:
        """Reads the records of the partition's ledgers, and asks the bookies how far the last one is confirmed.

        Raises:
            NoSuchPartition: the topic was deleted.
            NotASegment, LedgerError, MetadataError: as `open_partition`.
        """
        stored = await self._metadata.get(topic_key(self.topic.name))
        if stored is None or Topic.decode(stored).id != self.topic.id:
            raise NoSuchPartition(f"topic {self.topic.name!r} was deleted while it was read")
        found = await self._metadata.range(ledger_key(ledgers_prefix(self.topic.id, self.partition)))
        self._image.replace(found.items)
        take_chain(self._log.segments, self._image, self._metadata, self._bookies, self._entries)
        if self._log.segments:
            await self._log.segments[-1].ledger.ask_bookies(seconds=CONFIRMED_SECONDS)
        await self._look_at_end()

    async def _look_at_end(self) -> None:
        """Takes both watermarks from the last confirmed entry."""
        self.last_stable_offset = max(self.last_stable_offset, self.start_offset)
        for segment in reversed(self._log.segments):
            last = segment.ledger.last_add_confirmed
            if last >= segment.ledger.start_entry:
                header = await read_header(segment, last)
                self._image.confirmed(segment.base_offset, header)
                self.last_stable_offset = max(self.last_stable_offset, header.last_stable_offset)
                return

    async def batches(
        self, offset: Offset | None = None, *, follow_seconds: float = 0.0
    ) -> AsyncGenerator[PartitionBatch, None]:
        """The batches from the one that covers `offset` on, in order.

        Args:
            offset: where to begin, None for the start of the log. The first batch may begin before it.
            follow_seconds: how long each further batch is waited for at the end of the log. With 0 the generator ends
                at the high watermark of the last refresh.

        Raises:
            OffsetNotInLog: the log begins after `offset`, or ends before it; or retention has overtaken the reader.
            NoSuchPartition: the topic was deleted.
            LedgerError: an entry cannot be read; the text names it.
            MetadataError: the metadata does not answer.
        """
        at = self.start_offset if offset is None else offset
        if not self.start_offset <= at <= self.high_watermark:
            raise self._not_in_log(at)
        while at < self.high_watermark or await self._grown(at, follow_seconds):
            try:
                batch = await self._read(at)
            except LedgerError:
                await self.refresh()
                if at < self.start_offset:
                    raise self._not_in_log(at) from None
                batch = await self._read(at)
            at = batch.next_offset
            yield batch

    def _not_in_log(self, offset: int) -> OffsetNotInLog:
        return OffsetNotInLog(
            f"partition {self.partition} of topic {self.topic.name!r} has no offset {offset}: its log is from"
            f" {self.start_offset} to {self.high_watermark}"
        )

    async def _read(self, offset: Offset) -> PartitionBatch:
        def batch() -> PartitionBatch:
            with LocalViews() as views:
                found = self._positions.batch(offset, views)
                return PartitionBatch(
                    found.base_offset,
                    found.next_offset,
                    found.epoch,
                    bytes(found.records),
                    self.high_watermark,
                    self.last_stable_offset,
                )

        return await read_from_memory(batch)

    async def _grown(self, offset: Offset, seconds: float) -> bool:
        """Waits at the end of the log for at most `seconds`; returns whether the record at `offset` is there."""
        if seconds <= 0:
            return False
        with trio.move_on_after(seconds):
            while offset >= self.high_watermark:
                await self._wait_for_more()
        return offset < self.high_watermark

    async def _wait_for_more(self) -> None:
        segment: Segment | None = self._log.segments[-1] if self._log.segments else None
        if segment is None:
            await self._bookies.clock.sleep(FIRST_LEDGER_SECONDS)
        else:
            try:
                await segment.ledger.wait_for_lac(EntryId(segment.ledger.last_add_confirmed + 1))
            except NoSuchLedger:
                segment = None
        if segment is None or segment.ledger.record.sealed:
            await self.refresh()
        else:
            await self._look_at_end()
