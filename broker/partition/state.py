"""The states of a partition that this broker leads, and the events that move it between them. Pure.

1. `TABLE` has every transition. An event that `TABLE` does not have for a state is a bug (`runtime.state_table`).
2. The log is readable in the states of `SHOWN`, and no entry is given to readers in any other state.
3. Appends are written in the states of `WRITABLE`. In the states of `OPENING_STATES` and `ROLLING_STATES` they wait.
4. In CLOSED and READABLE no append is written or waits: the next append begins an opening, or is refused. In READABLE
   the log is still readable, because no newer claim of it is known.
5. RELEASED and ENDED are final, except that the topic of a released partition can be deleted.

The first opening is CLOSED → OPENING → OPEN. After a failed write come READABLE → REOPENING → OPEN. A roll is OPEN →
ROLLING → OPEN. If the metadata service does not answer, ROLLING leads to OVERRUNNING; from there the partition moves to
OPEN when the service answers again, or to FULL when the segment reaches its bound first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionState(Enum):
    """The state of a partition: it decides what happens to a new append and whether the log is readable."""

    CLOSED = "closed"
    """No log is readable; an append opens the chain."""
    OPENING = "opening"
    """The chain is being claimed for the first time since CLOSED: no log is readable, appends wait."""
    OPEN = "open"
    """Appends are written."""
    ROLLING = "rolling"
    """The segment ends and the next one begins: appends wait. The roll may be postponed."""
    OVERRUNNING = "overrunning"
    """A roll was postponed: appends are written to a segment that is larger than its size, within a bound."""
    FULL = "full"
    """The segment is at that bound and must roll now: appends wait. If the roll cannot begin, writing fails."""
    READABLE = "readable"
    """Writing failed: the durable log is readable, an append opens the chain again."""
    REOPENING = "reopening"
    """The chain is being claimed again: the durable log is readable, appends wait."""
    RELEASED = "released"
    """Another broker leads the partition: appends are refused, entries in flight are still acknowledged."""
    ENDED = "ended"
    """The topic is deleted: appends are refused."""


class PartitionEvent(Enum):
    """An event in the life of a partition."""

    OPEN = "open"
    """Opening the chain begins."""
    OPENED = "opened"
    """The chain was claimed and read."""
    OPENING_FAILED = "opening failed"
    WRITING_FAILED = "writing failed"
    """An entry or a roll failed, or its outcome is unknown."""
    FENCED = "fenced"
    """Writing failed because another claim of the chain exists: another broker may have continued the log."""
    ROLL = "roll"
    """A roll begins."""
    ROLLED = "rolled"
    """The next segment has begun."""
    ROLL_POSTPONED = "roll postponed"
    """The metadata service did not answer before the roll began: nothing was changed."""
    METADATA_BACK = "metadata back"
    """The metadata service answers again after a roll was postponed."""
    RELEASE = "release"
    """Another broker leads the partition."""
    END = "end"
    """The topic was deleted."""


_S, _E = PartitionState, PartitionEvent

TABLE: Final[Mapping[PartitionState, Mapping[PartitionEvent, PartitionState]]] = {
    _S.CLOSED: {
        _E.OPEN: _S.OPENING,
        # Several entries were in flight when the first failure closed the partition.
        _E.WRITING_FAILED: _S.CLOSED,
        _E.FENCED: _S.CLOSED,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.OPENING: {
        _E.OPENED: _S.OPEN,
        _E.OPENING_FAILED: _S.CLOSED,
        # The same, where an append came between two of these failures.
        _E.WRITING_FAILED: _S.OPENING,
        _E.FENCED: _S.OPENING,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.OPEN: {
        _E.WRITING_FAILED: _S.READABLE,
        _E.FENCED: _S.CLOSED,
        _E.ROLL: _S.ROLLING,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.ROLLING: {
        _E.WRITING_FAILED: _S.READABLE,
        _E.FENCED: _S.CLOSED,
        _E.ROLLED: _S.OPEN,
        _E.ROLL_POSTPONED: _S.OVERRUNNING,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.OVERRUNNING: {
        _E.WRITING_FAILED: _S.READABLE,
        _E.FENCED: _S.CLOSED,
        _E.ROLL: _S.FULL,
        _E.METADATA_BACK: _S.OPEN,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.FULL: {
        _E.WRITING_FAILED: _S.READABLE,
        _E.FENCED: _S.CLOSED,
        _E.ROLLED: _S.OPEN,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.READABLE: {
        _E.OPEN: _S.REOPENING,
        _E.WRITING_FAILED: _S.READABLE,
        _E.FENCED: _S.CLOSED,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.REOPENING: {
        _E.OPENED: _S.OPEN,
        _E.OPENING_FAILED: _S.READABLE,
        _E.WRITING_FAILED: _S.REOPENING,
        _E.FENCED: _S.REOPENING,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.RELEASED: {
        # Work that was under way at the release ends later.
        _E.OPENED: _S.RELEASED,
        _E.OPENING_FAILED: _S.RELEASED,
        _E.WRITING_FAILED: _S.RELEASED,
        _E.FENCED: _S.RELEASED,
        _E.ROLLED: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.ENDED: {
        _E.OPENED: _S.ENDED,
        _E.OPENING_FAILED: _S.ENDED,
        _E.WRITING_FAILED: _S.ENDED,
        _E.FENCED: _S.ENDED,
        _E.ROLLED: _S.ENDED,
    },
}

WRITABLE: Final = (_S.OPEN, _S.OVERRUNNING)
OPENING_STATES: Final = (_S.OPENING, _S.REOPENING)
ROLLING_STATES: Final = (_S.ROLLING, _S.FULL)
UNOPENED: Final = (_S.CLOSED, _S.READABLE)
FINAL: Final = (_S.RELEASED, _S.ENDED)
SHOWN: Final = (*WRITABLE, *ROLLING_STATES, _S.READABLE, _S.REOPENING)
CONTINUED: Final = (*WRITABLE, *ROLLING_STATES)
"""In these states appends continue the log that was opened last, and no newer claim of it is known."""
