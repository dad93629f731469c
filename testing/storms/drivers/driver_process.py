"""A Spark driver in a process of its own, which runs one stage after the other until it is killed.

Its program writes a JSON object a line: `{"state": "idle"}` once it can take a command, and again when a stage was
stopped; `{"state": "failed", "error": …}` when a stage ended by itself. It reads commands in the same form, and ends
when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

import gnomon

STARTING: Final = "starting"
IDLE: Final = "idle"
RUNNING: Final = "running"
FAILED: Final = "failed"
ENDED: Final = "ended"


class DriverProcess:
    """A driver, started at once; `look` has to be called often.

    Args:
        program: its Python file, and the arguments of that.
        log: receives the output of Python, of the JVM and of Spark's workers.
    """

    def __init__(self, program: Sequence[object], log: Path) -> None:
        self.log = log
        self.state = STARTING
        self.error = ""
        """The error of the last stage that failed."""
        paths = [str(Path(gnomon.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *map(str, program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._unread = ""

    def run(self, command: Mapping[str, object]) -> None:
        """Starts a stage in a driver that is idle, or whose last stage has failed."""
        assert self.state in (IDLE, FAILED), f"the driver is {self.state}"
        self.state = RUNNING
        self._send(command)

    def stop(self) -> None:
        """Asks a running stage to end; the driver is idle afterwards."""
        self._send({"stage": None})

    def _send(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            print(json.dumps(command), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # `look` reports the end

    def wait(self, seconds: float) -> None:
        """Returns once Python has ended; raises subprocess.TimeoutExpired if that takes longer."""
        self._process.wait(seconds)

    def look(self) -> None:
        """Reads what the driver has written."""
        assert self._process.stdout is not None
        ended = self._process.poll() is not None
        try:
            self._unread += os.read(self._process.stdout.fileno(), 65536).decode()
        except (BlockingIOError, ValueError):
            pass
        *lines, self._unread = self._unread.split("\n")
        for line in lines:
            said = json.loads(line)
            self.state, self.error = said["state"], said.get("error", self.error)
        if ended and not lines:
            self.state = ENDED

    # --- its processes ---

    @property
    def jvm(self) -> psutil.Process | None:
        """The JVM; None before its start and after its end."""
        found = [each for each in self._children() if _name(each) == "java"]
        return found[0] if found else None

    def workers(self) -> list[psutil.Process]:
        """The Python processes that the JVM has started: those of tasks, and those of sources and sinks."""
        return [each for each in self._children(all_of_them=True) if _name(each).startswith("python")]

    def _children(self, *, all_of_them: bool = False) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=all_of_them)
        except psutil.NoSuchProcess:
            return []

    def dump(self) -> None:
        """Has Python and the JVM write the stacks of their threads to the log."""
        self._process.send_signal(signal.SIGUSR1)
        jvm = self.jvm
        if jvm is not None:
            jvm.send_signal(signal.SIGQUIT)

    def kill(self) -> None:
        """Sends SIGKILL to Python and the JVM at once; workers notice it by their pipes. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._forget()

    def kill_python(self) -> None:
        """Sends SIGKILL to Python alone; the JVM notices it and ends."""
        self._process.kill()
        self._forget()

    def _forget(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self.state = ENDED


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
