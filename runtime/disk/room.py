"""Allocates disk space ahead of LMDB, so that a full file system is noticed before a commit and not by a failed one.

LMDB writes a page beyond the end of its file only at commit, and a full file system then cuts the write short. LMDB
reports that as EIO, which looks like a broken device, after which nothing may be written any more. So the file is kept
longer than its used part. When no more space can be allocated, operations are first committed one by one. When too
little is left for one operation, operations are refused with DiskFull: nothing was written, and reads continue.

The used part never shrinks: a deletion leaves free pages inside the file. So operations that only free pages still run
when other operations are refused. These run again once enough pages are free.

An operation that adds more than expected may still reach the end of the disk; the node then stops, which is safe.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from gnomon.runtime.world import DiskFull

AHEAD_BYTES = 32 << 20
AHEAD_BYTES_MAX = 64 << 20
"""Limit for a large file; a large step makes allocations rare."""
AHEAD_BYTES_MIN = 16 << 20
"""With less than this ahead, more is allocated; if that fails, operations are committed one by one."""
ALONE_BYTES_MIN = 12 << 20
"""Space ahead that one operation needs."""
REUSING_BYTES_MIN = 6 << 20
FREE_BYTES_MIN = 16 << 20
"""With this much free inside the file, one operation needs REUSING_BYTES_MIN ahead: the free pages may be too scattered
for a large entry."""
FREEING_BYTES_MIN = 3 << 20
"""Space ahead that a deleting operation needs: the pages it rewrites plus LMDB's free list."""

_STEPS = (AHEAD_BYTES, AHEAD_BYTES_MIN, ALONE_BYTES_MIN, REUSING_BYTES_MIN, FREEING_BYTES_MIN)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Room:
    """The data file's space beyond its used part; owned by the commit thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._taken_bytes = 0

    def ensure(self, used_bytes: int, free_bytes: Callable[[], int] = lambda: 0, *, freeing: bool = False) -> bool:
        """Allocates space if less than AHEAD_BYTES_MIN is left beyond `used_bytes`.

        Args:
            free_bytes: returns the free bytes inside the used part; called only if no more space can be allocated.
            freeing: the next operation only frees pages.

        Returns:
            Whether there is space for any group; otherwise there is space for the next operation alone.

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
            _allocate(self._descriptor, start, end_bytes - start)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            # The file system cannot preallocate: only a commit shows a full disk. The file is extended all the same,
            # because a shorter one counts as damaged (`commit.check_file`).
            if os.fstat(self._descriptor).st_size < end_bytes:
                os.ftruncate(self._descriptor, end_bytes)
        self._taken_bytes = end_bytes
        return True

    def close(self) -> None:
        """Closes the file; keeps the allocated space."""
        os.close(self._descriptor)


def _allocate(descriptor: int, start: int, count: int) -> None:
    if not hasattr(os, "posix_fallocate"):  # macOS
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    os.posix_fallocate(descriptor, start, count)
