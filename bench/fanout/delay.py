"""Measures the delay of a batch at a shadow on another broker, compared with its source."""

from __future__ import annotations

import time

from bench.fanout.fleet import cpu_seconds, fleet
from bench.fanout.scale import FanoutScale
from bench.fanout.stamp import value_at
from bench.generator import GeneratorFailed
from bench.workspace import Workspace

MESSAGE_BYTES = 100
FRAMES_PER_SECOND_MAX = 1_000
FEW_RECORDS = 50
"""Records of a batch, at rates with too many messages for one request each."""
OPEN_SECONDS = 30.0
PERMITS = 1 << 40
SETTLE_SECONDS = 1.0


def measure(workspace: Workspace, scale: FanoutScale, rate: int) -> dict[str, float]:
    """One run on a new fleet of two brokers, each with one subscription that receives its batches."""
    records = 1 if rate <= FRAMES_PER_SECOND_MAX else FEW_RECORDS
    with fleet(workspace, 2) as served:
        source, shadow = served.create("fan", 1)
        load = {"records": records, "value_bytes": MESSAGE_BYTES, "interval_seconds": records / rate, "held": True}
        topics = [(*_native(place.native), place.topic) for place in (source, shadow)]
        task = {"topics": topics, "permits": PERMITS, "value_at": value_at(MESSAGE_BYTES)}
        with served.pacer(source, **load) as producer, served.child("tap", task) as tap:
            tap.answer(OPEN_SECONDS)
            time.sleep(SETTLE_SECONDS)
            begun, cpu = time.monotonic(), [cpu_seconds([place.broker]) for place in (source, shadow)]
            producer.tell("go")
            time.sleep(scale.seconds)
            waits = producer.ask("stop", OPEN_SECONDS)["waits"]
            seconds = time.monotonic() - begun
            time.sleep(2 * SETTLE_SECONDS)
            figures = tap.ask("figures", OPEN_SECONDS)
            used = [cpu_seconds([place.broker]) - before for place, before in zip((source, shadow), cpu, strict=True)]
    if figures["missing"] or figures["batches"] < len(waits):
        raise GeneratorFailed(
            f"of {len(waits)} batches {figures['batches']} came, and {figures['missing']} not to both"
        )
    return {
        **figures,
        "rate": len(waits) * records / seconds,
        "source_cpu_us": used[0] / len(waits) / records * 1e6,
        "shadow_cpu_us": used[1] / len(waits) / records * 1e6,
    }


def _native(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
