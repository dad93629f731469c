"""Child processes: started apart from the terminal, measured through /proc, and always stopped by their id."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.generator import GeneratorFailed

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
LOG_TAIL_LINES = 3
READY_SECONDS = 60
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Memory:
    """The content of /proc/PID/smaps_rollup, in bytes."""

    resident: int
    anonymous: int


class MeasuredProcess:
    """A child in a session of its own: Ctrl-C reaches it only through `kill`, which leaving the `with` block calls."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as sink:
            self._begins_at = sink.tell()
            """Where its lines begin in the log, after those of earlier processes."""
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def ready(self) -> dict[str, str]:
        """The facts of gnomon's `ready` line, once it is written.

        Raises:
            GeneratorFailed: the process ended before that, or was silent for too long.
        """
        deadline = time.monotonic() + READY_SECONDS
        while self.alive and time.monotonic() < deadline:
            written = self.log.read_bytes()[self._begins_at :].decode(errors="replace")
            line = re.search(r"^ready (.*)\n", written, re.MULTILINE)
            if line:
                return dict(re.findall(r"(\w+)=(\S+)", line[1]))
            time.sleep(LOOK_SECONDS)
        raise GeneratorFailed(f"{self.log.stem} was not ready: {self.log_tail()}")

    def cpu_seconds(self) -> float:
        """User and system time of all threads so far; the kernel counts in ticks of 10 ms."""
        after_name = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / CLOCK_TICKS

    def memory(self) -> Memory:
        kilobytes: dict[str, int] = {}
        for line in Path(f"/proc/{self._child.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value, *_ = line.split()
            kilobytes[name] = int(value)
        return Memory(kilobytes["Rss:"] << 10, kilobytes["Anonymous:"] << 10)

    def anonymous_bytes(self) -> int:
        """Its anonymous memory, in a microsecond where `memory` takes longer the more it maps."""
        (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self._child.pid}/status").read_text())
        return int(line) << 10

    def log_tail(self) -> str:
        """The end of the process's log, on one line, without rules and boxes."""
        lines = (line.strip(" |+-") for line in self.log.read_text(errors="replace").splitlines())
        return " / ".join([line for line in lines if any(map(str.isalpha, line))][-LOG_TAIL_LINES:])

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end; no effect on a process that ended by itself."""
        if self.alive:
            self._child.kill()
        self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
