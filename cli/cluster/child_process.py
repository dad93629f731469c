"""One run of a child process: start, watch, stop; the child ends with this process, however this process ends."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import trio

from gnomon.cli.exit import Exit, Failure

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
ANSWER_PAUSE_SECONDS = 0.1
LINE_BYTES_MAX = 1 << 16
LOG_BYTES_SHOWN = 4096


class Killed(Failure):
    """A signal ended the child."""


class ChildProcess:
    """One child; its standard error goes to a file."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, answers: Callable[[], Awaitable[bool]] | None
    ) -> None:
        """Starts nothing yet.

        Args:
            command: the arguments of `gnomon`, or PROGRAM and the command of another program.
            answers: for a program that writes no `ready` line to standard output: whether it serves.
        """
        self.name = name
        self.ready: dict[str, str] = {}
        """The facts of its `ready` line."""
        self._command = [sys.executable, "-P", "-m", "gnomon.cli.child", *command]
        self._log = log
        self._answers = answers
        self._process: trio.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the process, which must have been started."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts the child, and returns once it serves.

        Raises:
            Killed: a signal ended it.
            Failure: it ended, or did not serve in time.
        """
        with self._open_log() as stderr:
            self._process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,  # a keyboard interrupt is for this process, which then stops the child
            )
        with trio.move_on_after(START_SECONDS_MAX):
            if self._answers is None:
                await self._read_ready(self._process)
            else:
                while not await self._answers():
                    if self._process.poll() is not None:
                        raise self._ended()
                    await trio.sleep(ANSWER_PAUSE_SECONDS)
            return
        raise Failure(f"{self.name} was not ready within {START_SECONDS_MAX:g} s: see {self._log}")

    async def _read_ready(self, process: trio.Process) -> None:
        line = await self._line()
        if not line.startswith("ready "):
            await process.wait()
            raise self._ended()
        self.ready = dict(re.findall(r"(\w+)=(\S+)", line))

    def _open_log(self) -> BinaryIO:
        return open(self._log, "ab")

    async def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
            more = await self._process.stdout.receive_some(LINE_BYTES_MAX)
            if not more:
                break
            line += bytes(more)
        return line.decode(errors="replace")

    async def wait(self) -> None:
        """Waits until it ends with 0.

        Raises:
            Killed: a signal ended it.
            Failure: it ended with another code.
        """
        assert self._process is not None
        if await self._process.wait() != 0:
            raise self._ended()

    def _ended(self) -> Failure:
        assert self._process is not None
        code = self._process.returncode
        assert code is not None
        if code < 0:
            return Killed(f"{self.name} was killed by {signal.Signals(-code).name}")
        return Failure(
            f"{self.name} ended with {code}{self.log_end()}", Exit(code) if code in list(Exit)[1:] else Exit.FAILED
        )

    def log_end(self) -> str:
        """The last line that it wrote to standard error, after a colon."""
        with contextlib.suppress(OSError):
            lines = self._log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace").splitlines()
            return f": {lines[-1].removeprefix('Error: ')}" if lines else ""
        return ""

    async def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL if that takes too long or the child does not serve yet; returns after its end."""
        process = self._process
        if process is None:
            return
        if self._answers is None and not self.ready:
            process.kill()
        process.terminate()
        with trio.move_on_after(STOP_SECONDS_MAX):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.aclose()
        await process.stdout.aclose()
