"""The transcript of a simulation: readable lines with their virtual time, and a digest to compare two runs.

    1.000250  broker-1#1  commit /data/entries: 3 operations
    1.000871  client#1 -> broker-1#1  118 bytes 5fd1c2aa

The digest covers every line, although only the newest `lines_max` lines are kept. A line may end with an aside, which
the digest does not cover: it may differ between two runs of one seed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

LINES_MAX = 50_000


class Trace:
    """The transcript of one simulation.

    Args:
        now: the virtual time in seconds.
        lines_max: the number of newest lines that are kept.

    Attributes:
        lines: the newest lines, oldest first.
        count: the number of all lines.
        on_line: called with each line as it is added.
    """

    def __init__(self, now: Callable[[], float], lines_max: int = LINES_MAX) -> None:
        self._now = now
        self.on_line: Callable[[str], None] = lambda line: None
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=lines_max)
        self.count = 0

    def add(self, text: str, aside: str = "") -> None:
        """Adds a line with the current virtual time.

        Args:
            text: part of the digest; must not contain anything specific to this process, such as a path or an id.
            aside: follows the text in the line, and is not part of the digest.
        """
        line = f"{self._now():12.6f}  {text}"
        self._digest.update(line.encode() + b"\n")
        line += aside
        self.lines.append(line)
        self.count += 1
        self.on_line(line)

    def digest(self) -> str:
        """Equal for two runs whose every line was equal."""
        return self._digest.hexdigest()

    def tail(self, count: int) -> str:
        """The newest lines, as one text."""
        newest = list(self.lines)[-count:]
        return "\n".join(newest)
