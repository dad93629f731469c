"""A `gnomon` process for tests, which ends with this process; every call here blocks."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import gnomon

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 10.0


class DaemonNotStarted(Exception):
    """The daemon ended or stayed silent before it was ready; the text contains its output."""


def spawn(
    command: Sequence[object],
    log: Path,
    *,
    prefix: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] | None = None,
) -> subprocess.Popen[str]:
    """Starts a process, which ends with this one.

    Args:
        command: the words after `gnomon`.
        log: receives its standard error, appended.
        prefix: a command that runs it in an environment of its own (`nsenter ...`).
        variables: of its environment, besides those of this process that are not settings of gnomon.
        program: takes the words of `command`; None is this Python with this gnomon.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    if program is None:
        program = (sys.executable, "-P", "-m", "gnomon.cli.child")
        paths = [str(Path(gnomon.__file__).parents[1]), *filter(None, [inherited.get("PYTHONPATH")])]
        inherited["PYTHONPATH"] = os.pathsep.join(paths)
    with open(log, "ab") as stderr:
        return subprocess.Popen(
            [*prefix, *program, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**inherited, **(variables or {})},
            process_group=0,  # a keyboard interrupt is the tests' to handle, not the daemon's
        )


def ready_facts(line: str) -> dict[str, str]:
    """The facts of a `ready` line."""
    return dict(re.findall(r"(\w+)=(\S+)", line))


class Daemon:
    """One process, started at once; `ready` has the facts of its line, after `wait_ready`."""

    def __init__(
        self,
        command: Sequence[object],
        log: Path,
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
        *,
        prefix: Sequence[str] = (),
    ) -> None:
        """Starts it: see `spawn`."""
        self.ready: dict[str, str] = {}
        self.log = log
        self._name = f"gnomon {command[0]}"
        self._answers = True
        self._process = spawn(command, log, prefix=prefix, variables=variables, program=program)

    def wait_ready(self) -> Self:
        """Returns once it serves.

        Raises:
            DaemonNotStarted: with its output.
        """
        line = self._line(START_SECONDS_MAX)
        if not line.startswith("ready "):
            end = "was silent for too long" if self.running else "ended"
            self.kill()
            raise DaemonNotStarted(f"{self._name} {end} before it was ready; it wrote:\n{line}{self.log.read_text()}")
        self.ready = ready_facts(line)
        return self

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """Sends a request to the control channel of a broker, and returns its answer.

        Raises:
            TimeoutError: there is none, also for all further requests: late answers would be mixed up.
        """
        if not self._answers:
            raise TimeoutError(f"{self._name} has not answered an earlier request: start it again")
        assert self._process.stdin is not None
        self._answers = False
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._line(ANSWER_SECONDS_MAX)
        if not line:
            raise TimeoutError(f"{self._name} {'does not answer' if self.running else 'has ended'}")
        self._answers = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, seconds: float) -> str:
        """The next line of standard output; empty if there is none in time."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return ""
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
        return line

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Sends SIGTERM, resumes the process if it is paused, and waits as `wait`."""
        self._process.terminate()
        self.resume()
        return self.wait()

    def wait(self) -> int:
        """Waits until it ends by itself, kills it if that takes too long; returns the exit code."""
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        return self.kill()

    def kill(self) -> int:
        """Sends SIGKILL; returns the exit code after its end. Idempotent."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

    def pause(self) -> None:
        """Pauses the process (SIGSTOP) and returns once it is suspended: it stays connected and is silent.

        The kernel ends it with this process: it sends SIGHUP and SIGCONT to suspended processes whose parent has ended.
        """
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Undoes `pause`."""
        self._process.send_signal(signal.SIGCONT)
