"""Measures durable subscriptions, spread over a source and its shadows, at one message of 1 KB a second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.child import Child
from bench.fanout.fleet import Fleet, TopicLeader, anonymous_bytes, cpu_seconds, fleet
from bench.fanout.scale import FanoutScale
from bench.generator import GeneratorFailed
from bench.workspace import Workspace

MESSAGE_BYTES = 1 << 10
PER_CONNECTION = 1_000
CONNECT_SECONDS_MAX = 300.0
PATIENCE_SECONDS = 30.0
SETTLE_SECONDS = 2.5
"""Time for the first positions to be stored."""
BESIDE_SECONDS = 0.05
BESIDE_BYTES = 100
QUIET_SECONDS = 5.0

Waits = Sequence[tuple[float, float]]
"""The send time of each produce, and its wait."""


@dataclass(frozen=True, slots=True)
class _Quiet:
    """The brokers without subscriptions: start of the interval, and processor time."""

    begun: float
    cpu_share: float

    @classmethod
    def of(cls, places: Sequence[TopicLeader]) -> _Quiet:
        brokers = [place.broker for place in places]
        begun, cpu = time.monotonic(), cpu_seconds(brokers)
        time.sleep(QUIET_SECONDS)
        return cls(begun, (cpu_seconds(brokers) - cpu) / (time.monotonic() - begun))


def measure(workspace: Workspace, scale: FanoutScale, count: int, shadows: int) -> dict[str, float]:
    """One run on a new fleet.

    A producer to another partition of the source's broker, twenty requests a second, measures delays at that broker:
    before the first subscription, while they attach, and while they get their messages.
    """
    with fleet(workspace, shadows + 1) as served:
        places = served.create("fan", shadows)
        topic, partition = served.beside(places[0])
        beside = {"topic": topic, "partition": partition, "records": 1, "value_bytes": BESIDE_BYTES}
        message = {"records": 1, "value_bytes": MESSAGE_BYTES, "interval_seconds": 1.0, "held": True}
        with (
            served.pacer(places[0], **message) as producer,
            served.pacer(places[0], **beside, interval_seconds=BESIDE_SECONDS) as prober,
        ):
            _warm_up(served, places)
            quiet = _Quiet.of(places)
            return _measured(served, places, producer, prober, count, scale.seconds, quiet)


def connections(places: Sequence[TopicLeader], count: int) -> list[tuple[str, str, int]]:
    """Address, topic and number of subscriptions of each connection: a thousand each, and as many at every place."""
    wanted = max(-(-count // PER_CONNECTION), len(places))
    shares = [count // wanted + (number < count % wanted) for number in range(wanted)]
    return [
        (places[number % len(places)].native, places[number % len(places)].topic, share)
        for number, share in enumerate(shares)
    ]


def _warm_up(served: Fleet, places: Sequence[TopicLeader]) -> None:
    """Creates a subscription at each place, which stays without a consumer: everything that opens on first use is then
    open."""
    task = {"connections": [(place.native, place.topic, 1) for place in places], "patience_seconds": 0}
    with served.child("subscribers", task) as first:
        first.answer(CONNECT_SECONDS_MAX)


def _measured(
    served: Fleet,
    places: Sequence[TopicLeader],
    producer: Child,
    prober: Child,
    count: int,
    seconds: float,
    quiet: _Quiet,
) -> dict[str, float]:
    brokers = [place.broker for place in places]
    memory, storage_memory = anonymous_bytes(brokers), anonymous_bytes(served.storage)
    task = {"connections": connections(places, count), "patience_seconds": PATIENCE_SECONDS}
    busy_from, cpu = time.monotonic(), cpu_seconds(brokers)
    with served.child("subscribers", task) as subscribers:
        connected = subscribers.answer(CONNECT_SECONDS_MAX)
        connect_cpu = cpu_seconds(brokers) - cpu
        time.sleep(SETTLE_SECONDS)
        subscribed_memory = anonymous_bytes(brokers)
        begun, cpu, storage_cpu = time.monotonic(), cpu_seconds(brokers), cpu_seconds(served.storage)
        producer_sent = _produce(producer, seconds)
        found = subscribers.ask(count * len(producer_sent), PATIENCE_SECONDS * 2)
        time.sleep(SETTLE_SECONDS)
        cpu, storage_cpu = cpu_seconds(brokers) - cpu, cpu_seconds(served.storage) - storage_cpu
        quiet_cpu = (time.monotonic() - begun) * quiet.cpu_share
        memory_after, storage_after = anonymous_bytes(brokers), anonymous_bytes(served.storage)
    deliveries = found["deliveries"]
    if deliveries != count * len(producer_sent):
        raise GeneratorFailed(f"{deliveries} deliveries of {count} × {len(producer_sent)}")
    probed: Waits = prober.ask("stop", PATIENCE_SECONDS)["waits"]
    return {
        "connected_s": connected["seconds"],
        **{name: found[name] for name in ("mean_ms", "p50_ms", "p99_ms", "max_ms", "first_message_ms")},
        "broker_cpu_us": (cpu - quiet_cpu) / deliveries * 1e6,
        "whole_cpu_us": cpu / deliveries * 1e6,
        "storage_cpu_us": storage_cpu / deliveries * 1e6,
        "client_cpu_us": found["cpu_s"] / deliveries * 1e6,
        "connect_cpu_us": connect_cpu / count * 1e6,
        "subscribed_bytes": (subscribed_memory - memory) / count,
        "subscription_bytes": (memory_after - memory) / count,
        "storage_bytes": (storage_after - storage_memory) / count,
        **_longest(producer_sent, probed, quiet.begun, busy_from),
    }


def _produce(producer: Child, seconds: float) -> Waits:
    producer.tell("go")
    time.sleep(seconds)
    waits: Waits = producer.ask("stop", PATIENCE_SECONDS)["waits"]
    return waits


def _longest(own: Waits, probed: Waits, quiet_from: float, busy_from: float) -> Mapping[str, float]:
    """The longest waits of a produce: of the messages themselves, and of the other partition's."""
    quiet = [wait for at, wait in probed if quiet_from <= at < busy_from]
    busy = [wait for at, wait in probed if at >= busy_from]
    return {
        "message_wait_ms": max(wait for _, wait in own) * 1e3,
        "quiet_wait_ms": max(quiet) * 1e3,
        "beside_wait_ms": max(busy) * 1e3,
        "produce_wait_ms": max(busy + [wait for _, wait in own]) * 1e3,
    }
