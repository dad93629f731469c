"""Scenarios of native and of conditional writes: each measures two loads in turn, and their ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from bench.frame import produce_frame, record_batch
from bench.generator import Figures
from bench.stage import Stage, throughput
from bench.writes.frames import HELLO, WriteFrame, kafka_write, native_write

CONDITIONAL = {"gnomon.conditional.write": "true"}
TURNS = 3
"""Measurements of each of two loads in a round."""
RECORD_BYTES = 100
KIB = 1 << 10

Load = Callable[[Stage], Figures]


def beside(load: Load, other: Load, figure: str) -> Load:
    """Measures `load` and `other` in turn; `ratio` is that of their medians of `figure`.

    The other figures are those of the turn of `load` with the median of `figure`.
    """

    def measure(stage: Stage) -> Figures:
        turns = [(load(stage), other(stage)) for _ in range(TURNS)]
        own, others = ([figures[figure] for figures in column] for column in zip(*turns, strict=True))
        median = statistics.median(own)
        (chosen, *_) = (figures for figures, _ in turns if figures[figure] == median)
        return {**chosen, "other": statistics.median(others), "ratio": median / statistics.median(others)}

    return measure


@dataclass(frozen=True, slots=True)
class NativeWrites:
    """A load of native writes, each of one record."""

    connections: int
    in_flight: int
    conditional: bool = False
    own_partitions: bool = True
    races: bool = False
    """Whether writers without numbers go on behind the winner of each place; otherwise no writer ever loses."""

    def __call__(self, stage: Stage) -> Figures:
        topic = stage.topic(self.connections if self.own_partitions else 1)
        frame = native_write(
            topic,
            topic_id(stage, topic),
            RECORD_BYTES,
            conditional=self.conditional,
            numbered=not self.races,
            partition_step=int(self.own_partitions),
        )
        mode = "race" if self.races else "load"
        return run_load(stage, mode, self.connections, self.in_flight, topic, frame, is_native=True)


@dataclass(frozen=True, slots=True)
class KafkaWrites:
    """A load of Kafka's Produce, each of one record."""

    connections: int
    in_flight: int
    conditional: bool = False
    """Whether the topic takes conditions and each record has one."""
    own_partitions: bool = True
    numbered: bool = False
    """Whether the producers are idempotent, as native writers are."""

    def __call__(self, stage: Stage) -> Figures:
        config = CONDITIONAL if self.conditional else {}
        topic = stage.topic(self.connections if self.own_partitions else 1, config=config)
        frame = kafka_write(
            topic,
            RECORD_BYTES,
            conditional=self.conditional,
            numbered=self.numbered,
            partition_step=int(self.own_partitions),
        )
        return run_load(stage, "load", self.connections, self.in_flight, topic, frame)


@dataclass(frozen=True, slots=True)
class KafkaBatches:
    """A load of Kafka's Produce on one connection, each a batch of 64 records of 1 KiB without conditions."""

    conditional: bool
    """Whether the topic takes conditions."""

    def __call__(self, stage: Stage) -> Figures:
        topic = stage.topic(config=CONDITIONAL if self.conditional else {})
        frame = WriteFrame(produce_frame(topic, record_batch(64, KIB)), ())
        return run_load(stage, "load", 1, 5, topic, frame)


def run_load(
    stage: Stage,
    mode: str,
    connections: int,
    in_flight: int,
    topic: str,
    frame: WriteFrame,
    *,
    is_native: bool = False,
) -> Figures:
    """The figures of the raw generator, which sends one frame with its fields over and over."""
    hello = stage.workspace.scratch / "hello"
    hello.write_bytes(HELLO)
    path = stage.workspace.scratch / f"{topic}.frame"
    path.write_bytes(frame.request)
    port = stage.native_port if is_native else stage.server.port
    times = (int(stage.scale.warmup_seconds * 1e3), int(stage.scale.seconds * 1e3))
    with stage.cpu_cost() as cost:
        figures = stage.raw(
            mode, port, connections, in_flight, *times, path, hello if is_native else "-", *frame.fields
        )
    return throughput(figures, cost)


def topic_id(stage: Stage, topic: str) -> str:
    """The id of a topic, in the form of gnomon's protocol."""
    admin = AdminClient({"bootstrap.servers": stage.server.bootstrap})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id
    halves = (described.get_most_significant_bits(), described.get_least_significant_bits())
    return "".join(f"{half & (1 << 64) - 1:016x}" for half in halves)
