"""A job whose brokers are all away: it waits for them for a minute, with the connections of its process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from sink_client import SinkClient, rows_of
from spark_client import SparkClient, with_topics

from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.world import Unreachable, World
from gnomon.spark import process
from gnomon.spark.planning import plan
from gnomon.spark.writing import committing, staging
from gnomon.spark.writing.delivery import DeliveryFailed, deliver

ROWS = [f"row {number:04}" for number in range(100)]
Work = Callable[[], Awaitable[object]]


@asynccontextmanager
async def brokers_of_process(client: SparkClient, patch: pytest.MonkeyPatch) -> AsyncIterator[KafkaBrokers]:
    """The brokers as a process of Spark has them."""

    @asynccontextmanager
    async def world() -> AsyncIterator[World]:
        yield client.cluster.world

    patch.setattr(process, "open_trio_world", world)
    async with process._connected(client.machines.bootstrap) as connections:
        yield connections.brokers


async def undecided(sink: SinkClient, patch: pytest.MonkeyPatch) -> None:
    """A driver dies after its decision."""

    async def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    patch.setattr(committing, "deliver", dies)
    with pytest.raises(KeyboardInterrupt):
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(ROWS))])
    patch.setattr(committing, "deliver", deliver)


async def works(client: SparkClient, cluster: KafkaBrokers, patch: pytest.MonkeyPatch) -> Mapping[str, Work]:
    """Planning, staging, also of a task that has staged before, and applying a decision."""
    patch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    sink = SinkClient(cluster)
    await undecided(sink, patch)
    driver, topic = await sink.driver(), await sink.topic()
    options = client.options(via="brokers")
    return {
        "planning": partial(plan, cluster, options, ["value"], client.warnings.append),
        "staging": partial(sink.task, rows_of(ROWS)),
        "staging more": partial(topic.append, 1, [b"staged"]),
        "applying": driver.recover,
    }


def with_works(work: Callable[[SparkClient, Mapping[str, Work]], Awaitable[None]], patch: pytest.MonkeyPatch) -> None:
    async def on_topics(client: SparkClient) -> None:
        async with brokers_of_process(client, patch) as cluster:
            await work(client, await works(client, cluster, patch))

    with_topics(on_topics)


def test_planning_staging_and_applying_wait_for_brokers_that_are_away_for_50_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: SparkClient, given: Mapping[str, Work]) -> None:
        machines, clock = client.machines, client.cluster.clock
        for machine in machines.brokers.values():
            machine.kill()
        async with trio.open_nursery() as nursery:
            for each in given.values():
                nursery.start_soon(each)
            await clock.sleep(50)
            assert len(nursery.child_tasks) == len(given)
            for number in machines.brokers:
                machines.start_broker(number)
        assert await SinkClient(client.cluster).values() == ROWS

    with_works(work, monkeypatch)


def test_planning_staging_and_applying_fail_after_a_minute_without_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: SparkClient, given: Mapping[str, Work]) -> None:
        clock, took = client.cluster.clock, dict[str, float]()
        for machine in client.machines.brokers.values():
            machine.kill()
        began = clock.monotonic()

        async def fails(name: str, each: Work) -> None:
            with pytest.raises((Unreachable, RequestRefused, DeliveryFailed)):
                await each()
            took[name] = clock.monotonic() - began

        async with trio.open_nursery() as nursery:
            for name, each in given.items():
                nursery.start_soon(fails, name, each)
        assert {name: 60 <= seconds < 75 for name, seconds in took.items()} == dict.fromkeys(given, True)

    with_works(work, monkeypatch)
