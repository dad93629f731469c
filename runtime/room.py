"""Disk space taken before LMDB needs it, so that a full file system is known before a commit and not by its failure.

LMDB writes a page beyond the end of its file only at commit, and a file system that is full then cuts the write short;
LMDB reports that as EIO, which cannot be told from a broken device, after which nothing may be written any more. So the
file is kept longer than what is in use, by AHEAD_BYTES_MIN at least. Where that cannot be had, the commit is refused
with DiskFull: nothing was written, reading goes on, and deleting makes room inside the file.

A group that adds more than that at once may still meet the end of the disk; the node then stops, which is safe.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gnomon.runtime.world import DiskFull

AHEAD_BYTES = 16 << 20
AHEAD_BYTES_MAX = 64 << 20
"""Of a large file: so that space is taken seldom."""
AHEAD_BYTES_MIN = 8 << 20
"""With less than this ahead, more is taken; where none is to be had, commits are refused."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Room:
    """The data file's space beyond what is in use; belongs to the thread that commits."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._taken_bytes = 0
        self._works = True

    def ensure(self, used_bytes: int) -> None:
        """Takes space where less than AHEAD_BYTES_MIN is left beyond `used_bytes`.

        Raises:
            DiskFull: not enough is left, and the file system has no more.
        """
        if not self._works or self._taken_bytes - used_bytes >= AHEAD_BYTES_MIN:
            return
        wanted = min(max(used_bytes // 8, AHEAD_BYTES), AHEAD_BYTES_MAX)
        if not any(self._take(used_bytes, used_bytes + ahead) for ahead in (wanted, AHEAD_BYTES, AHEAD_BYTES_MIN)):
            raise DiskFull(f"no room to write to {self._file.parent}: free disk space; reading goes on")

    def _take(self, used_bytes: int, end_bytes: int) -> bool:
        start = max(self._taken_bytes, used_bytes)
        if end_bytes <= start:
            return True
        try:
            os.posix_fallocate(self._descriptor, start, end_bytes - start)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self._works = False  # the file system cannot take space ahead: then only a commit tells
                return True
            return False
        self._taken_bytes = end_bytes
        return True

    def close(self) -> None:
        """Gives the file up, not the space."""
        os.close(self._descriptor)
