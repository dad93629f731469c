"""One process of a cluster, restarted when it is killed.

1. A killed process is started again with the same command, on the ports of its first run.
2. A process that ends with exit code 0 is not started again: it got a SIGTERM, or it is a bookie that was emptied.
3. Another exit code is an error. More than KILLS_MAX kills within KILLS_SECONDS are an error, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import trio

from gnomon.cli.cluster.child_process import ChildProcess, Killed
from gnomon.cli.exit import Failure
from gnomon.cli.output import note

KILLS_MAX = 5
KILLS_SECONDS = 60.0


class KeptProcess:
    """One process; `run` keeps it running."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ports: Mapping[str, str],
        answers: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            command: the arguments of `gnomon`, or PROGRAM and the command of another program.
            log: receives the standard error of all runs.
            ports: by the option that sets a port, its name in the `ready` line; empty for a program without such a
                line, which is restarted with the same command.
            answers: for a program that writes no such line: whether it serves.
        """
        self.name = name
        self.ready: dict[str, str] = {}
        """The facts of its last `ready` line."""
        self._command = command
        self._log = log
        self._ports = ports
        self._answers = answers
        self._kills: list[float] = []
        self._life = self._new_life()

    @property
    def pid(self) -> int:
        """The id of the process that runs, or ran last."""
        return self._life.pid

    def _new_life(self) -> ChildProcess:
        # Of an option that is given twice, the last one counts.
        ports = [
            f"{option}={self.ready[fact].rpartition(':')[2]}"
            for option, fact in self._ports.items()
            if fact in self.ready
        ]
        return ChildProcess(self.name, [*self._command, *ports], self._log, self._answers)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports to `task_status` when it serves for the first time; returns when it ended on request.

        Raises:
            Failure: it ended by itself, was killed too often, or was not ready in time.
        """
        served = False
        while True:
            try:
                await self._life.start()
                self.ready = self._life.ready
                if not served:
                    served = True
                    task_status.started()
                else:
                    note(f"{self.name} serves again as process {self.pid}")
                await self._life.wait()
                note(f"{self.name} ended, as it was asked to; the others go on")
                return
            except Killed as killed:
                await self._life.stop()
                self._count(killed)
                note(f"{killed}: it is started again")
                self._life = self._new_life()

    def _count(self, killed: Killed) -> None:
        now = trio.current_time()
        self._kills = [*(at for at in self._kills if at > now - KILLS_SECONDS), now]
        if len(self._kills) > KILLS_MAX:
            raise Failure(
                f"{killed} for the {len(self._kills)}th time within {KILLS_SECONDS:g} s, and is not started again"
                f" (the kernel does that where memory is short){self._life.log_end()}"
            )

    async def stop(self) -> None:
        """Ends the current run; call it after `run` has ended."""
        await self._life.stop()
