"""The scenarios of native and of conditional writes."""

from __future__ import annotations

from dataclasses import replace

from bench.scenario import BROKER_CPU, REQUESTS, WIN_RATE, Column, Scenario, ratio
from bench.writes.loads import KafkaBatches, KafkaWrites, NativeWrites, beside

GNOMON = ("gnomon",)
RACE = NativeWrites(50, 1, conditional=True, own_partitions=False, races=True)


WRITES = (
    Scenario(
        "native-50x1",
        "native writes, 50 connections",
        GNOMON,
        (REQUESTS, ratio("÷ Kafka's Produce", more=True)),
        beside(
            NativeWrites(50, 1, own_partitions=False), KafkaWrites(50, 1, own_partitions=False, numbered=True), "rate"
        ),
    ),
    Scenario(
        "native-1x100",
        "native writes, 100 in flight on one",
        GNOMON,
        (REQUESTS, ratio("÷ Kafka's Produce", more=True)),
        beside(
            NativeWrites(1, 100, own_partitions=False), KafkaWrites(1, 100, own_partitions=False, numbered=True), "rate"
        ),
    ),
    Scenario(
        "conditional-50x1",
        "conditional writes, 50 partitions",
        GNOMON,
        (REQUESTS, ratio("÷ plain", more=True)),
        beside(NativeWrites(50, 1, conditional=True), NativeWrites(50, 1), "rate"),
    ),
    Scenario(
        "conditional-1x100",
        "conditional writes, 100 in flight on one",
        GNOMON,
        (REQUESTS, ratio("÷ plain", more=True)),
        beside(NativeWrites(1, 100, conditional=True), NativeWrites(1, 100), "rate"),
    ),
    Scenario(
        "conditional-race",
        "50 writers race for one place",
        GNOMON,
        (WIN_RATE, ratio("÷ one writer", more=True), Column("longest_wait_ms", "longest wait for a win", "ms")),
        beside(RACE, replace(RACE, connections=1), "rate"),
    ),
    Scenario(
        "conditional-batches",
        "64 KiB batches without conditions into a topic that takes them",
        GNOMON,
        (BROKER_CPU, ratio("÷ plain topic", more=False)),
        beside(KafkaBatches(conditional=True), KafkaBatches(conditional=False), "broker_cpu_us"),
    ),
    Scenario(
        "conditional-header",
        "one record a request, its condition in a header",
        GNOMON,
        (BROKER_CPU, ratio("÷ plain topic", more=False)),
        beside(KafkaWrites(50, 1, conditional=True), KafkaWrites(50, 1, conditional=False), "broker_cpu_us"),
    ),
)
