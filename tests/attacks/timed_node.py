"""`python timed_node.py FILE ...`: runs `gnomon ...`, and writes the processor time of each long turn to FILE."""

from __future__ import annotations

import os
import signal
import sys
import time

from gnomon.cli import daemon
from gnomon.cli.child import end_with_parent
from gnomon.cli.main import main
from gnomon.runtime.loop.turn_watch import TurnWatch

NOTED_SECONDS = 0.002
"""A turn that takes less is not written down."""


class TimedTurns(TurnWatch):
    """Writes the processor times of the long turns to a file, in seconds, one a line."""

    descriptor = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    used_before = 0.0

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        super().after_io_wait(timeout)
        self.used_before = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        """A turn has ended."""
        used = time.thread_time() - self.used_before
        super().before_io_wait(timeout)
        if used > NOTED_SECONDS and self.used_before:
            os.write(self.descriptor, f"{used:.6f}\n".encode())


if __name__ == "__main__":
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGKILL))
    daemon.TurnWatch = TimedTurns
    main()
