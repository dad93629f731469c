from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.testing.simulation.disk.write_log import (
    Event,
    Grow,
    Mark,
    NoCompiler,
    Replace,
    SizeChange,
    Sync,
    Write,
    read_log,
    record,
    replay,
)

PROGRAM = """
import mmap, os, sys
from gnomon.testing.simulation.disk.write_log import Marks
folder = sys.argv[1]
marks = Marks()
other = os.open(folder + "/other", os.O_RDWR | os.O_CREAT)
file = os.open(folder + "/file", os.O_RDWR | os.O_CREAT)
durable = os.open(folder + "/file", os.O_WRONLY | os.O_DSYNC)
"""


def recorded(folder: Path, steps: str) -> list[Event]:
    try:
        log = record([sys.executable, "-c", PROGRAM + steps, str(folder)], folder / "file", folder)
    except NoCompiler as error:
        pytest.skip(str(error))
    return read_log(log)


def test_every_call_on_the_file_is_recorded_in_order_and_no_other(tmp_path: Path) -> None:
    events = recorded(
        tmp_path,
        """
os.write(other, b"elsewhere")
os.write(file, b"one")
os.writev(file, [b"two", b"three"])
os.pwrite(durable, b"four", 20)
marks.add(b"told")
os.pwritev(file, [b"fi", b"ve"], 30)
os.fdatasync(file)
os.fsync(other)
os.posix_fallocate(file, 10, 90)
os.ftruncate(file, 50)
os.fsync(file)
""",
    )
    assert events == [
        Write(0, b"one", False),
        Write(3, b"twothree", False),
        Write(20, b"four", True),
        Mark(b"told"),
        Write(30, b"five", False),
        Sync(),
        Grow(100),
        SizeChange(50),
        Sync(),
    ]
    assert replay(events) == (tmp_path / "file").read_bytes()


def test_a_file_that_is_renamed_to_the_name_is_recorded_with_its_content(tmp_path: Path) -> None:
    events = recorded(
        tmp_path,
        """
os.write(file, b"before")
os.write(other, b"made elsewhere")
os.rename(folder + "/other", folder + "/file")
os.pwrite(other, b"M", 0)
""",
    )
    assert events == [Write(0, b"before", False), Replace(b"made elsewhere"), Write(0, b"M", False)]
    assert replay(events) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize(
    "step",
    [
        "os.write(file, b'x' * 4096); mmap.mmap(file, 4096)",
        "os.write(os.open(folder + '/file', os.O_WRONLY | os.O_APPEND), b'x')",
    ],
    ids=["a writable map", "an append"],
)
def test_a_call_that_cannot_be_recorded_ends_the_process(tmp_path: Path, step: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        recorded(tmp_path, step)


def test_a_missing_compiler_is_reported_as_the_reason_for_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match="no C compiler"):
        record([sys.executable, "-c", ""], tmp_path / "file", tmp_path)
