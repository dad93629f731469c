"""The progress display of the job: bars on a terminal, plain lines elsewhere; all of it on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

REDRAWS_PER_SECOND = 8
"""A redraw uses the processor that the clients and the broker share."""


class Screen:
    """Shows stages of work. Inside its `with` block events appear above the bars."""

    def __init__(self, console: Console) -> None:
        self._live = console.is_terminal and not console.is_dumb_terminal
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not self._live,
            expand=True,
            refresh_per_second=REDRAWS_PER_SECOND,
        )

    @contextmanager
    def showing(self) -> Iterator[None]:
        with self._progress:
            yield

    def say(self, text: str) -> None:
        """Writes one line about an event; from any thread."""
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage of the job; yields a function that takes the completed part of the total."""
        began = time.monotonic()
        task = self._progress.add_task(name, total=total)
        done = 0

        def advance(completed: int) -> None:
            nonlocal done
            if completed != done:
                done = completed
                self._progress.update(task, completed=completed)

        yield advance
        if not self._live:
            self.say(f"{name}: {done:,} of {total:,} in {time.monotonic() - began:.1f} s")
