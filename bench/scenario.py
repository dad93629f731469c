"""A scenario: the work of a server, and the resulting figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.generator import Figures
from bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Column:
    """A figure with its unit; `more` says whether more of it is better."""

    figure: str
    label: str
    unit: str
    more: bool = False


MESSAGES = Column("rate", "messages", "msg/s", more=True)
REQUESTS = Column("rate", "requests", "req/s", more=True)
PER_CPU_SECOND = Column("per_cpu_second", "messages per second of broker CPU", "msg", more=True)
BROKER_CPU = Column("broker_cpu_us", "broker CPU per request", "µs")
WIN_RATE = Column("rate", "wins", "wins/s", more=True)
P50 = Column("p50_ms", "p50", "ms")
P99 = Column("p99_ms", "p99", "ms")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`measure` runs on a warm server of the round, or (`own_server`) starts and kills its own."""

    name: str
    title: str
    systems: tuple[str, ...]
    columns: tuple[Column, ...]
    measure: Callable[[Stage], Figures]
    own_server: bool = False


def ratio(label: str, *, more: bool) -> Column:
    """The ratio of two loads that are measured in turn."""
    return Column("ratio", label, "×", more=more)
