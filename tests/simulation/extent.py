"""How far the sweeps here go: `SEEDS=1000 FIRST_SEED=200 PROCESSES=2` in the environment widens them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from gnomon.testing.simulation import Simulation
from gnomon.testing.sweep import SweepResult, sweep

GOES_ON = 3
"""Times as many seeds as usual until a sweep has to have reached all that it is to reach."""


def swept(
    scenario: Callable[[Simulation], Awaitable[object]], usual: int, part: float = 1.0, reaches: Collection[str] = ()
) -> SweepResult:
    """Sweeps over `usual` seeds, or as many as were asked for, and says what that came to.

    Args:
        part: of the seeds that were asked for; a sweep over a part of what another one does takes fewer.
        reaches: counters; where nobody asked for a number, further seeds follow until each was reached, up to GOES_ON
            times `usual`.

    Raises:
        AssertionError: a counter of `reaches` stands at zero.
        Exception: as `sweep`.
    """
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
    while asked is None and result.seeds < GOES_ON * usual and not all(map(result.coverage.counts.get, reaches)):
        result.add(sweep(scenario, [first + result.seeds]))
    last, hours = first + result.seeds - 1, result.virtual_seconds / 3600
    print(f"seeds {first} to {last}: {hours:.2f} virtual hours, {result.faults} faults, nothing found")
    result.coverage.assert_all_counted(reaches)
    return result
