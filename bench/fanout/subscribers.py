"""Program: many durable subscriptions with gnomon's own client, a number of them on each connection.

The program makes all subscriptions, reports the time that this took, and listens. Then the bench asks for a number of
deliveries: the program answers with the latencies once that many have arrived, or `patience_seconds` have passed.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from typing import Any

import trio

import gnomon
from bench.child import heard, say
from bench.fanout.stamp import quantile, sent_at
from gnomon.client.consumer import Consumer
from gnomon.client.delivered_batch import DeliveredBatch
from gnomon.client.message import Message

SUBSCRIBING_MAX = 10
"""Connections that subscribe at the same time: a call that waits for others for 10 s is retried."""


class DelayCounter:
    """Counts deliveries and keeps the time of each from the producer's send to here."""

    def __init__(self) -> None:
        self.seconds = array("f")
        self.by_offset: dict[int, list[float]] = {}
        """First and last delivery of each message, seconds after it was sent."""
        self._wanted = sys.maxsize
        self._enough = trio.Event()
        self._batch: DeliveredBatch | None = None
        self._sent = 0.0

    def __call__(self, consumer: Consumer, message: Message) -> None:
        if message.batch is not self._batch:  # a batch arrives once for all subscriptions of a connection
            self._batch = message.batch
            assert message.value is not None, "the producer writes values"
            self._sent = sent_at(message.value)
            after = time.monotonic() - self._sent
            self.by_offset.setdefault(message.offset, [after, after])[1] = after
        self.seconds.append(time.monotonic() - self._sent)
        consumer.ack(message)
        if len(self.seconds) >= self._wanted:
            self._enough.set()

    async def until(self, wanted: int) -> None:
        """Waits for `wanted` deliveries."""
        self._wanted = wanted
        if len(self.seconds) < wanted:
            await self._enough.wait()

    def figures(self) -> dict[str, Any]:
        """The latencies of all deliveries."""
        ordered = sorted(self.seconds)
        first = min(self.by_offset, default=-1)
        return {
            "deliveries": len(ordered),
            "mean_ms": sum(ordered) / max(1, len(ordered)) * 1e3,
            "p50_ms": quantile(ordered, 0.5) * 1e3,
            "p99_ms": quantile(ordered, 0.99) * 1e3,
            "max_ms": quantile(ordered, 1) * 1e3,
            "first_message_ms": self.by_offset.get(first, [0.0, 0.0])[1] * 1e3,
        }


async def main() -> None:
    task = json.loads(sys.argv[1])
    listener = DelayCounter()
    done, subscribing = trio.Event(), trio.CapacityLimiter(SUBSCRIBING_MAX)
    left = [len(task["connections"])]
    began, cpu = time.monotonic(), time.process_time()

    async def connect(number: int, address: str, topic: str, count: int) -> None:
        async with gnomon.connect(address, name=str(number)) as client:
            async with subscribing:
                await client.subscribe_many(
                    topic, [f"reader-{number}-{each}" for each in range(count)], listener=listener
                )
            left[0] -= 1
            if left[0] == 0:
                done.set()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for number, (address, topic, count) in enumerate(task["connections"]):
            nursery.start_soon(connect, number, address, topic, count)
        await done.wait()
        say({"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu})
        cpu = time.process_time()
        wanted = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        with trio.move_on_after(task["patience_seconds"]):
            await listener.until(heard(wanted))
        cpu = time.process_time() - cpu
        say({**listener.figures(), "cpu_s": cpu})
        await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
