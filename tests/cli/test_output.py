from __future__ import annotations

import subprocess
import sys


def test_a_note_that_cannot_be_written_fails_nothing() -> None:
    program = "from gnomon.cli.output import note\nfor _ in range(2): note('topic created')\nprint('done')"
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")
