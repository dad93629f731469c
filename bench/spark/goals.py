"""The goals of Spark's figures: medians, and ratios of medians within one run of a part."""

from __future__ import annotations

from collections.abc import Iterator

from bench.reports.goal import Goal, GoalStatus, Verdict, judge
from bench.reports.report import number
from bench.spark.parts import beside, codec, lake, micro_batch, reads
from bench.spark.parts import sink as sinks
from bench.spark.record import SparkRecord, scenario
from bench.spark.server import CLUSTER, STANDALONE

FIGURES = {
    "rate": "rows a second",
    "brokers_us": "CPU of the brokers",
    "p50_ms": "batch, p50",
    "commit_ms": "commit, p50",
    "p99_ms": "produce, p99",
}
WORDS = {GoalStatus.REACHED: "met", GoalStatus.MISSED: "missed", GoalStatus.UNKNOWN: "not measured"}


def goals() -> Iterator[Goal]:
    """All goals, in the order of the page."""
    whole, narrow = scenario("read-cluster", reads.ALL), scenario("read-cluster", reads.VALUE)
    yield Goal(whole, "rate", "≥", 1.2, peer=reads.BEST, system=reads.BOOKIES)
    yield Goal(whole, "rate", "≥", 2.2, peer=reads.DEFAULTS, system=reads.BOOKIES)
    yield Goal(narrow, "rate", "≥", 1.6, peer=reads.BEST, system=reads.BOOKIES)
    yield Goal(whole, "brokers_us", "≤", 0.02, unit="µs a row", system=reads.BOOKIES)
    alone = scenario("read-standalone", reads.ALL)
    yield Goal(alone, "rate", "≥", 0.7, peer=reads.BEST, system=reads.BROKERS)
    yield Goal(alone, "rate", "≥", 1.5, peer=reads.DEFAULTS, system=reads.BROKERS)
    for case, bound in (
        (codec.DECODE_SMALL, 4e6),
        (codec.DECODE_LARGE, 1.5e6),
        (codec.DECODE_SINGLE, 0.2e6),
        (codec.ENCODE_SMALL, 4e6),
        (codec.ENCODE_LARGE, 2e6),
    ):
        yield Goal(scenario("codec", case), "rate", "≥", bound, unit="rows/s", system=codec.SYSTEM)
    for case in (STANDALONE, CLUSTER):
        yield Goal(scenario("sink", case), "rate", "≥", 1, peer=sinks.PLAIN, system=sinks.SYSTEM)
    for case in (CLUSTER, STANDALONE):
        for figure, bound in (("p50_ms", 500.0), ("commit_ms", 60.0)):
            yield Goal(scenario("micro-batch", case), figure, "≤", bound, unit="ms", system=micro_batch.SYSTEM)
    for case in (lake.TO_DELTA, lake.TO_PARQUET):
        yield Goal(scenario("table", case), "rate", "≥", 1, peer=lake.BEST, system=lake.SYSTEM)
    yield Goal(scenario("beside", beside.CASE), "p99_ms", "≤", 1.5, peer=beside.NO_JOB, system=reads.BOOKIES)


def verdicts(record: SparkRecord) -> list[Verdict]:
    """The verdicts on the goals of all cases in the record."""
    summary = record.summary()
    measured = {name for name, _ in summary.outcomes}
    return [judge(goal, summary) for goal in goals() if goal.scenario in measured]


def bound_text(goal: Goal) -> str:
    """The bound, with its unit or as a multiple of the peer."""
    return f"{goal.comparison} {number(goal.bound)}{'×' if goal.peer else ' ' + goal.unit}"


def subject(goal: Goal) -> str:
    """The figure and the systems that a goal compares."""
    return f"{FIGURES[goal.figure]} of {goal.system}" + (f" ÷ {goal.peer}" if goal.peer else "")
