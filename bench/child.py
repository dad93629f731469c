"""Starts a load program of the bench, with its task as JSON, and exchanges lines of JSON with it.

A program ends when its standard input is closed. So no program outlives the bench, even if the bench is killed.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.generator import GeneratorFailed
from bench.workspace import SOURCES

LOG_TAIL_LINES = 3


class Child:
    """One program of this package.

    Args:
        program: its module in `bench`, such as `fanout.pacer`.
    """

    def __init__(self, program: str, task: Mapping[str, object], log: Path) -> None:
        self._name = program
        self._log = log
        command = [sys.executable, "-m", f"bench.{program}", json.dumps(task)]
        pipe = subprocess.PIPE
        with log.open("ab") as sink:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=sink, bufsize=0, start_new_session=True, cwd=SOURCES.parent
            )
        self._read = b""

    @property
    def pid(self) -> int:
        """The id of its process, and of the session of all processes that it starts."""
        return self._child.pid

    def answer(self, timeout_seconds: float) -> dict[str, Any]:
        """The next line of its output.

        Raises:
            GeneratorFailed: it ended before that, or was silent for too long.
        """
        stdout, deadline = self._child.stdout, time.monotonic() + timeout_seconds
        assert stdout is not None, "a child has a standard output"
        while b"\n" not in self._read:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise GeneratorFailed(f"{self._name} said nothing within {timeout_seconds:.0f} s")
            more = stdout.read(1 << 20)
            if not more:
                lines = self._log.read_text(errors="replace").strip().splitlines()[-LOG_TAIL_LINES:]
                raise GeneratorFailed(f"{self._name} ended: {' / '.join(lines)}")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, what: object) -> None:
        """Sends a line that is not answered at once."""
        assert self._child.stdin is not None, "a child has a standard input"
        try:
            self._child.stdin.write(json.dumps(what).encode() + b"\n")
        except BrokenPipeError:
            pass  # `answer` reports the reason

    def ask(self, question: object, timeout_seconds: float) -> dict[str, Any]:
        """Sends a line, and returns the answer; raises as `answer`."""
        self.tell(question)
        return self.answer(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()


def say(answer: Mapping[str, object]) -> None:
    """Writes an answer, in a program."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def heard(line: bytes | str) -> Any:
    """Parses a question, in a program; ends the program if its input has ended."""
    if not line:
        sys.exit(0)
    return json.loads(line)
