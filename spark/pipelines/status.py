"""The state of a pipeline, from its checkpoint, its table and its topics; nothing needs Spark."""

from __future__ import annotations

from typing import NamedTuple

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.spark.offsets import flat
from gnomon.spark.options import SourceOptions
from gnomon.spark.pipelines.backlog import PartitionBacklog, backlog_of
from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.settings.settings import SourceSettings
from gnomon.spark.tables.table import LakeTable, TableBatch


class PipelineStatus(NamedTuple):
    """The state of a pipeline."""

    query: str | None
    """The id of its query; None if it has not run since the last reset."""
    generation: int
    """The number of resets."""
    batch: int | None
    """The last batch that has ended."""
    table_batch: TableBatch | None
    """The last batch in the table. It may be one more than `batch`, or that of a query before a reset."""
    backlog: list[PartitionBacklog]

    @property
    def lag(self) -> int:
        """The most records that are left to read."""
        return sum(each.records for each in self.backlog)


def options_of(source: SourceSettings, checkpoint: Checkpoint) -> SourceOptions:
    """The options of the stream that reads a pipeline's topics; raises BadOption."""
    starting = checkpoint.generation.starting or source.starting
    return SourceOptions.parse({**source.options, **starting, **source.ending}, streaming=True)


async def status_of(
    cluster: KafkaBrokers, source: SourceSettings, checkpoint: Checkpoint, table: LakeTable
) -> PipelineStatus:
    """The state of a pipeline; raises as `backlog_of` and `LakeTable.last`."""
    batch = checkpoint.committed()
    read = checkpoint.first() if batch is None else flat(checkpoint.offsets(batch))
    backlog = await backlog_of(cluster, options_of(source, checkpoint), read)
    return PipelineStatus(checkpoint.query(), checkpoint.generation.number, batch, table.last(), backlog)
