"""Measures the cost of a source's shadows for the source's broker, when records are produced to the source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.fanout.fleet import Fleet, TopicLeader, cpu_seconds, fleet
from bench.fanout.scale import FanoutScale
from bench.generator import Generators
from bench.workspace import Workspace

MESSAGE_BYTES = 1 << 10
BATCH_BYTES = 64 << 10
WARM_UP_MS = 1_000
PACED_RECORDS, PACED_PER_SECOND = 60, 100
"""A steady load: records a batch, and batches a second, independent of the machine's other load."""
OPEN_SECONDS = 60.0
SETTLE_SECONDS = 1.0


def measure(workspace: Workspace, scale: FanoutScale, generators: Generators) -> Iterator[tuple[int, dict[str, float]]]:
    """One run on one new fleet, with a broker for each shadow: figures by the number of shadows.

    There are no readers: the shadows are in use (a subscription without permits), so that they follow their source.
    """
    with fleet(workspace, max(scale.fans) + 1) as served:
        for shadows in scale.fans:
            places = served.create(f"fan-{shadows}", shadows)
            with _in_use(served, places[1:]):
                full = _full(places[0], generators, scale.seconds)  # first: then the broker is warm
                yield shadows, {**full, **_paced(served, places[0], scale.seconds)}


@contextmanager
def _in_use(served: Fleet, shadows: Sequence[TopicLeader]) -> Iterator[None]:
    topics = [("127.0.0.1", place.native_port, place.topic) for place in shadows]
    if not topics:
        yield
        return
    with served.child("tap", {"topics": topics, "permits": 0, "value_at": 0}) as tap:
        tap.answer(OPEN_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield


def _paced(served: Fleet, source: TopicLeader, seconds: float) -> dict[str, float]:
    load = {"records": PACED_RECORDS, "value_bytes": MESSAGE_BYTES, "interval_seconds": 1 / PACED_PER_SECOND}
    with served.pacer(source, **load) as producer:
        time.sleep(SETTLE_SECONDS)
        begun, cpu = time.monotonic(), cpu_seconds([source.broker])
        time.sleep(seconds)
        passed, cpu = time.monotonic() - begun, cpu_seconds([source.broker]) - cpu
        waits = sorted(wait for _, wait in producer.ask("stop", OPEN_SECONDS)["waits"])
    return {
        "paced_cpu_us": cpu / (PACED_RECORDS * PACED_PER_SECOND * passed) * 1e6,
        "paced_p50_ms": waits[len(waits) // 2] * 1e3,
        "paced_p99_ms": waits[int(len(waits) * 0.99)] * 1e3,
    }


def _full(source: TopicLeader, generators: Generators, seconds: float) -> dict[str, float]:
    cpu = cpu_seconds([source.broker])
    arguments = (source.topic, MESSAGE_BYTES, BATCH_BYTES, WARM_UP_MS, int(seconds * 1e3), 10**12, "false")
    figures = generators.rdkafka.run(
        "produce",
        f"127.0.0.1:{source.kafka_port}",
        *arguments,
        timeout_seconds=seconds + OPEN_SECONDS,
        server_alive=lambda: source.broker.alive,
    )
    cpu = cpu_seconds([source.broker]) - cpu
    return {
        "rate": figures["operations"] / figures["seconds"],
        "full_cpu_us": cpu / figures["total"] * 1e6,
    }
