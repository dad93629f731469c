"""A full file system is detected before a commit (see `room`)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gnomon.runtime.disk.room import (
    AHEAD_BYTES,
    AHEAD_BYTES_MIN,
    ALONE_BYTES_MIN,
    FREE_BYTES_MIN,
    FREEING_BYTES_MIN,
    REUSING_BYTES_MIN,
    Room,
)
from gnomon.runtime.world import DiskFull


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.mdb"
    path.write_bytes(b"begin")
    return path


class Device:
    """A file system with `free` bytes left, in place of `posix_fallocate`."""

    def __init__(self, free: int, error: int = errno.ENOSPC) -> None:
        self.free = free
        self.error = error
        self.asked = 0

    def fallocate(self, descriptor: int, start: int, count: int) -> None:
        self.asked += 1
        if count > self.free:
            raise OSError(self.error, os.strerror(self.error))
        self.free -= count


def test_space_is_allocated_ahead_of_use_in_few_calls(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(1 << 30)
    monkeypatch.setattr(os, "posix_fallocate", device.fallocate)
    room = Room(file)
    for used in range(0, 10 * AHEAD_BYTES, 4096):
        room.ensure(used)
    assert (1 << 30) - device.free >= 10 * AHEAD_BYTES + AHEAD_BYTES_MIN - 4096
    assert device.asked <= 20
    room.close()


def test_the_file_really_has_the_space(file: Path) -> None:
    room = Room(file)
    room.ensure(5)
    room.close()
    assert file.stat().st_size >= AHEAD_BYTES
    assert file.read_bytes()[:5] == b"begin"


def test_commits_are_refused_before_the_allocated_space_is_used_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(3 * AHEAD_BYTES)
    monkeypatch.setattr(os, "posix_fallocate", device.fallocate)
    room = Room(file)
    used = 0
    with pytest.raises(DiskFull, match="free disk space"):  # noqa: PT012 - the device decides which call raises
        while True:
            room.ensure(used)
            used += 4096
    assert used - 4096 + ALONE_BYTES_MIN <= 3 * AHEAD_BYTES
    device.free = 1 << 30
    room.ensure(used)
    room.close()


def test_pages_freed_inside_the_file_are_usable_on_a_full_disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(AHEAD_BYTES)
    monkeypatch.setattr(os, "posix_fallocate", device.fallocate)
    room = Room(file)
    for _ in range(100):
        room.ensure(AHEAD_BYTES - AHEAD_BYTES_MIN)  # pages are reused: the used part does not grow
    room.close()


def test_on_a_full_disk_commits_may_reuse_and_free_pages(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(AHEAD_BYTES)
    monkeypatch.setattr(os, "posix_fallocate", device.fallocate)
    room = Room(file)
    assert room.ensure(0)
    assert room.ensure(AHEAD_BYTES - AHEAD_BYTES_MIN)
    assert not room.ensure(AHEAD_BYTES - ALONE_BYTES_MIN), "operations are committed one by one"
    used = AHEAD_BYTES - REUSING_BYTES_MIN
    with pytest.raises(DiskFull):
        room.ensure(used, lambda: FREE_BYTES_MIN - 1)
    assert not room.ensure(used, lambda: FREE_BYTES_MIN)
    used = AHEAD_BYTES - FREEING_BYTES_MIN
    with pytest.raises(DiskFull):
        room.ensure(used, lambda: 1 << 30)
    assert not room.ensure(used, freeing=True)
    with pytest.raises(DiskFull):
        room.ensure(used + 1, freeing=True)
    room.close()


def test_a_file_reopened_on_a_full_disk_keeps_the_allocated_space(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fallocate(descriptor: int, start: int, count: int) -> None:
        if start + count > AHEAD_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    room = Room(file)
    assert not room.ensure(AHEAD_BYTES - FREEING_BYTES_MIN, freeing=True)
    room.close()


def test_a_file_is_extended_even_if_no_space_can_be_allocated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(0, errno.EOPNOTSUPP)
    monkeypatch.setattr(os, "posix_fallocate", device.fallocate)
    room = Room(file)
    for used in range(0, 10 * AHEAD_BYTES, AHEAD_BYTES):
        assert room.ensure(used)
        assert file.stat().st_size >= used + AHEAD_BYTES
    room.close()
