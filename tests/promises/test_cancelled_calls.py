"""Calls of the native client, cancelled at drawn steps against real processes: nothing is left half done."""

from __future__ import annotations

import os
import random

import pytest
import trio
from confluent_kafka import Producer
from house import House

from gnomon.client.client import connect
from gnomon.testing.storms.subscriptions.cancelled_calls import FOUND_AGAIN, CancelledCalls

CALLS = int(os.environ.get("CALLS", "40"))
PLACES = 4
"""A source and a shadow, standalone and in a cluster: each gets a share of the calls."""
FLUSH_SECONDS_MAX = 30.0


@pytest.mark.parametrize("shadow", [False, True], ids=["source", "shadow"])
def test_a_cancelled_call_leaves_every_record_to_other_consumers_and_no_call_hangs(house: House, shadow: bool) -> None:
    source, topic = house.topic(f"cancelled-{shadow}", shadow=shadow)
    writer = Producer({"bootstrap.servers": house.kafka})
    records = 0

    async def produce() -> None:
        nonlocal records
        writer.produce(source, b"%d" % records, partition=0)
        records += 1
        assert await trio.to_thread.run_sync(writer.flush, FLUSH_SECONDS_MAX) == 0

    async def run() -> int:
        for _ in range(FOUND_AGAIN):
            await produce()
        async with connect(house.native, name="client") as client, connect(house.native, name="another") as another:
            calls = CancelledCalls(topic, client, another, produce, trio.lowlevel.checkpoint)
            return await calls.judge_drawn(random.Random(topic), CALLS // PLACES)

    cut = trio.run(run)
    print(f"{topic}: {cut} of {CALLS // PLACES} calls were cut off")
    assert cut > 0
