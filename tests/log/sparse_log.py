"""A log as a compaction would leave it: the batches of its sealed segments have fewer records than offsets."""

from __future__ import annotations

from collections.abc import Container

from crc32c import crc32c

from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import create_ledger
from gnomon.bookie.record import ledger_key
from gnomon.broker.partition.partition import Partition
from gnomon.log.chains import ledgers_prefix
from gnomon.log.entry import HEADER_BYTES, NO_TIMESTAMP, EntryKind, pack_header, unpack_header
from gnomon.log.segment_record import MAX_TIMESTAMP, segment_name
from gnomon.metadata.client import Delete
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker
from gnomon.wire.kafka.batch import CRC_FROM, HEADER, parse_batch
from gnomon.wire.kafka.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from gnomon.wire.kafka.compression import compress
from gnomon.wire.kafka.records import _encode_record, iterate_records


def cleaned(stored: memoryview, kept: Container[int]) -> bytes:
    """The batch without the records whose offsets are not in `kept`; it covers the same offsets."""
    header = parse_batch(stored)
    records = [one for one in iterate_records(stored, 1 << 20) if header.base_offset + one.offset_delta in kept]
    body = compress(header.compression, b"".join(map(_encode_record, records)))
    latest = max((header.base_timestamp + one.timestamp_delta for one in records), default=NO_TIMESTAMP)
    changed = header._replace(
        length=BATCH_HEADER_BYTES - 12 + len(body),
        records_count=len(records),
        max_timestamp=header.max_timestamp if header.is_log_append_time and records else latest,
    )
    head = HEADER.pack(*changed)
    crc = crc32c(body, crc32c(head[CRC_FROM:]))
    return b"".join((head[: CRC_FROM - 4], crc.to_bytes(4, "big"), head[CRC_FROM:], body))


async def clean(broker: EmbeddedBroker, partition: Partition, kept: Container[int]) -> None:
    """Replaces all sealed segments of the topic `orders` with one ledger that has the records in `kept`."""
    inside = broker.serving.broker
    prefix = ledgers_prefix(inside.topics.find("orders").id, 0)
    old = partition.segments[:-1]
    name = segment_name(prefix, old[0].base_offset, 1)
    ledger = await create_ledger(inside.storage.metadata, inside.storage.bookies, name)
    largest = NO_TIMESTAMP
    for segment in old:
        for payload in await segment.ledger.read(EntryId(0), segment.ledger.last_add_confirmed):
            header, body = unpack_header(memoryview(payload)), payload[HEADER_BYTES:]
            if header.kind != EntryKind.BATCH:
                continue
            batch = cleaned(memoryview(body), kept)
            largest = max(largest, parse_batch(memoryview(batch)).max_timestamp)
            await ledger.add((pack_header(*header._replace(max_timestamp=largest, replay_from=0)[:-1]), batch))
    properties = {**old[-1].ledger.properties, MAX_TIMESTAMP: largest}
    await ledger.seal(properties, also=[Delete(ledger_key(segment.ledger.name)) for segment in old])
