"""The records that a pipeline has not read yet, by partition."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import Range
from gnomon.spark.offsets import Offsets
from gnomon.spark.options import SourceOptions
from gnomon.spark.pipelines.tasks.decoding import READ_COLUMNS
from gnomon.spark.planning import bounds_of, partitions_of, resolved, tasks_of
from gnomon.spark.process import Connections
from gnomon.spark.reading import batches_of, decoded


class PartitionBacklog(NamedTuple):
    """One partition."""

    topic: str
    partition: int
    start: int
    """The start of the log."""
    position: int
    """The next offset that the pipeline reads."""
    end: int
    """The end of the log, or that of the pipeline's source."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def records(self) -> int:
        """The most records that are left; fewer if offsets have none."""
        return max(self.end - max(self.position, self.start), 0)


async def backlog_of(cluster: KafkaBrokers, options: SourceOptions, read: Offsets | None) -> list[PartitionBacklog]:
    """The backlog of each partition, in order.

    Args:
        read: the offsets at which the last batch ended; None for a pipeline that has not run. Partitions that were
            added later are read from their start.

    Raises:
        BadOption: the offsets of the options are not those of these partitions.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    places = await partitions_of(cluster, options)
    earliest, latest = await bounds_of(cluster, places)
    if read is None:
        read = await resolved(cluster, options.starting, earliest, latest, none_is_end=options.late_start_is_latest)
    ends = await resolved(cluster, options.ending, earliest, latest, none_is_end=True)
    return [
        PartitionBacklog(*place, earliest[place], read.get(place, earliest[place]), min(ends[place], latest[place]))
        for place in sorted(places)
    ]


async def first_offsets(cluster: KafkaBrokers, options: SourceOptions, recorded: Offsets | None) -> Offsets:
    """Where a pipeline starts that has finished no batch; raises as `backlog_of`.

    Args:
        recorded: where an earlier driver has started it. Partitions that were added since start at their beginning.
    """
    return {each.place: each.position for each in await backlog_of(cluster, options, recorded)}


async def first_records(
    connections: Connections, options: SourceOptions, backlog: list[PartitionBacklog], most: int
) -> pa.Table:
    """The first records of a backlog: so many at most, and as many of each partition that has some.

    Raises:
        UnreadableBatch, DataLost, RequestRefused, Unreachable: as `batches_of` and `decoded`.
    """
    some = [each for each in backlog if each.records]
    share = -(-most // (len(some) or 1))
    starts = [(each, max(each.position, each.start)) for each in some]
    ranges = [Range(*each[:2], start, min(start + share, each.end)) for each, start in starts]
    ids = await partitions_of(connections.brokers, options)
    found: list[pa.RecordBatch] = []
    for task in tasks_of(ranges, ids, options, READ_COLUMNS):
        parts = [part async for part in batches_of(connections.brokers, connections.bookies, task, _ignore)]
        found += list(decoded(task, parts))
    return pa.Table.from_batches(found).slice(0, most) if found else None


def _ignore(_text: str) -> None:
    """Reads through brokers have no plan to be warned of."""
