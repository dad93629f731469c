"""Drivers in processes of their own, which create a table and commit the same batches at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lake_tables import KINDS, LakeKind

BATCHES = 6
PROGRAM = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from lake_tables import LakeKind, put, rows_of
kind = LakeKind(sys.argv[1], Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for number in range({BATCHES}):
    print(put(kind.open(partition_by=["day"]), number, rows_of(2 * number, 2 * number + 1)).name)
"""


@pytest.mark.parametrize("name", KINDS)
def test_each_batch_is_committed_by_one_of_the_processes(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, name, str(tmp_path)]
    drivers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for driver in drivers:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
    for driver in drivers:
        assert driver.stdin is not None
        driver.stdin.write("\n")
        driver.stdin.flush()
    found = [driver.communicate() for driver in drivers]
    assert [errors for _, errors in found] == ["", ""]
    verdicts = zip(*(output.split() for output, _ in found), strict=True)
    assert [sorted(each) for each in verdicts] == [["ALREADY", "COMMITTED"]] * BATCHES
    assert LakeKind(name, tmp_path).ids() == list(range(2 * BATCHES))
