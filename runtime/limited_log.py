"""Limits the lines of the log that peers can cause, such as those about refused connections.

1. At most LINES_MAX lines of one event and one subject are written in a period of PERIOD_SECONDS. Further ones are
   counted, and `flush` writes one line with their number and the fields of the last of them.
2. At most SUBJECTS_MAX subjects of a period are distinguished. All further ones are one subject.
3. A text of a peer is cut to TEXT_CHARACTERS_MAX characters.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.runtime.logs import Logger
from gnomon.runtime.timers import Timer, Timers
from gnomon.runtime.world import Clock

LINES_MAX = 3
PERIOD_SECONDS = 1.0
SUBJECTS_MAX = 1000
TEXT_CHARACTERS_MAX = 200
_OTHERS = "other addresses"


def cut(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a line about a peer, with at most TEXT_CHARACTERS_MAX characters of each text."""
    return {name: value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value for name, value in fields.items()}


class LimitedLog:
    """The log of one server for lines about its peers."""

    def __init__(self, log: Logger, clock: Clock, timers: Timers | None = None) -> None:
        """With `timers` it is flushed at the end of each period; otherwise its owner calls `flush` about as often."""
        self._log = log
        self._clock = clock
        self._timers = timers
        self._flush_timer: Timer | None = None
        self._period_began = clock.monotonic()
        self._counts: dict[tuple[str, str], int] = {}
        self._unwritten: dict[tuple[str, str], dict[str, object]] = {}
        """The fields of the last line that was not written, by event and subject."""

    def warn_limited(self, event: str, subject: str, **fields: object) -> bool:
        """Writes or counts a line.

        Args:
            event: the name of the event.
            subject: what the line is about, for the limit: the address of the peer.
            fields: of the line; a text may be of any length.

        Returns:
            Whether the line was written.
        """
        self._begin_period()
        key = event, subject
        if key not in self._counts and len(self._counts) >= SUBJECTS_MAX:
            key = event, _OTHERS
        count = self._counts[key] = self._counts.get(key, 0) + 1
        shown = cut(fields)
        if count <= LINES_MAX:
            self._log.warning(event, **shown)
            return True
        self._unwritten[key] = shown
        self._flush_later()
        return False

    def _flush_later(self) -> None:
        if self._timers is not None and self._unwritten and self._flush_timer is None:
            self._flush_timer = self._timers.call_at(self._period_began + PERIOD_SECONDS, self._flush_due)

    def _flush_due(self) -> None:
        self._flush_timer = None
        self.flush()
        self._flush_later()  # a line may have begun another period

    @property
    def pending(self) -> bool:
        """Whether `flush` has lines to write once the period has ended."""
        return bool(self._unwritten)

    def flush(self) -> None:
        """Writes how many lines were left out, if their period has ended."""
        self._begin_period()

    def _begin_period(self) -> None:
        now = self._clock.monotonic()
        if now < self._period_began + PERIOD_SECONDS:
            return
        unwritten, self._unwritten = self._unwritten, {}
        counts, self._counts = self._counts, {}
        self._period_began = now
        for key, fields in unwritten.items():
            self._log.warning(key[0], **fields, more=counts[key] - LINES_MAX)
