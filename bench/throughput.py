"""Rates and processor time per operation, derived from what a generator and /proc counted."""

from __future__ import annotations

from bench.generator import Figures, GeneratorFailed
from bench.stage import CpuCost

CPU_GRAIN_SECONDS = 0.01


def throughput(figures: Figures, cost: CpuCost) -> dict[str, float]:
    """Rates, and processor time per operation on both sides; `total` counts a generator's warm-up too."""
    operations, seconds = figures["operations"], figures["seconds"]
    if operations <= 0 or seconds <= 0:
        raise GeneratorFailed("nothing was answered after the warm-up: measure for longer")
    total = figures.get("total", operations)
    derived = {
        "rate": operations / seconds,
        "megabytes_per_s": figures.get("bytes", 0.0) / seconds / 1e6,
        "generator_cpu_us": figures["generator_cpu_s"] / total * 1e6,
        "broker_cpu_us": cost.seconds / total * 1e6,
        "per_cpu_second": total / max(cost.seconds, CPU_GRAIN_SECONDS),
    }
    return {**figures, **derived}
