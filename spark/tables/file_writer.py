"""Writes rows into Parquet files, split by the values of the columns that a table is partitioned by.

1. A returned file is complete and synced, with its name. A file that was not returned is garbage, and no reader of the
   table opens it.
2. The rows of a file have the same values in these columns, and its folder is named after them.
3. At most OPEN_FILES_MAX files are open, and at most BUFFERED_BYTES_MAX of rows wait for the next row group, plus a
   batch.
4. Where the columns are not in the files, an empty text becomes null: in the names of folders both are the same.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.spark.tables.data_file import DataFile, FileLayout
from gnomon.spark.tables.file_statistics import FileStatistics
from gnomon.spark.tables.local_folder import local_folder, make_folder, sync_folders
from gnomon.spark.tables.partition_values import folder_of, nulls_for_empty, parts, without
from gnomon.spark.tables.table import BadTable

BYTES_MAX: Final = 128 << 20
"""The usual size of a file."""
OPEN_FILES_MAX: Final = 50
GROUP_BYTES: Final = 16 << 20
"""Rows in memory that become a row group."""
BUFFERED_BYTES_MAX: Final = 64 << 20
_NAME_BYTES_MAX: Final = 255


class FileWriter:
    """Writes the rows of a task. A failed task calls `abandon` instead of `close`.

    Args:
        layout: see `Table.prepare`.
        schema: the columns of the rows, those included that the table is partitioned by.
        bytes_max: a file of about this size is closed.

    Raises:
        BadTable: the layout's location is no local folder.
    """

    def __init__(self, layout: FileLayout, schema: pa.Schema, *, bytes_max: int = BYTES_MAX) -> None:
        self._layout = layout
        self._folder = local_folder(layout.location)
        self._schema = schema
        dropped = () if layout.keep_partition_columns else layout.partition_by
        self._file_schema = pa.schema([field for field in schema if field.name not in dropped])
        self._bytes_max = bytes_max
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._closed: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes the rows of a batch, which has the columns of the schema in their order.

        Raises:
            BadTable: a value is too long for the name of a folder.
        """
        if not batch.schema.equals(self._schema):
            raise ValueError(f"a batch has the columns {batch.schema}, and the writer {self._schema}")
        columns = self._layout.partition_by
        if not self._layout.keep_partition_columns:
            batch = nulls_for_empty(batch, columns)
        for values, rows in parts(batch, columns):
            file = self._file(values)
            file.add(rows if self._layout.keep_partition_columns else without(rows, columns))
            if file.buffered_bytes >= min(GROUP_BYTES, self._bytes_max):
                file.flush()
            elif sum(each.buffered_bytes for each in self._open.values()) > BUFFERED_BYTES_MAX:
                max(self._open.values(), key=lambda each: each.buffered_bytes).flush()
            if file.written_bytes >= self._bytes_max:
                self._close(values)

    def close(self) -> list[DataFile]:
        """Closes and syncs all files, and returns them."""
        for values in list(self._open):
            self._close(values)
        folders = [(self._folder / file.path).parent for file in self._closed]
        sync_folders(each for folder in folders for each in (folder, *folder.parents) if self._holds(each))
        return self._closed

    def abandon(self) -> None:
        """Closes all files and removes them."""
        for file in self._open.values():
            file.abandon()
        for closed in self._closed:
            (self._folder / closed.path).unlink(missing_ok=True)
        self._open, self._closed = {}, []

    def _holds(self, folder: Path) -> bool:
        return folder == self._folder or folder.is_relative_to(self._folder)

    def _file(self, values: tuple[str | None, ...]) -> _OpenFile:
        """The open file for these values; it becomes the one that was used last."""
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = _OpenFile(self._folder, self._new_path(values), values, self._file_schema)
        self._open[values] = file
        return file

    def _new_path(self, values: tuple[str | None, ...]) -> str:
        name = f"{uuid.uuid4()}{self._layout.suffix}"
        if not self._layout.folders or not values:
            return name
        folder = folder_of(self._layout.partition_by, values)
        for each in folder.split("/"):
            if len(each.encode()) > _NAME_BYTES_MAX:
                raise BadTable(
                    f"{self._layout.location}: no folder can be named {each[:40]}...: partition by short values"
                )
        return f"{folder}/{name}"

    def _close(self, values: tuple[str | None, ...]) -> None:
        self._closed.append(self._open.pop(values).close())


class _OpenFile:
    """A file that grows."""

    def __init__(self, folder: Path, path: str, values: tuple[str | None, ...], schema: pa.Schema) -> None:
        self._place = folder / path
        self._path = path
        self._values = values
        self._schema = schema
        self._statistics = FileStatistics(schema)
        self._waiting: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        make_folder(self._place.parent)
        self._file: BinaryIO = open(self._place, "xb")  # noqa: SIM115 - open until `close` or `abandon`
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")

    @property
    def written_bytes(self) -> int:
        """The size so far."""
        return self._file.tell()

    def add(self, rows: pa.RecordBatch) -> None:
        """Keeps rows for the next row group."""
        self._statistics.add(rows)
        self._waiting.append(rows)
        self.buffered_bytes += rows.nbytes

    def flush(self) -> None:
        """Writes a row group."""
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self.buffered_bytes = [], 0

    def close(self) -> DataFile:
        """Completes and syncs the file."""
        self.flush()
        self._writer.close()
        size = self.written_bytes
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return DataFile(self._path, size, self._statistics.rows, self._values, self._statistics.text())

    def abandon(self) -> None:
        """Closes the file, and removes it."""
        self._writer.close()
        self._file.close()
        self._place.unlink()
