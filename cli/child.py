"""The command line in a process that ends with its parent.

The parent holds the other end of standard input and writes nothing; however the parent ends, the pipe closes. (Linux's
PR_SET_PDEATHSIG would fire as soon as the parent's *thread* ended, and asyncio and Trio start processes from threads.)
"""

from __future__ import annotations

import os
import signal
import threading


def end_with_parent() -> None:
    """Kills this process when standard input closes."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    from gnomon.cli.main import main

    main()
