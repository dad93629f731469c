"""The states of a shadow's partition on the broker that leads it, and the events that move it between them. Pure.

1. `TABLE` has every transition. An event that `TABLE` does not have for a state is a bug (`runtime.state_table`).
2. The log is readable in OPEN and in no other state.
3. RELEASED and ENDED are final: the end of an opening that was under way changes nothing.

An OPEN partition can be settled or not: that concerns its knowledge of the source (`image` invariant 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ShadowState(Enum):
    """The state of a shadow's partition: it decides whether the log is readable."""

    CLOSED = "closed"
    """The next reader opens the partition."""
    OPENING = "opening"
    """The source's records and the end of its last ledger are being read; readers wait."""
    OPEN = "open"
    """The log is readable and follows the source."""
    RELEASED = "released"
    """Another broker leads the partition."""
    ENDED = "ended"
    """The shadow or its source is deleted."""


class ShadowEvent(Enum):
    """An event in the life of a shadow's partition."""

    OPEN = "open"
    """Opening begins."""
    OPENED = "opened"
    OPENING_FAILED = "opening failed"
    RELEASE = "release"
    """Another broker leads the partition."""
    END = "end"
    """The shadow or its source was deleted."""


_S, _E = ShadowState, ShadowEvent

TABLE: Final[Mapping[ShadowState, Mapping[ShadowEvent, ShadowState]]] = {
    _S.CLOSED: {
        _E.OPEN: _S.OPENING,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.OPENING: {
        _E.OPENED: _S.OPEN,
        _E.OPENING_FAILED: _S.CLOSED,
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.OPEN: {
        _E.RELEASE: _S.RELEASED,
        _E.END: _S.ENDED,
    },
    _S.RELEASED: {
        _E.OPENED: _S.RELEASED,
        _E.OPENING_FAILED: _S.RELEASED,
    },
    _S.ENDED: {
        _E.OPENED: _S.ENDED,
        _E.OPENING_FAILED: _S.ENDED,
    },
}

FINAL: Final = (_S.RELEASED, _S.ENDED)
