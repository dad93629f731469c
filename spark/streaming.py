"""Plans the batches of a stream.

1. A batch continues where the batch before it ended. A partition that was added begins at its start.
2. A batch has at most `maxOffsetsPerTrigger` offsets (`offsets.admitted`). It waits for `minOffsetsPerTrigger` of
   them, at most `maxTriggerDelay` since the batch before; the first batch does not wait.
3. With a target (`Trigger.AvailableNow`) the stream ends at the offsets, and with the partitions, that existed when the
   target was taken; then no batch waits. It does not go beyond `ending…`, which needs a target.
4. The records from the start of the last planned batch on are held (`bookie_plans`), also while the stream waits, and
   while `keep_held` runs, however long the batch takes.
5. Offsets that are gone are lost data (`planning`, invariant 2): records that were deleted, partitions and topics that
   were deleted or created again, and a log that ends before the stream's position. With `failOnDataLoss=false` such a
   partition is read from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import trio

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.runtime.world import Unreachable
from gnomon.spark.bookie_plans import BookiePlans, NoBookies
from gnomon.spark.columns import Range
from gnomon.spark.offsets import BadOption, Offsets, admitted, backlog
from gnomon.spark.options import SourceOptions
from gnomon.spark.planning import bounds_of, kept, partitions_of, report_loss, resolved, tasks_of
from gnomon.spark.task import Task

RENEWALS: Final = 3
"""Renewals of a hold in the time after which it ends."""


class StreamPlan:
    """The positions of one stream, as far as its driver knows them."""

    def __init__(
        self,
        cluster: KafkaBrokers,
        options: SourceOptions,
        columns: Iterable[str],
        now: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        """Begins without a position.

        Args:
            columns: names of `columns.SCHEMA`.
            now: a clock, in seconds.
            warn: is called with each loss of data that is not an error.
        """
        self._cluster, self._options, self._columns = cluster, options, tuple(columns)
        self._now, self._warn = now, warn
        self._ids: dict[TopicPartition, UUID] = {}
        self._restarted: set[TopicPartition] = set()
        """Partitions whose position is lost: the next batch ends at their start, and the one after it begins there."""
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._plans = BookiePlans(cluster, options, warn)
        self._held: Offsets = {}
        """The start of the hold."""
        self._held_at: float | None = None
        self._holding = trio.Lock()
        self._last_batch: float | None = None

    async def initial(self) -> Offsets:
        """The start of a new stream, the same at each call: Spark asks several times. Raises as `plan`."""
        if self._initial is None:
            earliest, latest = await bounds_of(self._cluster, await partitions_of(self._cluster, self._options))
            options = self._options
            self._initial = await resolved(
                self._cluster, options.starting, earliest, latest, none_is_end=options.late_start_is_latest
            )
        return self._initial

    async def take_target(self) -> None:
        """Has the stream end at the present ends of the present partitions, or before them; raises as `plan`."""
        await self._look_up()
        earliest, latest = await bounds_of(self._cluster, self._ids)
        ends = await resolved(self._cluster, self._options.ending, earliest, latest, none_is_end=True)
        self._target = {place: min(end, latest[place]) for place, end in ends.items()}

    async def ends(self) -> Offsets:
        """The ends of all partitions; raises as `tasks`."""
        await self._look_up()
        return (await bounds_of(self._cluster, self._ids))[1]

    async def next_end(self, start: Offsets, offsets_max: int | None) -> Offsets:
        """Where the batch that starts at `start` ends; `start` itself if there is none yet.

        Raises:
            BadOption: the stream has an end, and no target.
            DataLost: see invariant 5.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        target, ending = self._target, self._options.ending.option
        if target is None and ending:
            raise BadOption(f"{ending}: a stream has an end only with trigger(availableNow=True)")
        await self._look_up()
        earliest, latest = await bounds_of(self._cluster, self._ids)
        if target is not None:
            latest = {place: end for place, end in latest.items() if place in target}
        for place in sorted(start.keys() - earliest.keys()):
            self._lost(place, f"it was deleted, the stream was at offset {start[place]}")
        begin = {place: start.get(place, earliest[place]) for place in latest}
        for place in sorted(latest):
            if place not in start and earliest[place]:
                self._lost(place, f"it was added, and begins at offset {earliest[place]}", earliest[place])
            if latest[place] < begin[place]:
                self._lost(place, f"its log ends at {latest[place]}, the stream was at offset {begin[place]}")
                self._restarted.add(place)
        ends = latest if target is None else {place: min(end, target[place]) for place, end in latest.items()}
        if not self._restarted and not self._is_due(sum(backlog(begin, ends).values())):
            await self._hold(begin)
            return start
        self._last_batch = self._now()
        found = admitted(begin, ends, offsets_max)
        for place in self._restarted & found.keys():
            found[place] = earliest[place]
        self._restarted.clear()
        return found

    async def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """The tasks of the batch from `start` to `end`, also of one that an earlier driver has planned.

        Raises:
            DataLost: see invariant 5.
            RequestRefused, Unreachable: as `KafkaBrokers.retried`.
        """
        await self._look_up()
        for place in sorted(end.keys() - self._ids.keys()):
            lost = end[place] - start[place] if place in start else None
            self._lost(place, f"it was deleted, the batch ends at offset {end[place]}", lost)
        earliest, latest = await bounds_of(self._cluster, end.keys() & self._ids.keys())
        ranges = []
        for place in sorted(earliest):
            wanted = Range(*place, start.get(place, earliest[place]), end[place])
            ranges.append(kept(wanted, earliest[place], latest[place], self._options, self._warn))
        async with self._holding:
            parts = await self._plans.parts(ranges, self._ids)
            self._held, self._held_at = {TopicPartition(*each[:2]): each.start for each in ranges}, self._now()
        filled = [each for each in ranges if each.start < each.stop]
        return tasks_of(filled, self._ids, self._options, self._columns, parts)

    async def keep_held(self) -> None:
        """Renews the hold while a batch runs, until it is cancelled (invariant 4)."""
        while True:
            await self._cluster.clock.sleep(self._options.hold_seconds / RENEWALS)
            try:
                await self._hold(self._held)
            except (RequestRefused, Unreachable, NoBookies) as error:
                self._warn(f"the hold of the stream's records is not renewed: {error}")

    async def _hold(self, begin: Offsets) -> None:
        """Renews the hold, if it is time."""
        async with self._holding:
            now = self._now()
            if self._held_at is None or now - self._held_at >= self._options.hold_seconds / RENEWALS:
                await self._plans.parts([Range(*place, offset, offset) for place, offset in begin.items()], self._ids)
                self._held, self._held_at = begin, now

    async def _look_up(self) -> None:
        """Learns of partitions that were added, deleted or made again."""
        found = await partitions_of(self._cluster, self._options, skip_unknown=True)
        for place in sorted(found.keys() & self._ids.keys()):
            if found[place] != self._ids[place]:
                self._lost(place, "its topic was deleted and created again")
                self._restarted.add(place)
        self._ids = found

    def _is_due(self, offsets: int) -> bool:
        wanted, last = self._options.batch_offsets_min, self._last_batch
        if offsets >= wanted or self._target is not None or last is None:
            return True
        return self._now() - last >= self._options.batch_delay_seconds

    def _lost(self, place: TopicPartition, reason: str, offsets: int | None = None) -> None:
        report_loss(
            f"partition {place.partition} of topic {place.topic!r}: {reason}",
            offsets,
            self._options.fail_on_data_loss,
            self._warn,
        )
