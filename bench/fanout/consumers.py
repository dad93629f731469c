"""Measures Kafka consumers, each with a connection and a group, on a source and its shadows, or all on the source."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.fanout.fleet import TopicLeader, cpu_seconds, fleet
from bench.fanout.scale import FanoutScale
from bench.fanout.stamp import value_at
from bench.generator import GeneratorFailed
from bench.workspace import Workspace

MESSAGE_BYTES = 1 << 10
JOIN_SECONDS_MAX = 180.0
PATIENCE_SECONDS = 20.0
SETTLE_SECONDS = 5.0


def measure(workspace: Workspace, scale: FanoutScale, shadows: int) -> dict[str, float]:
    """One run on a new fleet, which has the same number of brokers in both cases."""
    with fleet(workspace, scale.consumer_shadows + 1) as served:
        places = served.create("fan", shadows)
        message = {"records": 1, "value_bytes": MESSAGE_BYTES, "interval_seconds": 1.0, "held": True}
        members = [(place.kafka_port, place.topic, share) for place, share in _shares(places, scale.consumers)]
        task = {"places": members, "value_at": value_at(MESSAGE_BYTES), "patience_seconds": PATIENCE_SECONDS}
        with served.pacer(places[0], **message) as producer, served.child("members", task) as consumers:
            consumers.answer(JOIN_SECONDS_MAX)
            joined = consumers.answer(JOIN_SECONDS_MAX)
            time.sleep(SETTLE_SECONDS)
            busy, source = cpu_seconds(served.brokers), cpu_seconds([places[0].broker])
            begun = time.monotonic()
            producer.tell("go")
            time.sleep(scale.seconds)
            waits = producer.ask("stop", PATIENCE_SECONDS)["waits"]
            found = consumers.ask(scale.consumers * len(waits), 2 * PATIENCE_SECONDS)
            seconds = time.monotonic() - begun
            busy, source = cpu_seconds(served.brokers) - busy, cpu_seconds([places[0].broker]) - source
    if found["deliveries"] != scale.consumers * len(waits):
        raise GeneratorFailed(f"{found['deliveries']} deliveries of {scale.consumers} × {len(waits)}")
    return {
        "joined_s": joined["seconds"],
        **{name: found[name] for name in ("mean_ms", "p50_ms", "p99_ms")},
        "broker_cpu_percent": busy / seconds * 100,
        "source_cpu_percent": source / seconds * 100,
        "client_cpu_percent": found["cpu_s"] / seconds * 100,
        "message_wait_ms": max(wait for _, wait in waits) * 1e3,
    }


def _shares(places: Sequence[TopicLeader], members: int) -> list[tuple[TopicLeader, int]]:
    count = len(places)
    return [(place, members // count + (number < members % count)) for number, place in enumerate(places)]
