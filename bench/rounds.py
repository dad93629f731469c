"""The rounds of a run: every system in turn, in rotated order, one server at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException

from bench.generator import Figures, GeneratorFailed, GeneratorUnavailable
from bench.reports.summary import Failed, Measured, Outcome, Skipped, Summary
from bench.scenario import Scenario
from bench.scenarios import warm_up
from bench.stage import Stage

Announce = Callable[[int, str, Scenario, Outcome], None]


@dataclass(slots=True)
class BenchRounds:
    """Measures `scenarios` on the systems of `stages`, `count` times.

    Each round starts with another system, so that a slow drift of the machine touches all of them alike; between
    systems the old data is removed and the disk comes to rest.
    """

    stages: Sequence[Stage]
    scenarios: Sequence[Scenario]
    count: int
    announce: Announce

    def run(self, summary: Summary) -> None:
        for number in range(self.count):
            first = number % len(self.stages)
            for stage in (*self.stages[first:], *self.stages[:first]):
                self._system(number, stage, summary)
                stage.discard()
                os.sync()

    def _system(self, number: int, stage: Stage, summary: Summary) -> None:
        def note(scenario: Scenario, outcome: Outcome) -> None:
            summary.add(scenario.name, stage.system.name, outcome)
            self.announce(number, stage.system.name, scenario, outcome)

        chosen = [scenario for scenario in self.scenarios if stage.system.name in scenario.systems]
        waiting = [scenario for scenario in chosen if not scenario.own_server]
        while waiting:
            waiting = self._serve(stage, waiting, note)
        for scenario in chosen:
            if scenario.own_server:
                note(scenario, _attempt(scenario.measure, stage))

    def _serve(
        self, stage: Stage, waiting: list[Scenario], note: Callable[[Scenario, Outcome], None]
    ) -> list[Scenario]:
        """Runs scenarios on one server until it dies or none is left; returns those that need another server."""
        try:
            installation = stage.system.install(stage.workspace)
        except GeneratorUnavailable as reason:
            for scenario in waiting:
                note(scenario, Skipped(str(reason)))
            return []
        started: Outcome
        try:
            with stage.serving(installation):
                started = _attempt(warm_up, stage)
                while isinstance(started, Measured) and waiting and stage.served:
                    scenario, *waiting = waiting
                    note(scenario, _attempt(scenario.measure, stage))
        except GeneratorFailed as failure:
            started = Failed(str(failure))
        if isinstance(started, Measured):
            return waiting
        for scenario in waiting:
            note(scenario, started)
        return []


def _attempt(measure: Callable[[Stage], Figures], stage: Stage) -> Outcome:
    try:
        return Measured(measure(stage))
    except GeneratorUnavailable as reason:
        return Skipped(str(reason))
    except (GeneratorFailed, KafkaException, OSError) as failure:
        return Failed(str(failure))
