"""The goals of a fan-out, each a bound on the median of the runs, and whether each was reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.fanout.record import RunRecord
from bench.fanout.scale import FanoutScale

CONNECTED_SECONDS = {10_000: 5.0, 40_000: 30.0, 100_000: 100.0}
MEAN_MS = {10_000: 150.0, 40_000: 500.0, 100_000: 1_000.0}


@dataclass(frozen=True, slots=True)
class FanoutVerdict:
    """One goal in one case; `measured` is None if it was not measured."""

    part: str
    case: str
    what: str
    bound: float
    unit: str
    measured: float | None

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        return "reached" if self.measured <= self.bound else "missed"


def subscriptions_case(count: int, shadows: int) -> str:
    return f"{count:,} subscriptions, {shadows} shadows"


def delay_case(rate: int) -> str:
    return f"{rate:,} msg/s"


def fan_case(shadows: int) -> str:
    return f"{shadows} shadows"


def consumers_case(consumers: int, shadows: int) -> str:
    return f"{consumers:,} consumers, {shadows} shadows"


STORAGE_CASE = "4 shadows"


def verdicts(record: RunRecord, scale: FanoutScale) -> Iterator[FanoutVerdict]:
    """All goals, in the order of the page."""
    bytes_each = record.median("storage", STORAGE_CASE, "shadow_bytes")
    yield FanoutVerdict("storage", STORAGE_CASE, "bytes on bookies per shadow per message", 0, "B", bytes_each)
    for count in scale.subscriptions:
        for shadows in scale.spreads:
            yield from _of_subscriptions(record, count, subscriptions_case(count, shadows))
    for rate in scale.rates:
        for figure, bound in (("delay_p50_ms", 2.0), ("delay_p99_ms", 10.0)) if rate == 1_000 else ():
            case, what = delay_case(rate), f"delay source → shadow, p{figure[7:9]}"
            yield FanoutVerdict("delay", case, what, bound, "ms", record.median("delay", case, figure))
    for figure, load in (("paced_cpu_us", "steady"), ("full_cpu_us", "full rate")):
        alone = record.median("produce", fan_case(0), figure)
        for shadows in filter(None, scale.fans):
            beside = record.median("produce", fan_case(shadows), figure)
            each = None if alone is None or beside is None else (beside / alone - 1) * 100 / shadows
            yield FanoutVerdict(
                "produce", fan_case(shadows), f"CPU per message, {load}, more per shadow", 3.0, "%", each
            )


def _of_subscriptions(record: RunRecord, count: int, case: str) -> Iterator[FanoutVerdict]:
    bounds = [
        ("connected_s", "all connected", CONNECTED_SECONDS.get(count), "s"),
        ("mean_ms", "mean delivery", MEAN_MS.get(count), "ms"),
        ("broker_cpu_us", "broker CPU a delivery", 15.0, "µs"),
        ("subscription_bytes", "memory a subscription", 4096.0, "B"),
        ("produce_wait_ms", "longest produce on the source", 50.0, "ms"),
    ]
    for figure, what, bound, unit in bounds:
        if bound is not None:
            yield FanoutVerdict("subscriptions", case, what, bound, unit, record.median("subscriptions", case, figure))
