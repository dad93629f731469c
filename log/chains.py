"""Reads the chains of ledgers of all partitions from the metadata, and claims no ledger."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from itertools import groupby

import trio

from gnomon.bookie.errors import LedgerError, UnreadableRecord
from gnomon.bookie.ledgers.catalog import Bookies, EntryCache, Ledger, adopt_ledger, is_local
from gnomon.bookie.record import LedgerRecord, decode_record, ledger_key
from gnomon.log.chain_image import ChainImage
from gnomon.log.entry import HEADER_BYTES
from gnomon.log.segment import Segment
from gnomon.log.segment_record import CREATED_MS, is_segment_name, size_and_youngest
from gnomon.metadata.client import KeyValue, Metadata
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock

PARTITIONS = "topics/"
"""Prefix of the names of all partitions' ledgers."""
_PREFIX = re.compile(f"{ledger_key(PARTITIONS)}([0-9a-f]{{32}})/([0-9]+)")
RECORDS_PER_TURN = 300
"""Records of ledgers that are decoded in one turn of the event loop."""
PARTITIONS_PER_TURN = 100
"""A loop over all partitions yields to other tasks after this many."""


def ledgers_prefix(topic_id: uuid.UUID, partition: int | None = None) -> str:
    """The prefix of the names of a topic's (or of one partition's) ledgers."""
    return f"{PARTITIONS}{topic_id.hex}/" if partition is None else f"{PARTITIONS}{topic_id.hex}/{partition}/"


async def all_segments(metadata: Metadata) -> AsyncGenerator[tuple[uuid.UUID, int, list[tuple[int, int]]], None]:
    """Every partition that has segments: topic, number, and the facts for retention; one read, and other tasks run
    meanwhile.

    Yields: Per partition its sealed segments from the oldest on, each as (bytes, time of the youngest record); then the
    open segment as (0, its creation time): the record of an open segment has no other facts.
    """
    found = await metadata.range(ledger_key(PARTITIONS))
    for count, (topic, partition, items) in enumerate(_by_partition(found.items)):
        if count % PARTITIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        *sealed, last = (decode_record(item.value) for item in items)
        segments = [*map(size_and_youngest, sealed), (0, last.properties[CREATED_MS])]
        yield topic, partition, segments


def _by_partition(ledgers: Iterable[KeyValue]) -> Iterator[tuple[uuid.UUID, int, list[KeyValue]]]:
    """Topic, number and segments of each partition; ledgers whose name is not a segment's are skipped."""
    segments = (item for item in ledgers if is_segment_name(item.key))
    for prefix, items in groupby(segments, lambda item: item.key.rpartition("/")[0]):
        named = _PREFIX.fullmatch(prefix)
        if named is not None:
            yield uuid.UUID(named[1]), int(named[2]), list(items)


def take_chain(
    segments: list[Segment], image: ChainImage, metadata: Metadata, bookies: Bookies, entries: EntryCache
) -> None:
    """Replaces `segments` by those of an image, in place; known ledgers keep their handles."""
    known = {segment.ledger.id: segment for segment in segments}
    found = []
    for item in image.segments:
        segment = known.get(item.ledger)
        if segment is None:
            segment = Segment(adopt_ledger(metadata, bookies, item.stored), item.base_offset, entries)
        else:
            segment.ledger.take_record(item.stored)
        if item.record.sealed and segment.next_offset is None:
            segment.sealed_as_recorded()
        found.append(segment)
    segments[:] = found


def partition_of(key: str) -> tuple[uuid.UUID, int] | None:
    """The topic id and number of the partition that a ledger's key belongs to; None for a ledger of no partition."""
    named = _PREFIX.match(key)
    return None if named is None else (uuid.UUID(named[1]), int(named[2]))


async def records_of(
    metadata: Metadata, topic_id: uuid.UUID | None, clock: Clock
) -> AsyncGenerator[tuple[tuple[uuid.UUID, int], LedgerRecord]]:
    """The partition and the record of each ledger of a topic, or of all topics; one read, and other tasks run
    meanwhile. Records that cannot be read are left out."""
    found = await metadata.range(ledger_key(PARTITIONS if topic_id is None else ledgers_prefix(topic_id)))
    async for item in paced(found.items, RECORDS_PER_TURN, clock):
        partition = partition_of(item.key)
        if partition is not None:
            with suppress(UnreadableRecord):
                yield partition, decode_record(item.value)


async def written_partitions(metadata: Metadata, topic_id: uuid.UUID) -> list[int]:
    """The numbers of a topic's partitions that have segments; one read."""
    found = await metadata.range(ledger_key(ledgers_prefix(topic_id)))
    return list(dict.fromkeys(int(item.key.split("/")[-2]) for item in found.items))


async def stored_bytes(metadata: Metadata, bookies: Bookies, entries: EntryCache) -> dict[tuple[uuid.UUID, int], int]:
    """The bytes of batches of every partition that has segments, by topic and number; one read, and opens nothing.

    The open segment counts with the bytes that its bookies have, including snapshots, until it is opened; with 0 if
    they do not answer.
    """
    found = await metadata.range(ledger_key(PARTITIONS))
    sizes = {}
    for count, (topic, partition, items) in enumerate(_by_partition(found.items)):
        if count % PARTITIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        *sealed, last = items
        size = sum(size_and_youngest(decode_record(item.value))[0] for item in sealed)
        sizes[topic, partition] = size + await written_bytes(adopt_ledger(metadata, bookies, last), entries)
    return sizes


async def written_bytes(ledger: Ledger, entries: EntryCache) -> int:
    """The bytes of batches, including snapshots, that the bookies of an open segment have; 0 if they do not answer."""
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
