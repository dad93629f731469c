"""Runs a scenario over many seeds; an error comes with the seed that causes it.

result = sweep(scenario, range(200))   # async def scenario(simulation): ...
result.coverage.assert_all_counted(fault.counter for fault in Fault)

`simulate(seed, scenario)` runs one seed again; `outcome.trace` is the transcript. `assert_traces_repeat` checks that
two runs of a seed have the same trace.
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

from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.simulation import Simulation, simulate

FAILURES_MAX = 5
"""A sweep shows the errors of so many seeds, and then stops."""
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
    """The number of seeds that were simulated; all passed."""
    virtual_seconds: float = 0.0
    """Virtual time, of all seeds together."""
    coverage: Coverage = field(default_factory=Coverage)
    """The counters, of all seeds together."""

    def add(self, other: SweepResult) -> None:
        """Adds the sums of other seeds."""
        self.seeds += other.seeds
        self.virtual_seconds += other.virtual_seconds
        self.coverage.add(other.coverage)

    @property
    def faults(self) -> int:
        """The number of injected faults."""
        return sum(count for name, count in self.coverage.counts.items() if name.startswith("fault/"))


def sweep(
    scenario: Callable[[Simulation], Awaitable[object]],
    seeds: Iterable[int],
    *,
    processes: int = 1,
    virtual_seconds_max: float = 3600.0,
    node_packages: tuple[str, ...] = ("gnomon",),
    after_each: Callable[[], None] = lambda: None,
) -> SweepResult:
    """Simulates every seed; stops when FAILURES_MAX have failed.

    Args:
        scenario: as for `simulate`; called once for each seed.
        seeds: the seeds; those that fail are simulated a second time, to show the error.
        processes: number of processes that simulate at the same time; more than one needs a scenario that can be
            pickled.
        virtual_seconds_max: as for `simulate`.
        node_packages: as for `simulate`.
        after_each: called after each seed that passed, for a progress bar.

    Raises:
        AssertionError: a seed failed and passed the second time: something outside the seed decides.
        Exception: as `simulate`; an ExceptionGroup if several seeds failed.
    """
    result = SweepResult()
    failed: list[int] = []
    passes = partial(_passed, scenario, virtual_seconds_max, node_packages)
    with ExitStack() as stack:
        each: Iterable[SweepResult | int] = map(passes, seeds)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(processes))
            each = pool.imap_unordered(passes, seeds)
        for one in each:
            if isinstance(one, int):
                failed.append(one)
                if len(failed) == FAILURES_MAX:
                    break
                continue
            result.add(one)
            after_each()
    errors = [_error_of(seed, scenario, virtual_seconds_max, node_packages) for seed in sorted(failed)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"seeds {sorted(failed)} failed", errors)
    return result


def _error_of(
    seed: int,
    scenario: Callable[[Simulation], Awaitable[object]],
    virtual_seconds_max: float,
    node_packages: tuple[str, ...],
) -> Exception:
    """The error of a seed that failed, simulated again."""
    try:
        simulate(seed, scenario, virtual_seconds_max=virtual_seconds_max, node_packages=node_packages)
    except Exception as error:
        return error
    return AssertionError(f"seed {seed} failed in one process and passed in another: its trace does not repeat")


def _passed(
    scenario: Callable[[Simulation], Awaitable[object]],
    virtual_seconds_max: float,
    node_packages: tuple[str, ...],
    seed: int,
) -> SweepResult | int:
    """One seed's contribution to the sums, or the seed if it failed: simulating it again shows the error."""
    try:
        outcome = simulate(seed, scenario, virtual_seconds_max=virtual_seconds_max, node_packages=node_packages)
    except Exception:
        return seed
    return SweepResult(1, outcome.virtual_seconds, outcome.coverage)


def seeds_to_find(
    scenario: Callable[[Simulation], Awaitable[object]], seeds: Iterable[int]
) -> tuple[int, Exception] | None:
    """The number of seeds until the scenario fails, and its error: the power of a harness on a planted bug.

    Args:
        scenario: as for `simulate`.
        seeds: tried one after the other until one fails.

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
    """Simulates the seeds in two processes, with different string hashes and in opposite orders: each seed has the same
    trace in both, and its own.

    Args:
        module: the scenario's module; both processes have the same import path.
        scenario: an expression of the module's names.
        seeds: at least two of them show that different seeds give different traces.

    Raises:
        AssertionError: a trace depends on the order of a set, on other differences between processes, or on what a
            simulation before it has left behind; or two seeds have the same one.
    """
    seeds = list(seeds)
    orders = seeds, seeds[::-1]
    path = os.pathsep.join(sys.path)
    replays = [
        subprocess.Popen(
            [sys.executable, "-c", _REPLAY.format(module=module, scenario=scenario, seeds=order)],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for order, hash_seed in zip(orders, _HASH_SEEDS, strict=True)
    ]
    traces = [
        dict(zip(order, replay.communicate()[0].split(), strict=False))
        for order, replay in zip(orders, replays, strict=True)
    ]
    assert [replay.returncode for replay in replays] == [0, 0], "a replay failed, see its error above"
    first, second = traces
    differing = [seed for seed, trace in first.items() if trace != second[seed]]
    assert not differing, f"seeds {differing} have another trace in another process, or after other seeds"
    assert len(set(first.values())) == len(first), "two seeds have the same trace"
