"""Runs the examples of a Hypothesis state machine: as a test, or to count how many it takes to find a planted bug.

def test_queues():
    check(Queues, max_examples=20).assert_all_counted(["fault/kill", "log/queue recovered"])
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from gnomon.testing.simulation.coverage import Coverage
from gnomon.testing.simulation.guided.state_machine import SimulatedStateMachine

STEPS = 30
SEED = 1
"""Seed of the fixed examples; not derived from the test, so that an edit of the test does not change them."""
LONGER = "EXAMPLES"
"""The environment variable with the number of examples to run of each machine, different ones in each run."""


def check(machine: type[SimulatedStateMachine], *, max_examples: int, steps: int = STEPS) -> Coverage:
    """Runs a state machine as a test: the same examples each time, or other ones, as many as `LONGER` says.

    Args:
        machine: the class.
        max_examples: the number of examples; each has a simulation of its own.
        steps: the largest number of rules that one example runs.

    Returns:
        The coverage.

    Raises:
        Exception: the error of an example, with its steps, as few as possible, as a note.
    """
    longer = int(os.environ.get(LONGER, "0"))
    examples = _Examples(machine)
    number = secrets.randbits(32) if longer else SEED
    try:
        _run(examples, number, longer or max_examples, steps, [Phase.generate, Phase.shrink])
    except Exception as error:
        error.add_note(f"in {machine.__name__}, {steps} steps, Hypothesis' seed {number}")
        raise
    return examples.reached


def examples_to_find(
    machine: type[SimulatedStateMachine], max_examples: int, steps: int = STEPS
) -> tuple[int, Exception] | None:
    """The number of examples until one failed, and its error; None if none did. Nothing is shrunk.

    Args:
        machine, max_examples, steps: as for `check`.
    """
    examples = _Examples(machine)
    try:
        _run(examples, SEED, max_examples, steps, [Phase.generate])
    except Exception as error:
        return examples.failed_at, error
    return None


def found_by(machine: type[SimulatedStateMachine], max_examples: int, steps: int = STEPS) -> str:
    """The text of the error by which a planted bug is found.

    Args:
        machine, max_examples, steps: as for `check`.

    Raises:
        AssertionError: it is not found within this many examples.
    """
    found = examples_to_find(machine, max_examples, steps)
    assert found is not None, f"{max_examples} examples of {machine.__name__} did not find it"
    return f"{found[1]}\n(in {found[0]} examples)"


def _run(examples: _Examples, number: int, max_examples: int, steps: int, phases: Collection[Phase]) -> None:
    bounds = settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        phases=phases,  # without the explain phase, which takes longer than it helps
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    # Hypothesis documents that any callable that makes a machine works, but its types allow only classes.
    factory: Any = seed(number)(examples)
    run_state_machine_as_test(factory, settings=bounds)


class _Examples:
    """Makes one machine for each example."""

    def __init__(self, machine: type[SimulatedStateMachine]) -> None:
        self.count = 0
        self.failed_at = 0
        self.reached = Coverage()
        self._machine = machine

    def __call__(self) -> SimulatedStateMachine:
        self.count += 1
        made = self._machine()
        made.ended = self._ended
        return made

    def _ended(self, made: SimulatedStateMachine, failed: bool) -> None:
        self.reached.add(made.simulation.coverage)
        if failed and not self.failed_at:
            self.failed_at = self.count
