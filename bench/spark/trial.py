"""Single measurements, and their rotation: every system of a part in turn, each round begins with another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.reports.summary import Failed, Measured, Outcome, Skipped
from bench.spark.record import SparkRecord
from bench.spark.scale import SparkScale
from bench.workspace import Workspace

FAILURES = (GeneratorFailed, KafkaException, OSError)


@dataclass(frozen=True, slots=True)
class Trial:
    """One system in one case."""

    case: str
    system: str
    run: Callable[[], Figures]


@dataclass(slots=True)
class PartRun:
    """One run of a part: its environment, and the place of its outcomes.

    `announce` gets a line for each outcome.
    """

    part: str
    workspace: Workspace
    scale: SparkScale
    record: SparkRecord
    announce: Callable[[str], None]
    failed: bool = False

    @property
    def folder(self) -> Path:
        """The folder of logs and files, which is removed at the end."""
        return self.workspace.scratch

    def measure(self, trials: Sequence[Trial]) -> None:
        """Warms all systems up, and measures them in rotation; a system that fails is not asked again."""
        left = list(trials)
        for number in range(-self.scale.warm_ups, self.scale.rounds):
            first = number % max(1, len(left))
            for trial in (*left[first:], *left[:first]):
                outcome = attempt(trial.run)
                if number >= 0 or not isinstance(outcome, Measured):
                    self.note(trial.case, trial.system, outcome, number)
                if not isinstance(outcome, Measured):
                    left.remove(trial)

    def note(self, case: str, system: str, outcome: Outcome, number: int = 0) -> None:
        """Records an outcome and announces it."""
        self.record.add(self.part, case, system, outcome)
        self.failed |= isinstance(outcome, Failed)
        words = (
            ", ".join(f"{name} {value:,.4g}" for name, value in outcome.figures.items())
            if isinstance(outcome, Measured)
            else f"{type(outcome).__name__.upper()}: {outcome.reason}"
        )
        self.announce(f"round {number + 1}/{self.scale.rounds}  {self.part}  {case}  {system}: {words}")


def attempt(run: Callable[[], Figures]) -> Outcome:
    """The outcome of a measurement."""
    try:
        return Measured(run())
    except GeneratorUnavailable as reason:
        return Skipped(str(reason))
    except FAILURES as failure:
        return Failed(str(failure))
