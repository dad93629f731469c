"""Plans a batch read: the partitions, the offsets of each, and the tasks.

1. The plan is fixed when it is made: records that arrive later, and partitions that are added later, are not read.
2. Offsets that were asked for and are not in the log are lost data: an error, or with `failOnDataLoss=false` a warning
   with their number, and the plan has the offsets that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import EARLIEST, LATEST, TopicPartition
from gnomon.spark.bookie_plans import BookiePlans
from gnomon.spark.columns import Range
from gnomon.spark.offsets import BadOption
from gnomon.spark.options import Bound, SourceOptions
from gnomon.spark.splits import cut, cut_by_bytes
from gnomon.spark.task import PlanPart, Task

_NO_PARTS: Final[Mapping[TopicPartition, PlanPart]] = MappingProxyType({})


class DataLost(Exception):
    """Records that were to be read are not in the log any more; the text names the offsets."""


async def plan(
    cluster: KafkaBrokers, options: SourceOptions, columns: Iterable[str], warn: Callable[[str], None]
) -> list[Task]:
    """The tasks of a batch read.

    Args:
        columns: names of `columns.SCHEMA`.
        warn: is called with each loss of data that is not an error, and with each plan that a broker has refused.

    Raises:
        BadOption: the offsets of the options are not those of these partitions.
        DataLost: see invariant 2.
        NoBookies: as `BookiePlans.parts`.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    ids = await partitions_of(cluster, options)
    ranges = await ranges_of(cluster, options, ids, warn)
    parts = await BookiePlans(cluster, options, warn).parts(ranges, ids)
    return tasks_of(ranges, ids, options, columns, parts)


async def ranges_of(
    cluster: KafkaBrokers, options: SourceOptions, places: Iterable[TopicPartition], warn: Callable[[str], None]
) -> list[Range]:
    """The offsets of each partition that a batch read has, in order; arguments and errors are those of `plan`."""
    earliest, latest = await bounds_of(cluster, places)
    starts = await resolved(cluster, options.starting, earliest, latest, none_is_end=options.late_start_is_latest)
    ends = await resolved(cluster, options.ending, earliest, latest, none_is_end=True)
    return [
        kept(Range(*place, starts[place], ends[place]), earliest[place], latest[place], options, warn)
        for place in sorted(earliest)
    ]


def tasks_of(
    ranges: Sequence[Range],
    ids: Mapping[TopicPartition, UUID],
    options: SourceOptions,
    columns: Iterable[str],
    parts: Mapping[TopicPartition, PlanPart] = _NO_PARTS,
) -> list[Task]:
    """The tasks that read these ranges.

    Args:
        parts: the plans of partitions (`task.parts_of`), whose ranges are read from bookies. A task with
            other offsets than its plan, and one without a plan, is read through brokers.
    """
    names = tuple(columns)
    whole: list[Range] = []
    for each in ranges:
        part = _part(parts, each)
        whole += [each] if part is None else cut_by_bytes(each, part.segments, options.task_bytes_max)
    return [
        Task(
            options.addresses,
            ids[TopicPartition(*each[:2])],
            each,
            names,
            options.batch_bytes_max,
            options.fail_on_data_loss,
            _part(parts, each),
        )
        for each in cut(whole, options.tasks_min, options.task_records_max)
    ]


def _part(parts: Mapping[TopicPartition, PlanPart], wanted: Range) -> PlanPart | None:
    part = parts.get(TopicPartition(*wanted[:2]))
    return None if part is None else part.of_range(wanted)


def kept(wanted: Range, earliest: int, latest: int, options: SourceOptions, warn: Callable[[str], None]) -> Range:
    """The part of a range that the log has, which may be empty; raises or warns as invariant 2 says."""
    start = min(max(wanted.start, earliest), latest)
    stop = max(start, min(wanted.stop, latest))  # leaders refuse the plan of a range that ends before it begins
    if (start, stop) != (wanted.start, wanted.stop):
        report_loss(
            f"partition {wanted.partition} of topic {wanted.topic!r}: the read is of offsets {wanted.start} to"
            f" {wanted.stop}, the log has {earliest} to {latest}",
            max(0, wanted.stop - wanted.start) - (stop - start),
            options.fail_on_data_loss,
            warn,
        )
    return wanted._replace(start=start, stop=stop)


def report_loss(loss: str, offsets: int | None, fail_on_data_loss: bool, warn: Callable[[str], None]) -> None:
    """Raises DataLost, or warns with the number of lost offsets (invariant 2); None if nobody knows it."""
    if fail_on_data_loss:
        raise DataLost(f"{loss}; failOnDataLoss=false reads the offsets that are left")
    warn(f"{loss}; lost offsets: {'unknown' if offsets is None else offsets}")


async def partitions_of(
    cluster: KafkaBrokers, options: SourceOptions, *, skip_unknown: bool = False
) -> dict[TopicPartition, UUID]:
    """The partitions that the options name, each with the id of its topic.

    Args:
        skip_unknown: leaves out topics and assigned partitions that do not exist.

    Raises:
        BadOption: a topic does not have one of the assigned partitions.
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    if options.pattern is not None:
        topics = await cluster.retried("", cluster.topics)
        topics = {name: topic for name, topic in topics.items() if options.pattern.fullmatch(name)}
    else:
        names = sorted(set(options.topics or [place.topic for place in options.assigned or ()]))
        topics = await cluster.retried("", lambda: cluster.topics(names, skip_unknown=skip_unknown))
    found = {TopicPartition(name, number): topic.id for name, topic in topics.items() for number in topic.leaders}
    if options.assigned is None:
        return found
    missing = [place for place in options.assigned if place not in found]
    if missing and not skip_unknown:
        raise BadOption(f"assign: topic {missing[0].topic!r} has no partition {missing[0].partition}")
    return {place: found[place] for place in options.assigned if place in found}


async def resolved(
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


async def bounds_of(
    cluster: KafkaBrokers, places: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The start and the end of each partition; raises as `find_offsets`."""
    wanted = list(places)
    earliest, latest = [await find_offsets(cluster, dict.fromkeys(wanted, each)) for each in (EARLIEST, LATEST)]
    return _known(earliest), _known(latest)


def _known(found: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """The start and the end of a log are always known."""
    return {place: offset for place, offset in found.items() if offset is not None}
