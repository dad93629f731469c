"""What happened in a simulation: readable lines with their virtual time, and a digest that says whether two runs agree.

    1.000250  broker-1#1  commit /data/entries: 3 operations
    1.000871  client#1 -> broker-1#1  118 bytes 5fd1c2aa

The digest covers every line; the lines themselves are kept up to `lines_max`, the newest ones. What stands behind a
line as an aside, and is in no digest, may differ between two runs of one seed.
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
        lines_max: how many of the newest lines are kept.
    """

    def __init__(self, now: Callable[[], float], lines_max: int = LINES_MAX) -> None:
        self._now = now
        self.told: Callable[[str], None] = lambda line: None
        """Gets each line as it is added."""
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=lines_max)
        self.count = 0

    def add(self, text: str, aside: str = "") -> None:
        """Adds a line; but for the aside it must not hold anything of this process alone, such as a path or an id."""
        line = f"{self._now():12.6f}  {text}"
        self._digest.update(line.encode() + b"\n")
        line += aside
        self.lines.append(line)
        self.count += 1
        self.told(line)

    def digest(self) -> str:
        """Equal for two runs whose every line was equal."""
        return self._digest.hexdigest()

    def tail(self, count: int) -> str:
        """The newest lines, as one text."""
        newest = list(self.lines)[-count:]
        return "\n".join(newest)
