"""How much a broker tells another one before it hears that it was taken, and how long it lets alone one that is away.

1. At most WINDOW_BYTES and FRAMES_MAX are on the way to one broker, however many shadows it leads: that is all that a
   broker which is slow, paused or gone costs the source's.
2. What was on the way counts no more once the connection is lost.

Pure.
"""

from __future__ import annotations

from collections import deque

WINDOW_BYTES = 4 << 20
"""A tenth of a second of a partition that takes 40 MB/s; with it, entries come along while that is the delay."""
FRAMES_MAX = 256
BACKOFF_SECONDS_MIN = 0.1
BACKOFF_SECONDS_MAX = 5.0


class Window:
    """The frames on their way to one broker."""

    def __init__(self) -> None:
        self.frame = 0
        """The number of the last frame."""
        self.bytes = 0
        """On the way."""
        self._frames: deque[tuple[int, int]] = deque()
        self._failures = 0

    @property
    def room_bytes(self) -> int:
        """How much more may be sent now; 0 where nothing may."""
        return max(0, WINDOW_BYTES - self.bytes) if len(self._frames) < FRAMES_MAX else 0

    def sent(self, size_bytes: int) -> None:
        """One more frame has left."""
        self.frame += 1
        self._frames.append((self.frame, size_bytes))
        self.bytes += size_bytes

    def heard(self, frame: int) -> None:
        """The frames up to this one were taken."""
        self._failures = 0
        while self._frames and self._frames[0][0] <= frame:
            self.bytes -= self._frames.popleft()[1]

    def lost(self) -> float:
        """The connection is gone, or there was none; returns after how many seconds to try again."""
        self._frames.clear()
        self.bytes = 0
        self._failures += 1
        return min(BACKOFF_SECONDS_MIN * 2.0 ** min(self._failures - 1, 10), BACKOFF_SECONDS_MAX)
