"""Programs that test a client."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

PROGRAM_SECONDS = 240


def run(command: Sequence[str], given: str | None = None) -> str:
    """Runs the program; returns its standard output.

    Raises:
        AssertionError: the program failed; the text has its output.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
