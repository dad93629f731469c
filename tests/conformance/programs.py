"""Programs that ask a client's questions."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

PROGRAM_SECONDS = 240


def run(command: Sequence[str], given: str | None = None) -> str:
    """The program's standard output.

    Raises:
        AssertionError: it failed; the text is what it wrote.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
