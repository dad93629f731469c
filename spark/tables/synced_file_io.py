"""Files that pyiceberg writes into local folders: synced when they are closed.

pyiceberg does not sync files, but a catalog in SQLite syncs its own. After a power loss the catalog would name metadata
that is lost. pyiceberg loads this module by its name, which is the property `py-io-impl` of a catalog.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from gnomon.spark.tables.local_folder import make_folder, sync


class SyncedFileIO(PyArrowFileIO):
    """Reads files as pyiceberg does, and syncs those that it writes into local folders."""

    def new_output(self, location: str) -> PyArrowFile:
        """The file at a location, to be written."""
        given = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        return SyncedFile(given, path) if scheme == "file" else given


class SyncedFile(PyArrowFile):
    """A local file that is synced when it is closed."""

    def __init__(self, given: PyArrowFile, path: str) -> None:
        super().__init__(given.location, path, given._filesystem, given._buffer_size)

    def create(self, overwrite: bool = False) -> SyncedStream:
        """Opens the file.

        Raises:
            FileExistsError: it exists, and is not to be overwritten.
        """
        make_folder(Path(self._path).parent)
        return SyncedStream(io.FileIO(self._path, "wb" if overwrite else "xb"))


class SyncedStream(io.BufferedWriter):
    """A stream into a local file, which is synced with its name when the stream is closed."""

    def close(self) -> None:
        """Syncs and closes the file."""
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync(Path(str(self.name)).parent)
