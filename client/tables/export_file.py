"""The files of exports: one that appears under its name only as a whole, and one that is read event by event.

All methods block.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gnomon.log.tables.export_form import ExportEvent, ExportReader

READ_BYTES: Final = 256 << 10


class NewExportFile:
    """A file under a temporary name beside its own; only its owner may read it."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Nothing is created before `open`."""
        self._path = path
        self._overwrite = overwrite
        self._temporary = ""

    def open(self) -> None:
        """Creates the file.

        Raises:
            FileExistsError: there is a file of its name, which is not to be overwritten.
            OSError: it cannot be created.
        """
        if not self._overwrite and os.path.lexists(self._path):
            raise _exists(self._path)
        opened, self._temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        self._file = os.fdopen(opened, "wb")

    def write(self, data: bytes) -> None:
        """Adds bytes."""
        self._file.write(data)

    def cut(self, size_bytes: int) -> None:
        """Removes everything after the first `size_bytes`."""
        self._file.seek(size_bytes)
        self._file.truncate()

    def finish(self) -> None:
        """Syncs the file, and gives it its name.

        Raises:
            FileExistsError: there is a file of its name now, which is not to be overwritten.
            OSError: it could not be written.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._overwrite:
            os.replace(self._temporary, self._path)
        else:
            self._link()
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _link(self) -> None:
        """Renames the file, unless there is another of that name."""
        try:
            os.link(self._temporary, self._path)
        except FileExistsError:
            raise _exists(self._path) from None
        except OSError:  # a file system without links
            if os.path.lexists(self._path):
                raise _exists(self._path) from None
            os.replace(self._temporary, self._path)
        else:
            os.unlink(self._temporary)

    def discard(self) -> None:
        """Removes the temporary file, if it is still there."""
        if self._temporary:
            with suppress(OSError):
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)


class ExportFile:
    """An export that is read, and checked, from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        """Opens the file.

        Raises:
            OSError: it cannot be opened.
        """
        self._file = open(path, "rb")  # noqa: SIM115 - closed by `close`
        self._reader = ExportReader()

    def events(self) -> Sequence[ExportEvent] | None:
        """The next events, perhaps none; None after the end of the file.

        Raises:
            ExportDamaged: the file is not as it was written, or no export.
            OSError: it cannot be read.
        """
        data = self._file.read(READ_BYTES)
        if data:
            return list(self._reader.feed(data))
        self._reader.close()
        return None

    def rewind(self) -> None:
        """Reads the same file again."""
        self._file.seek(0)
        self._reader = ExportReader()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "it exists already, and is not to be overwritten", str(path))
