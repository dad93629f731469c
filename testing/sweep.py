"""Runs a scenario over many seeds; what is wrong comes with the seed that shows it.

    scenario = LogScenario({"broker": run_broker}, [("broker", 9092)])      # or any async function of a simulation
    result = sweep(scenario, range(200))
    result.coverage.assert_all_counted(fault.counter for fault in Fault)

`simulate(seed, scenario)` runs one of them again; `outcome.trace` is its transcript.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from gnomon.testing.coverage import Coverage
from gnomon.testing.simulation import Simulation, simulate


@dataclass(slots=True)
class SweepResult:
    """Sums over the seeds of a sweep."""

    seeds: int = 0
    virtual_seconds: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return sum(count for name, count in self.coverage.counts.items() if name.startswith("fault/"))


def sweep(
    scenario: Callable[[Simulation], Awaitable[object]],
    seeds: Iterable[int],
    *,
    virtual_seconds_max: float = 3600.0,
    after_each: Callable[[int], None] = lambda seed: None,
) -> SweepResult:
    """Simulates every seed and stops at the first that fails.

    Args:
        after_each: told each seed that passed, for a progress bar.

    Raises:
        Exception: as `simulate`.
    """
    result = SweepResult()
    for seed in seeds:
        outcome = simulate(seed, scenario, virtual_seconds_max=virtual_seconds_max)
        result.seeds += 1
        result.virtual_seconds += outcome.virtual_seconds
        result.coverage.add(outcome.coverage)
        after_each(seed)
    return result


def seeds_to_find(
    scenario: Callable[[Simulation], Awaitable[object]], seeds: Iterable[int]
) -> tuple[int, Exception] | None:
    """How many seeds it takes until the scenario fails, and how: the power of a harness on a planted bug.

    Returns:
        None when all pass.
    """
    for count, seed in enumerate(seeds, 1):
        try:
            simulate(seed, scenario)
        except Exception as error:
            return count, error
    return None
