"""Outcomes of single measurements, and minimum, median and maximum over the rounds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.generator import Figures


@dataclass(frozen=True, slots=True)
class Measured:
    figures: Figures


@dataclass(frozen=True, slots=True)
class Failed:
    """An error in an answer, a lost record, a dead server: such a run has no figures."""

    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """This machine cannot measure it."""

    reason: str


Outcome = Measured | Failed | Skipped


@dataclass(frozen=True, slots=True)
class Spread:
    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), statistics.median(values), max(values))


@dataclass(slots=True)
class Summary:
    """All outcomes by scenario and system, in the order of the rounds."""

    outcomes: defaultdict[tuple[str, str], list[Outcome]] = field(default_factory=lambda: defaultdict(list))

    def add(self, scenario: str, system: str, outcome: Outcome) -> None:
        self.outcomes[scenario, system].append(outcome)

    def spread(self, scenario: str, system: str, figure: str) -> Spread | None:
        """None unless every round measured it: a failed round is not averaged away."""
        outcomes = self.outcomes.get((scenario, system), [])
        measured = [outcome.figures for outcome in outcomes if isinstance(outcome, Measured)]
        values = [figures[figure] for figures in measured if figure in figures]
        return Spread.of(values) if values and len(values) == len(outcomes) else None

    def lacks(self, scenario: str, system: str, figure: str) -> bool:
        """Whether a system was measured, and has no such figure."""
        outcomes = self.outcomes.get((scenario, system), [])
        return any(isinstance(outcome, Measured) and figure not in outcome.figures for outcome in outcomes)

    def trouble(self, scenario: str, system: str) -> Failed | Skipped | None:
        """The first failure, or else why it was skipped."""
        outcomes = self.outcomes.get((scenario, system), [])
        return next(_of_kind(outcomes, Failed), None) or next(_of_kind(outcomes, Skipped), None)


def _of_kind(outcomes: Iterable[Outcome], kind: type[Failed] | type[Skipped]) -> Iterator[Failed | Skipped]:
    return (outcome for outcome in outcomes if isinstance(outcome, kind))
