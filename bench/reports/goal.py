"""The goals: ratios of medians within one run, and whether they were reached."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bench.reports.summary import Summary

COMPARISONS: dict[str, Callable[[float, float], bool]] = {"≥": operator.ge, "≤": operator.le}


class GoalStatus(Enum):
    REACHED = "reached"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """The `figure` of a system in a scenario, divided by that of `peer` if there is one, against a bound."""

    scenario: str
    figure: str
    comparison: str
    bound: float
    peer: str = ""
    unit: str = ""
    system: str = "gnomon"

    @property
    def expression(self) -> str:
        return f"{self.figure} {self.system} ÷ {self.peer}" if self.peer else f"{self.figure} {self.system}"

    @property
    def bound_text(self) -> str:
        return f"{self.comparison} {self.bound:g}{'×' if self.peer else ' ' + self.unit}"


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    status: GoalStatus
    measured: float | None


def judge(goal: Goal, summary: Summary) -> Verdict:
    """The verdict on a goal: unknown if the system, or the peer if there is one, was not measured in every round."""
    own = summary.spread(goal.scenario, goal.system, goal.figure)
    peer = summary.spread(goal.scenario, goal.peer, goal.figure) if goal.peer else None
    if own is None or (goal.peer and (peer is None or peer.median == 0)):
        return Verdict(goal, GoalStatus.UNKNOWN, None)
    measured = own.median / peer.median if peer else own.median
    reached = COMPARISONS[goal.comparison](measured, goal.bound)
    return Verdict(goal, GoalStatus.REACHED if reached else GoalStatus.MISSED, measured)


GOALS = (
    Goal("produce-1k-64k", "rate", "≥", 3, peer="kafka-synced"),
    Goal("produce-1k-64k", "rate", "≥", 0.8, peer="kafka"),
    Goal("produce-1k-64k", "rate", "≥", 0.7, peer="floor"),
    Goal("produce-100b-64k", "rate", "≥", 2.5, peer="kafka-synced"),
    Goal("produce-100b-64k", "rate", "≥", 0.7, peer="floor"),
    Goal("unbatched-50x1", "rate", "≥", 8, peer="kafka-synced"),
    Goal("unbatched-1x100", "rate", "≥", 20, peer="kafka-synced"),
    Goal("unbatched-1x1", "p50_ms", "≤", 1.3, peer="kafka-synced"),
    Goal("consume-1k", "rate", "≥", 0.7, peer="kafka"),
    Goal("end-to-end", "p50_ms", "≤", 1.0, peer="kafka-synced"),
    Goal("end-to-end", "p99_ms", "≤", 1.0, peer="kafka-synced"),
    Goal("start-up", "acknowledged_s", "≤", 0.25, peer="kafka"),
    Goal("memory", "resident_idle_mb", "≤", 0.25, peer="kafka"),
    Goal("memory", "anonymous_loaded_mb", "≤", 300, unit="MB"),
    Goal("restart", "ready_s", "≤", 2, unit="s"),
    Goal("subscribe", "first_message_ms", "≤", 200, unit="ms"),
    Goal("fan-out", "delivered_percent", "≥", 100, unit="%"),
    Goal("produce-1k-64k", "per_cpu_second", "≥", 0.5, peer="gnomon", system="cluster"),
    Goal("takeover", "served_ms", "≤", 200, unit="ms", system="cluster"),
    Goal("native-50x1", "ratio", "≥", 0.8, unit="×"),
    Goal("native-1x100", "ratio", "≥", 0.8, unit="×"),
    Goal("conditional-50x1", "ratio", "≥", 0.95, unit="×"),
    Goal("conditional-1x100", "ratio", "≥", 0.95, unit="×"),
    Goal("conditional-race", "ratio", "≥", 0.8, unit="×"),
    Goal("conditional-race", "longest_wait_ms", "≤", 1_000, unit="ms"),
    Goal("conditional-batches", "ratio", "≤", 1.1, unit="×"),
    Goal("conditional-header", "ratio", "≤", 1.15, unit="×"),
    Goal("table-put-1x1", "ratio", "≤", 1.3, unit="×"),
    Goal("table-put-1x1", "p50_ms", "≤", 1.0, peer="etcd"),
    Goal("table-put-50x1", "ratio", "≥", 0.6, unit="×"),
    Goal("table-put-50x1", "rate", "≥", 1.0, peer="etcd"),
    Goal("table-put-50x1", "rate", "≥", 1.0, peer="nats"),
    Goal("table-put-50x1", "rate", "≥", 0.2, peer="redis"),
    Goal("table-get-50x1", "ratio", "≥", 1.0, unit="×"),
    Goal("table-get-50x1", "rate", "≥", 1.0, peer="etcd"),
    Goal("table-get-cluster", "p50_ms", "≤", 3, unit="ms", system="cluster"),
    Goal("table-get-cluster", "metadata_reads", "≤", 0.05, system="cluster"),
    Goal("table-swap", "ratio", "≥", 0.8, unit="×"),
    Goal("table-swap", "longest_wait_ms", "≤", 1_000, unit="ms"),
    Goal("table-scan", "rate", "≥", 100_000, unit="entries/s"),
    Goal("table-batches", "rate", "≥", 100_000, unit="entries/s"),
    Goal("table-batches-memory", "rate", "≥", 100_000, unit="entries/s"),
    Goal("table-batches-many", "rate", "≥", 100_000, unit="entries/s"),
    Goal("table-load", "from_log", "≥", 100_000, unit="entries/s"),
    Goal("table-load", "from_snapshot", "≥", 100_000, unit="entries/s"),
    Goal("table-takeover-shadow", "first_get_s", "≤", 1, unit="s", system="cluster"),
    Goal("table-takeover-cold", "first_get_s", "≤", 15, unit="s", system="cluster"),
    Goal("table-large", "rate", "≥", 2_000, unit="req/s"),
    Goal("table-large", "longest_produce_ms", "≤", 50, unit="ms"),
    Goal("table-large", "snapshot_mb", "≤", 64, unit="MB"),
    Goal("table-large", "watch_mb", "≤", 0, unit="MB"),
    Goal("ledgers", "served_s", "≤", 20, unit="s", system="cluster"),
)
