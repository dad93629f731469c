"""Asks the leaders for plans of ranges, so that tasks read bookies, and for the hold that keeps the records meanwhile.

1. `via=brokers` asks for nothing. `via=auto` reads through brokers what no plan has, with a warning if a broker has
   refused one. With `via=bookies` that is an error.
2. A hold begins at the first offset of each range, and is taken before the plan is made. The same name moves it.
3. A plan of another topic of the same name is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from gnomon.client.client import connect
from gnomon.client.errors import NativeError
from gnomon.client.kafka.admin import broker_config
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log.plans.read_plan import ReadPlan
from gnomon.spark.columns import Range
from gnomon.spark.options import SourceOptions
from gnomon.spark.task import PlanPart, parts_of

NATIVE_ADVERTISED: Final = "gnomon.native.advertised"
"""The broker config with the address for native clients."""


class NoBookies(Exception):
    """`via=bookies` cannot be done; the text has the reason."""


class PlannedSize(NamedTuple):
    """The part of a plan that is for one partition, in numbers."""

    bytes: int
    """Of the entries to read."""
    from_bookies: bool
    """Whether tasks would read them from bookies."""
    holds: int
    """Read holds on the partition, of all readers."""


async def planned_sizes(
    brokers: KafkaBrokers, options: SourceOptions, ranges: Iterable[Range]
) -> dict[TopicPartition, PlannedSize] | None:
    """The size of a plan of these ranges; nothing is held. None if nobody answers for native clients.

    Raises:
        RequestRefused, Unreachable: as `KafkaBrokers.retried`.
    """
    native = options.native_servers or await broker_config(brokers, NATIVE_ADVERTISED)
    found: dict[TopicPartition, PlannedSize] = {}
    if not native:
        return None
    try:
        async with connect(native, world=brokers.world) as client:
            for topic, places in sorted(_by_topic(ranges).items()):
                plan = await client.read_plans.plan(topic, places)
                holds = {each.partition: each.holds for each in await client.read_plans.holds(topic)}
                found |= {
                    TopicPartition(topic, number): PlannedSize(
                        sum(each.size_bytes for each in partition.segments),
                        options.via != "brokers" and bool(plan.bookies),
                        holds.get(number, 0),
                    )
                    for number, partition in plan.partitions.items()
                }
    except NativeError:
        return None
    return found


def _by_topic(ranges: Iterable[Range]) -> dict[str, dict[int, tuple[int, int]]]:
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, start, stop in ranges:
        found.setdefault(topic, {})[partition] = start, stop
    return found


class BookiePlans:
    """The plans of one batch read, or of one stream."""

    def __init__(self, brokers: KafkaBrokers, options: SourceOptions, warn: Callable[[str], None]) -> None:
        """Asks nothing yet; `warn` is called for each plan that a broker has refused."""
        self._brokers, self._options, self._warn = brokers, options, warn
        self._hold = f"spark-{brokers.world.random('hold').getrandbits(64):016x}"
        self._native = options.native_servers

    async def parts(
        self, ranges: Iterable[Range], ids: Mapping[TopicPartition, UUID]
    ) -> dict[TopicPartition, PlanPart]:
        """The plan of each range that bookies can be read for. An empty range is held, and has no plan.

        Raises:
            NoBookies: see invariant 1.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        wanted = _by_topic(ranges)
        if self._options.via == "brokers" or not wanted:
            return {}
        if self._native is None:
            self._native = await broker_config(self._brokers, NATIVE_ADVERTISED)
        if not self._native:
            self._without("the brokers show no address for native clients: give gnomon.native.servers")
            return {}
        found: dict[TopicPartition, PlanPart] = {}
        async with connect(self._native, world=self._brokers.world) as client:
            for topic, places in sorted(wanted.items()):
                try:
                    plan = await client.read_plans.plan(
                        topic, places, hold=self._hold, hold_seconds=self._options.hold_seconds
                    )
                except NativeError as error:
                    self._without(str(error))
                    self._warn(f"topic {topic!r} is read through brokers, and its records are not held: {error}")
                    continue
                found |= self._usable(topic, plan, ids)
        return found

    def _usable(self, topic: str, plan: ReadPlan, ids: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, PlanPart]:
        if not plan.bookies and any(each.segments for each in plan.partitions.values()):
            self._without("the brokers name no bookies, as a standalone node does: its entries are read through it")
        return {place: part for place, part in parts_of(topic, plan).items() if ids.get(place) == plan.topic_id}

    def _without(self, reason: str) -> None:
        if self._options.via == "bookies":
            raise NoBookies(f"via=bookies: {reason}")
