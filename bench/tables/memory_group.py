"""A memory cgroup: processes that together get no more memory than its limit, their cached files included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.generator import GeneratorUnavailable

MOUNT = Path("/sys/fs/cgroup")
NAME = "gnomon-bench"
EMPTY_SECONDS = 5.0
"""The time that the kernel has to note the end of the processes."""


class MemoryGroup:
    """A group without processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pid: int) -> None:
        """The process, and those that it starts, belong to the group from now on."""
        (self._folder / "cgroup.procs").write_text(str(pid))


@contextmanager
def memory_group(bytes_max: int) -> Iterator[MemoryGroup]:
    """A group for the block, at whose end its processes have ended.

    Raises:
        GeneratorUnavailable: this machine does not let this process make one.
    """
    parent, limit = _parent()
    folder = parent / NAME
    try:
        folder.mkdir()
        (folder / limit).write_text(str(bytes_max))
    except OSError as error:
        raise GeneratorUnavailable(f"no memory cgroup can be made: {error}") from None
    try:
        yield MemoryGroup(folder)
    finally:
        deadline = time.monotonic() + EMPTY_SECONDS
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        folder.rmdir()


def _parent() -> tuple[Path, str]:
    """The group of this process, and the name of the file for a limit: of version 1, or of version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return MOUNT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        if not controllers and (MOUNT / path.lstrip("/") / "memory.max").exists():
            return MOUNT / path.lstrip("/"), "memory.max"
    raise GeneratorUnavailable("no memory cgroup: this process is in none")
