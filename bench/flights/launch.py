"""gnomon's commands as processes of the job: started until they write `ready`; on failure the end of their log is
shown."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

READY_SECONDS = 60
POLL_SECONDS = 0.005
LAST_LINES = 3
READY = re.compile(rb"^ready (.+)\n", re.M)
GNOMON = (sys.executable, "-m", "gnomon.cli.main")


class NotReady(Exception):
    """A process ended, or did not become ready in time."""


def launch(words: Sequence[str], log: Path, what: str) -> tuple[psutil.Popen, dict[str, str]]:
    """Starts `gnomon` with these words; returns once it serves, with the facts of its ready line.

    Raises:
        NotReady: it does not; no process is left.
    """
    began = time.monotonic()
    with log.open("wb") as sink:
        # In a session of its own, so that Ctrl-C does not reach it: only the job's signal ends it.
        process = psutil.Popen(
            [*GNOMON, *words], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        while (said := READY.search(log.read_bytes())) is None:
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise NotReady(f"{what} did not become ready")
            time.sleep(POLL_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process, dict(fact.split("=", 1) for fact in said[1].decode().split(" ") if "=" in fact)


def last_words(log: Path) -> str:
    """The end of a log, on one line."""
    if not log.exists():
        return ""
    lines = (line.strip(" |+-") for line in log.read_text(errors="replace").splitlines())
    return " / ".join([line for line in lines if line][-LAST_LINES:])
