"""Takes snapshots of a table in a storm, and deletes records of its log that a reader has kept.

The judge needs the whole log. So nothing is deleted that `BatchReader` has not read.
"""

from __future__ import annotations

import trio

import gnomon.client.errors as errors
from gnomon.client.client import connect
from gnomon.client.tables.table import Table
from gnomon.log.tables.changes import changes_of
from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.kafka.log_checker import LogHistory
from gnomon.testing.storms.kafka.log_clients import BATCH_BYTES_MAX, SimulatedConsumer
from gnomon.testing.storms.kafka.storm_clients import DELETE_RECORDS_VERSION, expect
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.tables.table_truth import LoggedBatch
from gnomon.wire.kafka.batch import HEADER_BYTES, parse_batch
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.fetch import PartitionData
from gnomon.wire.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TRIMS_A_SECOND = 0.7


class BatchReader(SimulatedConsumer):
    """Keeps the batches that it reads."""

    def __init__(self, cluster: WireCluster, topic: str, name: str) -> None:
        super().__init__(cluster, topic, 0, LogHistory(), name=name)
        self._batches: dict[int, bytes] = {}

    def _take(self, found: PartitionData) -> list[tuple[int, bytes]]:
        view = memoryview(found.records or b"")
        at = 0
        while len(view) - at >= HEADER_BYTES and len(view) - at >= 12 + int.from_bytes(view[at + 8 : at + 12], "big"):
            header = parse_batch(view, at)
            self._batches[header.base_offset] = bytes(view[at : at + header.size_bytes])
            at += header.size_bytes
        return super()._take(found)

    def kept(self) -> list[LoggedBatch]:
        """The batches, in order."""
        found = []
        for base_offset, data in sorted(self._batches.items()):
            view = memoryview(data)
            found.append(LoggedBatch(base_offset, changes_of(view, parse_batch(view), BATCH_BYTES_MAX).changes))
        return found


async def trim_table(cluster: WireCluster, addresses: str, topic: str, reader: BatchReader, seconds: float) -> None:
    """Takes snapshots and trims the log for `seconds`; a deletion beyond the newest snapshot must be refused."""
    clock, stream = cluster.world.clock, cluster.world.random(f"trims/{topic}")
    until = clock.monotonic() + seconds
    async with connect(addresses, world=cluster.world, name=f"trims-{topic}") as client:
        while clock.monotonic() < until:
            await clock.sleep(stream.expovariate(TRIMS_A_SECOND))
            with trio.move_on_after(max(0.0, until - clock.monotonic())):
                if stream.random() < 0.6:
                    await _take_snapshot(cluster, client.table(topic))
                await reader.read_all()
                await _delete_below(cluster, topic, round(reader.position * stream.choice((0.5, 1.0))))


async def _take_snapshot(cluster: WireCluster, table: Table) -> None:
    try:
        await table.snapshot()
    except (errors.NoSuchTopic, errors.Retriable, Unreachable):
        return
    cluster.world.logger.debug("table_snapshots")


async def _delete_below(cluster: WireCluster, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsTopic(name=topic, partitions=[partition])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=5000)
    connection = None
    try:
        connection = await cluster.leader(topic, 0)
        answer = await connection.request(request, DELETE_RECORDS_VERSION, DeleteRecordsResponse)
        code = answer.topics[0].partitions[0].error_code
        refused = expect(code, f"deletion of records below {offset}", ErrorCode.POLICY_VIOLATION)
        cluster.world.logger.debug("table_trim_refused" if refused else "table_trimmed", offset=offset)
    except Unreachable:
        pass
    finally:
        if connection is not None:
            connection.close()
