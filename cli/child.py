"""Runs the `gnomon` command, or with `--program` any other program, so that it ends with the parent of this process.

The parent holds the other end of standard input; the pipe closes at any end of the parent, even by SIGKILL. The lines
that it writes are requests to the `ControlChannel`, which the command `gnomon` does not have. (Linux's
PR_SET_PDEATHSIG would send its signal as soon as the parent's *thread* ended, and asyncio and Trio start processes
from threads. A program after `--program` is started from the only thread of this process, so PR_SET_PDEATHSIG works
there.)
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio.lowlevel import TrioToken

    from gnomon.broker.broker import Broker
    from gnomon.broker.kafka.connections.request_faults import RequestFaults
    from gnomon.broker.kafka.connections.server import KafkaServer
    from gnomon.runtime.world import Clock

PROGRAM = "--program"
PR_SET_PDEATHSIG = 1


def end_with_parent(end: Callable[[], None], take: Callable[[bytes], None] | None = None) -> None:
    """Calls `end` when standard input closes, and until then `take` with each line."""

    def wait() -> None:
        with open(0, "rb", closefd=False) as lines:
            for line in lines:
                if take is not None:
                    take(line)
        end()

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


class ControlChannel:
    """Takes requests of the parent for faults of this process's broker; closed until the broker serves.

    Each request is a line of JSON on standard input, and its answer one on standard output.
    """

    def __init__(self) -> None:
        self._faults: RequestFaults | None = None
        self._token: TrioToken | None = None

    def open(self, broker: Broker, server: KafkaServer, clock: Clock) -> None:
        """Executes requests from now on; called in the Trio thread."""
        from trio.lowlevel import current_trio_token

        from gnomon.broker.kafka.connections.request_faults import RequestFaults
        from gnomon.broker.kafka.guards.topic_ids import TopicIds

        self._faults = RequestFaults(server, TopicIds(broker.topics.image), clock, broker.timers)
        self._token = current_trio_token()

    def take(self, line: bytes) -> None:
        """Takes a request; called in the thread that reads standard input."""
        if self._token is None:
            _answer({"problem": "this process has no broker that serves"})
        else:
            self._token.run_sync_soon(self._run, line)

    def _run(self, line: bytes) -> None:
        assert self._faults is not None, "the channel is open"
        try:
            self._faults.execute(json.loads(line))
        except (ValueError, TypeError) as error:
            _answer({"problem": str(error)})
        else:
            _answer({"left": self._faults.left})


def _answer(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


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
    from gnomon.cli.main import main

    control = ControlChannel()
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGKILL), control.take)
    main(obj=control)
