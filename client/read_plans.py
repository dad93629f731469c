"""Plans of reads: in which entries, on which bookies, ranges of a topic's offsets are stored, as the leaders say.

    async with gnomon.connect("127.0.0.1:6650") as client:
        plan = await client.read_plans.plan("flights", {0: (0, 1_000), 1: (500, 2_000)}, hold="nightly-job")
        for segment in plan.partitions[0].segments:
            print(segment.ledger, segment.first, segment.last)

1. Each leader is asked for all partitions that it leads, and again for the segments that did not fit into its answer.
   A partition that has moved is looked up again.
2. The end of a range is fixed by the first answer about its partition: records that are written later are not planned.
3. The hold is taken with the first answer about each partition, before its segments are listed. So later answers do not
   move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from gnomon.bookie.ids import BookieId
from gnomon.client.errors import BrokerFailed, InvalidCall, NoSuchTopic
from gnomon.client.leaders import Leaders
from gnomon.client.protocol import PLANNED_PARTITIONS_MAX
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import SECONDS
from gnomon.log.plans.read_plan import InvalidPlan, PlannedBookie, PlannedPartition, ReadPlan, decode_plan

END: Final = 2**62 - 1
"""The end of a range that ends where the log does."""


@dataclass(frozen=True, slots=True)
class PartitionHolds:
    """The read holds of one partition."""

    partition: int
    holds: int
    offset: int
    """The lowest offset that is held."""


class ReadPlans:
    """The read plans of a native client; `NativeClient.read_plans` makes them."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    async def plan(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], *, hold: str = "", hold_seconds: int = SECONDS
    ) -> ReadPlan:
        """Plans the reading of the parts of some ranges that the log has: from its start to its high watermark.

        Args:
            ranges: the first offset and the end of the range of each partition; `END` for the end of the log.
            hold: the name of a hold on the records from the first offsets on: 1 to 100 letters, digits and `_.-`; empty
                for no hold. The same name renews a hold and moves it.
            hold_seconds: the hold ends after this time, 1 to 3,600 seconds, unless it is renewed.

        Returns:
            One plan of all partitions. It names only those bookies whose addresses are known at the moment.

        Raises:
            NoSuchTopic: there is no such topic, or it was created again during the call.
            NotAuthorized: READ on the topic is required.
            InvalidCall: an argument is not valid, or the topic has too many holds.
            BrokerUnreachable, Unavailable, NotLeader: a leader did not answer in time, or a partition has none, for
                example because it does not exist; the hold may be taken.
            BrokerFailed: a broker answers in another form.
        """
        if not ranges:
            raise InvalidCall("name at least one partition to plan the reading of")
        making = _PagedPlan({index: (Offset(first), Offset(end)) for index, (first, end) in ranges.items()})
        while (first := making.next_partition()) is not None:
            held = hold if making.unasked else ""

            def args(led: Sequence[int], held: str = held) -> tuple[Any, ...]:
                return topic, making.ask(led), held, hold_seconds

            making.take(await self._leaders.ask_leader(topic, first, "plan", args))
        return making.plan()

    async def holds(self, topic: str) -> list[PartitionHolds]:
        """The read holds of a topic, or of the source of a shadow, by partition; none of a partition without holds.

        Raises:
            NativeError: no broker answered, or it has refused.
        """
        return [PartitionHolds(*row) for row in await self._leaders.ask_any("read_holds", topic)]


@dataclass(slots=True)
class _PagedPlan:
    """The answers to one call."""

    left: dict[int, tuple[Offset, Offset]]
    """The ranges that have no segments yet."""
    unasked: dict[int, None] = field(init=False)
    """The partitions that no leader has answered for."""
    topic_id: UUID | None = None
    cluster: str = ""
    found: dict[int, PlannedPartition] = field(default_factory=dict)
    bookies: dict[BookieId, PlannedBookie] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unasked = dict.fromkeys(self.left)

    def next_partition(self) -> int | None:
        """A partition of the next question: those that were not asked for come first. None if all are answered."""
        return next(iter(self.unasked or self.left), None)

    def ask(self, led: Sequence[int]) -> list[list[int]]:
        """The ranges to ask the leader of these partitions for: no later pages before all partitions are answered."""
        asked = [index for index in led if index in (self.unasked or self.left)]
        return [[index, *self.left[index]] for index in asked[:PLANNED_PARTITIONS_MAX]]

    def take(self, answer: Any) -> None:
        """Takes the answer of one leader.

        Raises:
            BrokerFailed: it is no plan, or gets the client no further.
            NoSuchTopic: the topic is not the same as before.
        """
        try:
            plan = decode_plan(answer)
        except InvalidPlan as error:
            raise BrokerFailed(str(error)) from error
        if self.topic_id not in (None, plan.topic_id):
            raise NoSuchTopic("the topic was deleted and created again while the reading of it was planned: plan again")
        self.topic_id, self.cluster = plan.topic_id, plan.cluster
        self.bookies.update((bookie.name, bookie) for bookie in plan.bookies)
        before = dict(self.left), len(self.unasked)
        for index, found in plan.partitions.items():
            if index in self.left:
                self._take(index, found)
        if before == (self.left, len(self.unasked)):
            raise BrokerFailed("a broker answers for none of the partitions that it was asked for")

    def _take(self, index: int, new: PlannedPartition) -> None:
        first, end = self.left.pop(index)
        self.unasked.pop(index, None)
        known = self.found.get(index, PlannedPartition(new.start_offset, new.high_watermark, ()))
        start = max(known.start_offset, new.start_offset)
        covered = new.segments[-1].next_offset if new.segments else max(first, start)
        segments = tuple(each for each in (*known.segments, *new.segments) if each.next_offset > start)
        # The next leader of a shadow may know a lower one, beyond which it plans nothing.
        high_watermark = min(known.high_watermark, new.high_watermark)
        high_watermark = max(high_watermark, segments[-1].next_offset if segments else start)
        self.found[index] = PlannedPartition(start, high_watermark, segments)
        if covered < min(end, high_watermark):
            self.left[index] = covered, min(end, high_watermark)

    def plan(self) -> ReadPlan:
        """The plan, once all partitions are answered."""
        assert self.topic_id is not None, "a plan without an answer"
        partitions = {index: self.found[index] for index in sorted(self.found)}
        return ReadPlan(self.topic_id, self.cluster, partitions, tuple(self.bookies.values()))
