"""Program: a durable subscription to each of several topics, to record the arrival of batches; none is acknowledged.

The first topic is a source, the others are its shadows; with permits 0, all of them can be shadows. After a line from
the bench the program reports the quantiles of two times: the delay of a batch at a shadow, compared with its arrival at
the source; and the time from the producer to the arrival, at the source and at a shadow. With permits 0 the program
receives nothing: its subscriptions only keep the shadows in use.
"""

from __future__ import annotations

import json
import sys
import time

import trio

from bench.child import say
from bench.fanout.stamp import quantile, sent_at
from gnomon.client.errors import ERRORS
from gnomon.client.protocol import SERVICE
from gnomon.runtime.rpc.client import RpcClient
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import World


class Tap:
    """The batches of one topic."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._at = (host, port)
        self._topic = topic
        self.arrived: dict[int, float] = {}
        self.sent: dict[int, float] = {}

    async def run(self, world: World, permits: int, value_at: int, opened: trio.MemorySendChannel[str]) -> None:
        rpc = RpcClient(world, *self._at, SERVICE, ERRORS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rpc.run)
            async with rpc.stream("receive") as stream:
                consumer = [f"tap-{time.monotonic_ns()}", 0, "tap", permits]
                (result,) = await rpc.call("subscribe", self._topic, 0, "exclusive", "latest", [consumer])
                assert isinstance(result, int), f"it was refused: {result}"
                await opened.send(self._topic)
                async for _, _, base_offset, _, records, _ in stream:
                    self.arrived[base_offset] = time.monotonic()
                    self.sent[base_offset] = sent_at(records, value_at)


async def main() -> None:
    task = json.loads(sys.argv[1])
    taps = [Tap(*each) for each in task["topics"]]
    async with open_trio_world() as world, trio.open_nursery() as nursery:
        opened, opening = trio.open_memory_channel[str](len(taps))
        for tap in taps:
            nursery.start_soon(tap.run, world, task["permits"], task["value_at"], opened)
        for _ in taps:
            await opening.receive()
        say({"opened": len(taps)})
        if await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            say(figures(taps[0], taps[1:]))
            await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


def figures(source: Tap, shadows: list[Tap]) -> dict[str, float]:
    """Delays of the shadows compared with the source, and latencies from the producer."""
    delays = sorted(
        at - source.arrived[base] for shadow in shadows for base, at in shadow.arrived.items() if base in source.arrived
    )
    at_source = sorted(at - source.sent[base] for base, at in source.arrived.items())
    at_shadows = sorted(at - shadow.sent[base] for shadow in shadows for base, at in shadow.arrived.items())
    return {
        "batches": len(source.arrived),
        "missing": sum(len(source.arrived.keys() - shadow.arrived.keys()) for shadow in shadows),
        "delay_p50_ms": quantile(delays, 0.5) * 1e3,
        "delay_p99_ms": quantile(delays, 0.99) * 1e3,
        "delay_max_ms": quantile(delays, 1) * 1e3,
        "source_p50_ms": quantile(at_source, 0.5) * 1e3,
        "source_p99_ms": quantile(at_source, 0.99) * 1e3,
        "shadow_p50_ms": quantile(at_shadows, 0.5) * 1e3,
        "shadow_p99_ms": quantile(at_shadows, 0.99) * 1e3,
    }


if __name__ == "__main__":
    trio.run(main)
