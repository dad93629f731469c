"""The number of seeds of the sweeps here: `SEEDS=1000 FIRST_SEED=200 PROCESSES=2` in the environment widens them.

Without a number in the environment a sweep takes the few seeds that `make test` has time for, and does not look at
counters: which branches a few seeds reach is chance.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Awaitable, Callable, Collection

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from gnomon.testing.simulation.simulation import Simulation
from gnomon.testing.simulation.sweeps import SweepResult, sweep

LONG = 500
"""Seeds of a sweep that reaches rare branches."""


def swept(
    scenario: Callable[[Simulation], Awaitable[object]],
    usual: int,
    part: float = 1.0,
    reaches: Collection[str] = (),
    often: Collection[str] = (),
    rare: Collection[str] = (),
) -> SweepResult:
    """Sweeps over `usual` seeds, or the number in the environment, and prints a summary.

    Args:
        part: the share of the number in the environment that this sweep takes; narrower sweeps take fewer seeds.
        reaches: counters that a sweep with a number in the environment reaches.
        often: counters of which such a sweep reaches a quarter of the number of seeds.
        rare: counters that a sweep of LONG seeds or more reaches.

    Raises:
        AssertionError: a counter of `reaches` or `rare` is zero, or one of `often` is too low.
        Exception: as `sweep`.
    """
    pickle.dumps(scenario)  # a scenario that cannot be sent to other processes also fails with one process
    first, asked = int(os.environ.get("FIRST_SEED", "0")), os.environ.get("SEEDS")
    count = usual if asked is None else round(int(asked) * part)
    console = Console(stderr=True)
    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    processes = int(os.environ.get("PROCESSES", "1"))
    with bar:
        task = bar.add_task("", total=count)
        seeds = range(first, first + count)
        result = sweep(scenario, seeds, processes=processes, after_each=lambda: bar.advance(task))
    last, hours = first + result.seeds - 1, result.virtual_seconds / 3600
    largest = "".join(f", {name} {value:.3f} s" for name, value in sorted(result.coverage.largest.items()))
    print(
        f"seeds {first} to {last}: {hours:.2f} virtual hours, {result.faults} faults, nothing found"
        + (f"; at most{largest[1:]}" if largest else "")
    )
    if asked is not None:
        result.coverage.assert_all_counted(reaches)
        result.coverage.assert_all_counted(often, at_least=max(1, result.seeds // 4))
    if result.seeds >= LONG:
        result.coverage.assert_all_counted(rare)
    return result
