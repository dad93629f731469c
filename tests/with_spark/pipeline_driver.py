"""A driver of `gnomon pipeline run` as a process, and the batches that drivers have finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from copying import WAIT_SECONDS

GNOMON = Path(sys.executable).with_name("gnomon")


class PipelineDriver:
    """The drivers of the pipeline in `file`, whose checkpoint has Spark's folder `checkpoint`."""

    def __init__(self, file: Path, checkpoint: Path) -> None:
        self.file, self._checkpoint = file, checkpoint

    @contextmanager
    def driver(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A driver, which is killed with its JVM and its workers at the end."""
        command = [str(GNOMON), "pipeline", "run", str(self.file), *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def batches(self) -> int:
        """The finished batches."""
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))

    def wait_for_batches(self, more: int) -> None:
        """Waits until the drivers have finished that many batches."""
        start, deadline = self.batches(), time.monotonic() + WAIT_SECONDS
        while self.batches() < start + more:
            assert time.monotonic() < deadline, "the driver does not get on"
            time.sleep(0.02)
