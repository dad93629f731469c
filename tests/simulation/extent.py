"""How far the sweeps here go: `SEEDS=1000 FIRST_SEED=200 PROCESSES=2` in the environment widens them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from gnomon.testing.simulation import Simulation
from gnomon.testing.sweep import SweepResult, sweep


def swept(scenario: Callable[[Simulation], Awaitable[object]], usual: int, part: float = 1.0) -> SweepResult:
    """Sweeps over `usual` seeds, or as many as were asked for, and says what that came to.

    Args:
        part: of the seeds that were asked for; a sweep over a part of what another one does takes fewer.

    Raises:
        Exception: as `sweep`.
    """
    count, first = round(int(os.environ.get("SEEDS", usual / part)) * part), int(os.environ.get("FIRST_SEED", "0"))
    console = Console(stderr=True)
    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=count)
        result = sweep(
            scenario,
            range(first, first + count),
            processes=int(os.environ.get("PROCESSES", "1")),
            after_each=lambda: bar.advance(task),
        )
    hours = result.virtual_seconds / 3600
    print(f"seeds {first} to {first + count - 1}: {hours:.2f} virtual hours, {result.faults} faults, nothing found")
    return result
