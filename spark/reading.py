"""Reads the range of one task into Arrow record batches: from the bookies of its plan, or through brokers.

1. Both ways yield the same rows.
2. A range with a plan is read through brokers from the first entry on that the bookies of the plan do not have: its
   copies have moved since, or were deleted. The leader knows the newest records.
3. Offsets that were deleted since the plan was made are lost data (`planning`, invariant 2). So are all that are left
   of a topic that was deleted: one that was created again under its name is another topic.
4. The number of rows is that of the headers of the batches (`row_count`).

Batches are read in the Trio thread and decoded in the thread of the task. So the next ones arrive meanwhile, and slow
decoding does not make a bookie look silent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import pyarrow as pa

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.fetching import read_batches
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import EARLIEST, TopicPartition
from gnomon.log.entry import Offset
from gnomon.log.plans.planned_bookies import PlannedBookies
from gnomon.log.plans.planned_entries import Lost, PlanOutdated
from gnomon.log.plans.planned_read import read_planned
from gnomon.runtime.world import Unreachable
from gnomon.spark.columns import ColumnDecoder, Range
from gnomon.spark.planning import report_loss
from gnomon.spark.row_count import RowCount
from gnomon.spark.task import Task
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.errors import ErrorCode


def decoded(task: Task, parts: Iterable[Sequence[memoryview]]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the order of their offsets.

    Args:
        parts: all batches of the task, in order (`batches_of`).

    Raises:
        UnreadableBatch: a batch of the range.
        WrongRowCount: see invariant 4.
    """
    decoder = ColumnDecoder(task.range, task.columns, batch_bytes_max=task.batch_bytes_max)
    count = RowCount(task.range)
    for part in parts:
        for batch in part:
            rows = decoder.add(batch)
            count.batch(batch)
            if rows is not None:
                count.rows(rows.num_rows)
                yield rows
    rows = decoder.flush()
    if rows is not None:
        count.rows(rows.num_rows)
        yield rows
    count.check()


async def batches_of(
    cluster: KafkaBrokers, bookies: PlannedBookies, task: Task, warn: Callable[[str], None]
) -> AsyncGenerator[Sequence[memoryview], None]:
    """The batches with the offsets of a task; the first and the last may have more.

    Args:
        cluster: the brokers, which are asked only if the task has no plan, or an outdated one.
        bookies: those of all plans of this process.
        warn: is called with each loss of data that is not an error, and with the reason to leave the bookies.

    Raises:
        DataLost: see invariant 3.
        UnreadableEntry: all copies of an entry are damaged, or the entry is not the one that the plan says.
        MalformedBatch, RequestRefused, Unreachable: as `read_batches`.
    """
    wanted, plan = task.range, task.plan
    lost = partial(_report_lost, wanted, task.fail_on_data_loss, warn)
    start: int = wanted.start
    outdated: PlanOutdated | None = None
    if plan is not None:
        known, stop = bookies.of(plan.cluster, plan.bookies), Offset(wanted.stop)
        reading = read_planned(known, _name(wanted), plan.segments, Offset(start), stop, lost)
        try:
            async with aclosing(reading) as runs:
                async for batches in runs:
                    yield batches
            return
        except PlanOutdated as error:
            warn(f"{error}; the rest is read through brokers")
            outdated, start = error, error.offset
    try:
        async with aclosing(_from_brokers(cluster, task, start, lost)) as parts:
            async for part in parts:
                yield part
    except (RequestRefused, Unreachable) as error:
        if outdated is not None:
            error.add_note(f"Brokers were asked because of this: {outdated}")
        raise


async def _from_brokers(
    cluster: KafkaBrokers, task: Task, start: int, lost: Lost
) -> AsyncGenerator[Sequence[memoryview], None]:
    """The batches of the range from `start` on; raises as `read_batches` and `lost`."""
    place, stop = TopicPartition(task.range.topic, task.range.partition), task.range.stop
    read = start
    while start < stop and await _is_there(cluster, task):
        try:
            async with aclosing(read_batches(cluster, place, task.topic_id, start, stop)) as parts:
                async for part in parts:
                    # The log may begin inside a batch, whose other records are still there.
                    begin = min(start, parse_batch(part.batches[0]).base_offset)
                    if begin > read:
                        lost(Offset(read), Offset(begin))
                    read = start = part.next_offset
                    yield part.batches
        except RequestRefused as error:
            if not await _is_there(cluster, task):
                break
            earliest = await _earliest(cluster, place) if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else start
            if earliest <= start:
                raise
            start = earliest
    if read < stop:
        lost(Offset(read), Offset(stop))


async def _is_there(cluster: KafkaBrokers, task: Task) -> bool:
    """Whether the topic exists; raises as `KafkaBrokers.retried`."""
    name = task.range.topic
    found = await cluster.retried(name, lambda: cluster.topics([name], skip_unknown=True))
    return name in found and found[name].id == task.topic_id


async def _earliest(cluster: KafkaBrokers, place: TopicPartition) -> int:
    """The start of a log; raises as `find_offsets`."""
    found = (await find_offsets(cluster, {place: EARLIEST}))[place]
    assert found is not None, "a log has a start"
    return found


def _report_lost(
    wanted: Range, fail_on_data_loss: bool, warn: Callable[[str], None], first: Offset, stop: Offset
) -> None:
    loss = f"{_name(wanted)}: offsets {first} to {stop - 1} were deleted since the read was planned"
    report_loss(loss, stop - first, fail_on_data_loss, warn)


def _name(wanted: Range) -> str:
    return f"partition {wanted.partition} of topic {wanted.topic!r}"
