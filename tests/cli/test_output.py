from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_note_that_cannot_be_written_does_not_fail_the_command(tmp_path: Path) -> None:
    create = [sys.executable, "-m", "gnomon.cli.main", "ledger", "create", "orders", "--data-dir", str(tmp_path)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(create, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (0, b"")
