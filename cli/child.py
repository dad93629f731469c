"""Runs the `gnomon` command, or with `--program` any other program, so that it ends with the parent of this process.

The parent holds the other end of standard input and writes nothing; the pipe closes at any end of the parent, even by
SIGKILL. (Linux's PR_SET_PDEATHSIG would send its signal as soon as the parent's *thread* ended, and asyncio and Trio
start processes from threads. A program after `--program` is started from the only thread of this process, so
PR_SET_PDEATHSIG works there.)
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

PROGRAM = "--program"
PR_SET_PDEATHSIG = 1


def end_with_parent(end: Callable[[], None]) -> None:
    """Calls `end` when standard input closes."""

    def wait() -> None:
        os.read(0, 1)
        end()

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


def run_program(command: Sequence[str]) -> int:
    """Runs `command`, and forwards SIGTERM to it.

    Returns:
        the program's exit code. If a signal ended the program, the same signal ends this process.
    """
    libc = ctypes.CDLL(None)

    def end_with_this_process() -> None:
        if sys.platform == "linux":  # elsewhere the program outlives a SIGKILL of this process
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    with subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_this_process) as program:
        signal.signal(signal.SIGTERM, lambda _number, _frame: program.terminate())
        end_with_parent(program.kill)
        code = program.wait()
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == [PROGRAM]:
        sys.exit(run_program(sys.argv[2:]))
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGKILL))
    from gnomon.cli.main import main

    main()
