"""A state machine as a table: for each state the events that it may meet, each with the state after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def after(table: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """The state after an event. An event that the table does not have for a state is a bug and fails an assertion."""
    found = table[state].get(event)
    assert found is not None, f"{type(state).__name__}: '{state.value}' met the event '{event.value}'"
    return found
