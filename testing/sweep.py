"""Runs a scenario over many seeds; what is wrong comes with the seed that shows it.

    scenario = LogScenario({"broker": run_broker}, [("broker", 9092)])      # or any async function of a simulation
    result = sweep(scenario, range(200))
    result.coverage.assert_all_counted(fault.counter for fault in Fault)

`simulate(seed, scenario)` runs one of them again; `outcome.trace` is its transcript. That it is the same one again is
what `assert_traces_repeat` looks at.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from gnomon.testing.coverage import Coverage
from gnomon.testing.simulation import Simulation, simulate

_HASH_SEEDS = ("1", "4242")
_REPLAY = """
import {module}
from gnomon.testing.simulation import simulate
for seed in {seeds}:
    print(simulate(seed, {module}.{scenario}).digest)
"""


@dataclass(slots=True)
class SweepResult:
    """Sums over the seeds of a sweep."""

    seeds: int = 0
    virtual_seconds: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, other: SweepResult) -> None:
        """Takes in the sums of other seeds."""
        self.seeds += other.seeds
        self.virtual_seconds += other.virtual_seconds
        self.coverage.add(other.coverage)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return sum(count for name, count in self.coverage.counts.items() if name.startswith("fault/"))


def sweep(
    scenario: Callable[[Simulation], Awaitable[object]],
    seeds: Iterable[int],
    *,
    processes: int = 1,
    virtual_seconds_max: float = 3600.0,
    after_each: Callable[[], None] = lambda: None,
) -> SweepResult:
    """Simulates every seed and stops at the first that fails.

    Args:
        processes: how many simulate at the same time; with more than one, what can be pickled is a scenario.
        after_each: told of each seed that passed, for a progress bar.

    Raises:
        Exception: as `simulate`.
    """
    result = SweepResult()
    passes = partial(_passed, scenario, virtual_seconds_max)
    with ExitStack() as stack:
        each: Iterable[SweepResult | int] = map(passes, seeds)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(processes))
            each = pool.imap_unordered(passes, seeds)
        for one in each:
            if isinstance(one, int):
                simulate(one, scenario, virtual_seconds_max=virtual_seconds_max)
                raise AssertionError(
                    f"seed {one} failed in one process and passed in another: its trace does not repeat"
                )
            result.add(one)
            after_each()
    return result


def _passed(
    scenario: Callable[[Simulation], Awaitable[object]], virtual_seconds_max: float, seed: int
) -> SweepResult | int:
    """What one seed adds to the sums, or the seed where it failed: how it did is seen when it is simulated again."""
    try:
        outcome = simulate(seed, scenario, virtual_seconds_max=virtual_seconds_max)
    except Exception:
        return seed
    return SweepResult(1, outcome.virtual_seconds, outcome.coverage)


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


def assert_traces_repeat(module: str, scenario: str, seeds: Iterable[int]) -> None:
    """Simulates the seeds in two processes whose strings hash otherwise: each seed has a trace of its own in both.

    Args:
        module: where the scenario is; what can be imported here can be imported there.
        scenario: an expression of the module's names.

    Raises:
        AssertionError: a trace depends on the order of a set, or on what else differs between processes; or two
            seeds have the same one.
    """
    seeds = list(seeds)
    script = _REPLAY.format(module=module, scenario=scenario, seeds=seeds)
    path = os.pathsep.join(sys.path)
    replays = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in _HASH_SEEDS
    ]
    first, second = (replay.communicate()[0].split() for replay in replays)
    assert [replay.returncode for replay in replays] == [0, 0], "a replay failed, see its error above"
    differing = [seed for seed, one, other in zip(seeds, first, second, strict=True) if one != other]
    assert not differing, f"seeds {differing} have another trace in another process"
    assert len(set(first)) == len(seeds), "two seeds have the same trace"
