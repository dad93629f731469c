"""Writes rows into Parquet files, split by the values of the columns that a table is partitioned by.

1. A returned file is complete and synced, with its name. A file that was not returned is garbage, and no reader of the
   table opens it.
2. The rows of a file have the same values in these columns, and its folder is named after them.
3. At most OPEN_FILES_MAX files are open, and at most BUFFERED_BYTES_MAX of rows wait for the next row group, beside
   those of the batch that is written.
4. A file has at most `bytes_max` bytes, unless one batch has more: it ends before rows that take more memory than it
   has room.
5. Where the columns are not in the files, an empty text becomes null: in names of folders both are the same.

Rows wait without a file: a file that was opened for few rows would have to be closed for the rows of other values, and
a batch with rows of 200 values would leave 150 small files each time.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.spark.tables.data_files.data_file import DataFile, FileLayout
from gnomon.spark.tables.data_files.file_statistics import FileStatistics
from gnomon.spark.tables.data_files.partition_values import folder_of, nulls_for_empty, parts, without
from gnomon.spark.tables.local_folder import local_folder, make_folder, sync_folders
from gnomon.spark.tables.table import BadTable

BYTES_MAX: Final = 128 << 20
OPEN_FILES_MAX: Final = 100
GROUP_BYTES: Final = 16 << 20
"""Rows in memory that become a row group."""
BUFFERED_BYTES_MAX: Final = 64 << 20
_COLUMN_BYTES: Final = 300
"""Memory of a column of a batch beside its values, roughly."""
_NAME_BYTES_MAX: Final = 255

_Values = tuple[str | None, ...]


class FileWriter:
    """Writes the rows of a task. A failed task calls `abandon` instead of `close`.

    Args:
        layout: see `LakeTable.prepare`.
        schema: the columns of the rows, those included that the table is partitioned by.
        bytes_max: of a file.

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
        self._waiting: dict[_Values, _WaitingRows] = {}
        self._waiting_bytes = 0
        self._open: dict[_Values, _OpenFile] = {}
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
            if values not in self._waiting:
                self._waiting[values] = _WaitingRows(self._folder_of(values))
            waiting = self._waiting[values]
            self._waiting_bytes += waiting.add(rows if self._layout.keep_partition_columns else without(rows, columns))
            if waiting.bytes >= min(GROUP_BYTES, self._bytes_max):
                self._flush(values)
        while self._waiting_bytes > BUFFERED_BYTES_MAX:
            self._flush(max(self._waiting, key=lambda values: self._waiting[values].bytes))

    def close(self) -> list[DataFile]:
        """Closes and syncs all files, and returns them."""
        for values in [*self._open, *(values for values in self._waiting if values not in self._open)]:
            if values in self._waiting:
                self._flush(values)
            if values in self._open:
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
        self._waiting, self._open, self._closed = {}, {}, []

    def _holds(self, folder: Path) -> bool:
        return folder == self._folder or folder.is_relative_to(self._folder)

    def _flush(self, values: _Values) -> None:
        """Writes the waiting rows of these values as a row group."""
        waiting = self._waiting.pop(values)
        self._waiting_bytes -= waiting.bytes
        if values in self._open and self._open[values].written_bytes + waiting.bytes > self._bytes_max:
            self._close(values)
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = _OpenFile(self._folder, waiting.folder + self._new_name(), values, self._file_schema)
        self._open[values] = file  # the last one is the one that was used last
        file.write(waiting.batches)

    def _new_name(self) -> str:
        return f"{uuid.uuid4()}{self._layout.suffix}"

    def _folder_of(self, values: _Values) -> str:
        """See `_WaitingRows.folder`.

        Raises:
            BadTable: a value is too long.
        """
        if not self._layout.folders or not values:
            return ""
        folder = folder_of(self._layout.partition_by, values)
        for each in folder.split("/"):
            if len(each.encode()) > _NAME_BYTES_MAX:
                raise BadTable(
                    f"{self._layout.location}: no folder can be named {each[:40]}...: partition by short values"
                )
        return f"{folder}/"

    def _close(self, values: _Values) -> None:
        self._closed.append(self._open.pop(values).close())


class _WaitingRows:
    """The rows of the same values that are not written yet."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        """The folder of their files, with a slash at its end; empty if it is that of the table."""
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0
        """The memory of the rows, roughly."""

    def add(self, rows: pa.RecordBatch) -> int:
        """Adds rows, and returns the memory that they take."""
        self.batches.append(rows)
        added: int = rows.nbytes + _COLUMN_BYTES * rows.num_columns
        self.bytes += added
        return added


class _OpenFile:
    """A file that grows."""

    def __init__(self, folder: Path, path: str, values: _Values, schema: pa.Schema) -> None:
        self._place = folder / path
        self._path = path
        self._values = values
        self._schema = schema
        self._statistics = FileStatistics(schema)
        make_folder(self._place.parent)
        self._file: BinaryIO = open(self._place, "xb")  # noqa: SIM115 - open until `close` or `abandon`
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")

    @property
    def written_bytes(self) -> int:
        """The size so far."""
        return self._file.tell()

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Writes a row group."""
        rows = pa.Table.from_batches(batches, self._schema).combine_chunks()
        for batch in rows.to_batches():
            self._statistics.add(batch)
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> DataFile:
        """Completes and syncs the file."""
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
