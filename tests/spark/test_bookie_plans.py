"""The plans and the holds of a batch read and of a stream; numbers cite the invariants of `bookie_plans`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from spark_client import SparkClient, with_topics

from gnomon.client.client import connect
from gnomon.client.errors import Unavailable
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.client.read_plans import PartitionHolds, ReadPlans
from gnomon.spark import bookie_plans
from gnomon.spark.bookie_plans import BookiePlans, NoBookies, planned_sizes
from gnomon.spark.columns import Range
from gnomon.spark.planning import partitions_of
from gnomon.spark.streaming import StreamPlan

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
NATIVE = "broker-1:6650"


async def holds(client: SparkClient) -> dict[int, tuple[int, int]]:
    """The number and the lowest offset of the holds of each partition of the topic `orders`."""
    async with connect(NATIVE, world=client.cluster.world, name="operator") as native:
        found: list[PartitionHolds] = await native.read_plans.holds("orders")
    return {each.partition: (each.holds, each.offset) for each in found}


def test_a_batch_read_has_plans_and_holds_its_records() -> None:  # 2
    async def work(client: SparkClient) -> None:
        tasks = await client.tasks(startingOffsets='{"orders":{"0":10,"1":-2,"2":-2}}', holdSeconds="60")
        assert {task.range.partition: task.plan is not None for task in tasks} == {0: True, 1: True}
        assert await holds(client) == {0: (1, 10), 1: (1, 0), 2: (1, 0)}
        await client.cluster.clock.sleep(70)
        assert await holds(client) == {}

    with_topics(work)


@pytest.mark.parametrize(("start", "end"), [(3, 8), (40, 50)])
def test_a_partition_whose_range_is_lost_whole_does_not_take_the_plan_from_the_others(start: int, end: int) -> None:
    async def work(client: SparkClient) -> None:
        await client.delete_before(0, 12)
        given = {
            "startingOffsets": f'{{"orders":{{"0":{start},"1":0,"2":0}}}}',
            "endingOffsets": f'{{"orders":{{"0":{end},"1":20,"2":0}}}}',
        }
        tasks = await client.tasks(**given, via="bookies", failOnDataLoss="false")
        assert {task.range.partition: task.plan is not None for task in tasks} == {1: True}
        assert await holds(client) == {0: (1, 12 if start < 12 else 30), 1: (1, 0), 2: (1, 0)}
        assert len(client.warnings) == 1

    with_topics(work)


def test_a_read_through_brokers_asks_for_no_plan() -> None:  # 1
    async def work(client: SparkClient) -> None:
        assert all(task.plan is None for task in await client.tasks(via="brokers"))
        assert await holds(client) == {}

    with_topics(work)


def test_a_plan_of_a_topic_that_was_created_again_is_not_used() -> None:  # 3
    """The topic is another one when the leaders are asked than it was when its id was looked up."""

    async def work(client: SparkClient) -> None:
        options, ranges = client.options(), [Range("orders", 0, 0, 30)]
        ids = await partitions_of(client.cluster, options)
        await client.delete("orders")
        await client.create("orders", 3)
        for first in range(0, 30, 5):
            await client.produce("orders", 0, first)
        plans = BookiePlans(client.cluster, options, client.warnings.append)
        assert await plans.parts(ranges, ids) == {}
        (found,) = await plans.parts(ranges, await partitions_of(client.cluster, options))
        assert found == ZERO

    with_topics(work)


def test_the_address_for_native_clients_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> str:
        raise AssertionError("the brokers were asked")

    monkeypatch.setattr(bookie_plans, "broker_config", none)

    async def work(client: SparkClient) -> None:
        assert all(task.plan for task in await client.tasks(**{"gnomon.native.servers": NATIVE}))

    with_topics(work)


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise Unavailable("the metadata is away")

    monkeypatch.setattr(ReadPlans, "plan", refuse)


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(bookie_plans, "broker_config", nothing)


@pytest.mark.parametrize(
    ("breaks", "text", "warnings"),
    [
        (refused, "the metadata is away", 1),
        (silent, "the brokers show no address for native clients: give gnomon.native.servers", 0),
    ],
)
def test_a_read_without_a_plan_goes_through_brokers_unless_it_must_not(
    monkeypatch: pytest.MonkeyPatch, breaks: Callable[[pytest.MonkeyPatch], None], text: str, warnings: int
) -> None:  # 1
    breaks(monkeypatch)

    async def work(client: SparkClient) -> None:
        tasks = await client.tasks(subscribe="orders")
        assert all(task.plan is None for task in tasks)
        assert len(client.warnings) == warnings
        with pytest.raises(NoBookies, match=f"via=bookies: {text}"):
            await client.tasks(subscribe="orders", via="bookies")

    with_topics(work)


def test_the_size_of_a_plan_is_told_without_a_hold() -> None:
    async def work(client: SparkClient) -> None:
        wanted = [Range("orders", 0, 10, 30), Range("orders", 1, 0, 20)]
        sizes = await planned_sizes(client.cluster, client.options(), wanted)
        assert await holds(client) == {}
        assert sizes is not None
        assert {place: (size.from_bookies, size.holds) for place, size in sizes.items()} == {
            ZERO: (True, 0),
            ONE: (True, 0),
        }
        tasks = await client.tasks(startingOffsets='{"orders":{"0":10,"1":0,"2":-2}}')
        planned = {task.range.partition: task.plan for task in tasks if task.plan is not None}
        for place, size in sizes.items():
            part = planned[place.partition]
            assert size.bytes == sum(segment.size_bytes for segment in part.segments) > 0
        held = await planned_sizes(client.cluster, client.options(via="brokers"), wanted)
        assert held is not None
        assert held[ZERO] == (sizes[ZERO].bytes, False, 1)

    with_topics(work)


def test_without_an_address_for_native_clients_the_size_is_unknown() -> None:
    async def work(client: SparkClient) -> None:
        options = client.options(**{"gnomon.native.servers": "broker-1:1"})
        assert await planned_sizes(client.cluster, options, [Range("orders", 0, 0, 5)]) is None

    with_topics(work)


def of_stream(work: Callable[[SparkClient, StreamPlan], Awaitable[None]]) -> None:
    async def on_topics(client: SparkClient) -> None:
        options = client.options(streaming=True, startingOffsets="earliest", holdSeconds="60")
        clock = client.cluster.clock
        await work(client, StreamPlan(client.cluster, options, ("value",), clock.monotonic, client.warnings.append))

    with_topics(on_topics)


def test_the_hold_of_a_stream_is_at_the_start_of_its_last_batch() -> None:
    async def work(client: SparkClient, stream: StreamPlan) -> None:
        start = await stream.initial()
        middle = {ZERO: 10, ONE: 20, TWO: 0}
        tasks = await stream.tasks(start, middle)
        assert all(task.plan is not None for task in tasks)
        assert await holds(client) == {0: (1, 0), 1: (1, 0), 2: (1, 0)}
        await stream.tasks(middle, {ZERO: 30, ONE: 20, TWO: 0})
        assert await holds(client) == {0: (1, 10), 1: (1, 20), 2: (1, 0)}

    of_stream(work)


def test_a_stream_that_waits_renews_its_hold() -> None:
    async def work(client: SparkClient, stream: StreamPlan) -> None:
        end = {ZERO: 30, ONE: 20, TWO: 0}
        await stream.tasks(await stream.initial(), end)
        await stream.next_end(end, None)
        for _ in range(20):
            await client.cluster.clock.sleep(10)
            assert await stream.next_end(end, None) == end
            assert (await holds(client)).keys() == {0, 1, 2}
        assert await holds(client) == {0: (1, 30), 1: (1, 20), 2: (1, 0)}

    of_stream(work)


def test_the_hold_of_a_batch_that_runs_for_long_is_renewed_and_then_moves() -> None:
    async def work(client: SparkClient, stream: StreamPlan) -> None:
        middle = {ZERO: 10, ONE: 20, TWO: 0}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.keep_held)
            await stream.tasks(await stream.initial(), middle)
            for _ in range(30):
                await client.cluster.clock.sleep(10)
                assert await holds(client) == {0: (1, 0), 1: (1, 0), 2: (1, 0)}
            await stream.tasks(middle, {ZERO: 30, ONE: 20, TWO: 0})
            await client.cluster.clock.sleep(100)
            assert await holds(client) == {0: (1, 10), 1: (1, 20), 2: (1, 0)}
            nursery.cancel_scope.cancel()
        await client.cluster.clock.sleep(70)
        assert await holds(client) == {}

    of_stream(work)


def test_a_renewal_that_fails_is_a_warning_and_is_tried_again() -> None:
    async def work(client: SparkClient, stream: StreamPlan) -> None:
        await stream.tasks(await stream.initial(), {ZERO: 10, ONE: 20, TWO: 0})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.keep_held)
            for machine in client.machines.brokers.values():
                machine.kill()
            await client.cluster.clock.sleep(100)
            assert "its records are not held: no broker answers" in client.warnings[0]
            warnings = len(client.warnings)
            await client.cluster.clock.sleep(100)
            assert len(client.warnings) > warnings
            nursery.cancel_scope.cancel()

    of_stream(work)
