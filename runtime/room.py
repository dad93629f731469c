"""Disk space taken before LMDB needs it, so that a full file system is known before a commit and not by its failure.

LMDB writes a page beyond the end of its file only at commit, and a file system that is full then cuts the write short;
LMDB reports that as EIO, which cannot be told from a broken device, after which nothing may be written any more. So the
file is kept longer than what is in use. Where that cannot be, commits become small, and are then refused with DiskFull:
nothing was written, and reading goes on.

What is in use never becomes less: a deletion leaves free pages inside the file. So what only frees pages goes on where
other commits are refused, and these go on once enough is free.

An operation that adds more at once may still meet the end of the disk; the node then stops, which is safe.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from gnomon.runtime.world import DiskFull

AHEAD_BYTES = 32 << 20
AHEAD_BYTES_MAX = 64 << 20
"""Of a large file: so that space is taken seldom."""
AHEAD_BYTES_MIN = 16 << 20
"""With less than this ahead, more is taken; where none is to be had, operations are committed one by one."""
ALONE_BYTES_MIN = 12 << 20
"""What one operation needs ahead."""
REUSING_BYTES_MIN = 6 << 20
FREE_BYTES_MIN = 16 << 20
"""What it needs where so much is free inside the file: those pages may lie too far apart for a large entry."""
FREEING_BYTES_MIN = 3 << 20
"""What one needs that only frees pages, for those that it changes and for the list of what is free."""

_STEPS = (AHEAD_BYTES, AHEAD_BYTES_MIN, ALONE_BYTES_MIN, REUSING_BYTES_MIN, FREEING_BYTES_MIN)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Room:
    """The data file's space beyond what is in use; belongs to the thread that commits."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._taken_bytes = 0

    def ensure(self, used_bytes: int, free_bytes: Callable[[], int] = lambda: 0, *, freeing: bool = False) -> bool:
        """Takes space where less than AHEAD_BYTES_MIN is left beyond `used_bytes`.

        Args:
            free_bytes: tells what is free inside the used part; asked only where no more space is to be had.
            freeing: the next operation only frees pages.

        Returns:
            Whether there is room for any group; else there is for the next operation alone.

        Raises:
            DiskFull: not enough is left, and the file system has no more.
        """
        if self._taken_bytes - used_bytes >= AHEAD_BYTES_MIN:
            return True
        wanted = min(max(used_bytes // 8, AHEAD_BYTES), AHEAD_BYTES_MAX)
        ahead = next((each for each in (wanted, *_STEPS) if self._take(used_bytes, used_bytes + each)), 0)
        if ahead >= AHEAD_BYTES_MIN:
            return True
        if (freeing and ahead) or ahead >= ALONE_BYTES_MIN:
            return False
        if ahead == REUSING_BYTES_MIN and free_bytes() >= FREE_BYTES_MIN:
            return False
        raise DiskFull(f"no room to write to {self._file.parent}: free disk space; reading goes on")

    def _take(self, used_bytes: int, end_bytes: int) -> bool:
        start = max(self._taken_bytes, used_bytes)
        if end_bytes <= start:
            return True
        try:
            os.posix_fallocate(self._descriptor, start, end_bytes - start)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            # The file system cannot take space ahead: then only a commit tells. Longer the file is all the same: a
            # shorter one counts as damaged (`commit.check_length`).
            if os.fstat(self._descriptor).st_size < end_bytes:
                os.ftruncate(self._descriptor, end_bytes)
        self._taken_bytes = end_bytes
        return True

    def close(self) -> None:
        """Gives the file up, not the space."""
        os.close(self._descriptor)
