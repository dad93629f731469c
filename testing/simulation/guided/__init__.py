"""Simulations that are driven step by step: by synchronous code, or by the rules of a Hypothesis state machine."""

from gnomon.testing.simulation.guided.guided_simulation import GuidedOperation, GuidedSimulation
from gnomon.testing.simulation.guided.machine_examples import check, examples_to_find, found_by
from gnomon.testing.simulation.guided.state_machine import (
    DOWN_SECONDS,
    PAUSES,
    SimulatedStateMachine,
    Trouble,
    Weather,
    weathers,
)

__all__ = [
    "DOWN_SECONDS",
    "PAUSES",
    "GuidedOperation",
    "GuidedSimulation",
    "SimulatedStateMachine",
    "Trouble",
    "Weather",
    "check",
    "examples_to_find",
    "found_by",
    "weathers",
]
