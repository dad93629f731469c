"""Plans a batch read: the partitions, the offsets of each, and the tasks.

1. The plan is fixed when it is made: records that arrive later, and partitions that are added later, are not read.
2. Offsets that were asked for and are not in the log are lost data: an error, or with `failOnDataLoss=false` a warning,
   and the plan has the offsets that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from gnomon.client.addresses import Address
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import Range
from gnomon.spark.offsets import EARLIEST, LATEST, BadOption
from gnomon.spark.options import Bound, SourceOptions
from gnomon.spark.splits import cut

TASK_VERSION: Final = 1


class DataLost(Exception):
    """Records that were to be read are not in the log any more; the text names the offsets."""


class Task(NamedTuple):
    """One task's part of a read, as it is sent to a worker."""

    version: int
    addresses: tuple[Address, ...]
    topic_id: UUID
    range: Range
    columns: tuple[str, ...]
    batch_bytes_max: int


async def plan(
    cluster: KafkaBrokers, options: SourceOptions, columns: Iterable[str], warn: Callable[[str], None]
) -> list[Task]:
    """The tasks of a batch read.

    Args:
        columns: names of `columns.SCHEMA`.
        warn: is called with each loss of data that is not an error.

    Raises:
        BadOption: the offsets of the options are not those of these partitions.
        DataLost: see invariant 2.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    ids = await partitions_of(cluster, options)
    earliest = _known(await find_offsets(cluster, dict.fromkeys(ids, EARLIEST)))
    latest = _known(await find_offsets(cluster, dict.fromkeys(ids, LATEST)))
    starts = await _resolved(cluster, options.starting, earliest, latest, none_is_end=options.late_start_is_latest)
    ends = await _resolved(cluster, options.ending, earliest, latest, none_is_end=True)
    ranges = []
    for place in sorted(ids):
        start, stop = starts[place], ends[place]
        kept_start, kept_stop = max(start, earliest[place]), min(stop, latest[place])
        if start > stop or (start, stop) != (kept_start, kept_stop):
            lost = (
                f"partition {place.partition} of topic {place.topic!r}: the read is of offsets {start} to {stop}, the"
                f" log has {earliest[place]} to {latest[place]}"
            )
            if options.fail_on_data_loss:
                raise DataLost(f"{lost}; failOnDataLoss=false reads the offsets that are left")
            warn(lost)
        ranges.append(Range(*place, kept_start, kept_stop))
    names = tuple(columns)
    return [
        Task(TASK_VERSION, options.addresses, ids[TopicPartition(*each[:2])], each, names, options.batch_bytes_max)
        for each in cut(ranges, options.tasks_min, options.task_records_max)
    ]


async def partitions_of(cluster: KafkaBrokers, options: SourceOptions) -> dict[TopicPartition, UUID]:
    """The partitions that the options name, each with the id of its topic.

    Raises:
        BadOption: a topic does not have one of the assigned partitions.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    if options.pattern is not None:
        topics = await cluster.retried("", cluster.topics)
        topics = {name: topic for name, topic in topics.items() if options.pattern.fullmatch(name)}
    else:
        names = sorted(set(options.topics or [place.topic for place in options.assigned or ()]))
        topics = await cluster.retried("", lambda: cluster.topics(names))
    found = {TopicPartition(name, number): topic.id for name, topic in topics.items() for number in topic.leaders}
    if options.assigned is None:
        return found
    missing = [place for place in options.assigned if place not in found]
    if missing:
        raise BadOption(f"assign: topic {missing[0].topic!r} has no partition {missing[0].partition}")
    return {place: found[place] for place in options.assigned}


async def _resolved(
    cluster: KafkaBrokers,
    bound: Bound,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    none_is_end: bool,
) -> dict[TopicPartition, int]:
    """The offset of each partition that a bound means."""
    numbers = dict.fromkeys(earliest, bound.default) if bound.default is not None else dict(bound.each)
    if numbers.keys() != earliest.keys():
        text = "missing: {}; unknown: {}".format(
            *(
                ", ".join(f"{place.topic}-{place.partition}" for place in sorted(places)) or "none"
                for places in (earliest.keys() - numbers.keys(), numbers.keys() - earliest.keys())
            )
        )
        raise BadOption(f"{bound.option}: give each partition that is read ({text}); -1 is the end, -2 the start")
    if bound.is_time:
        found = await find_offsets(cluster, numbers)
        for place, offset in sorted(found.items()):
            if offset is None and not none_is_end:
                raise BadOption(
                    f"{bound.option}: partition {place.partition} of topic {place.topic!r} has no record from"
                    f" {numbers[place]} ms on; startingOffsetsByTimestampStrategy=latest starts at its end"
                )
        return {place: latest[place] if offset is None else offset for place, offset in found.items()}
    ends = {EARLIEST: earliest, LATEST: latest}
    return {place: ends[number][place] if number in ends else number for place, number in numbers.items()}


def _known(found: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """The start and the end of a log are always known."""
    return {place: offset for place, offset in found.items() if offset is not None}
