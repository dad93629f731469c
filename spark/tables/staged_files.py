"""The files of batches that are not in a table yet, in a folder below that of the table.

Readers and cleaners of tables skip names that begin with `_`, and names that do not end with `.parquet`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from gnomon.spark.tables.data_files.data_file import STAGED_SUFFIX, DataFile, FileLayout
from gnomon.spark.tables.local_folder import local_folder, make_folder, milliseconds_now
from gnomon.spark.tables.schema_fit import with_columns

UNUSED_MS: Final = 24 * 3600 * 1000
"""A staged file that is older than this belongs to no batch that will be committed."""


def staged_folder(folder: Path) -> Path:
    """The folder of the staged files of the table in `folder`."""
    return folder / "_gnomon" / "staged"


def staged_layout(
    folder: Path, partition_by: tuple[str, ...] = (), *, keep_partition_columns: bool = True
) -> FileLayout:
    """The layout of staged files; makes their folder."""
    make_folder(staged_folder(folder))
    return FileLayout(str(staged_folder(folder)), partition_by, keep_partition_columns, False, STAGED_SUFFIX)


def staged_rows(folder: Path, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of staged files with the columns of `schema`; a column that they lack is null."""
    for file in files:
        for batch in pq.ParquetFile(staged_folder(folder) / file.path).iter_batches():
            yield from with_columns(pa.Table.from_batches([batch]), schema).to_batches()


def values_of(layout: FileLayout, files: Sequence[DataFile], columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows of files, all of which are in the files; no columns if there are no files."""
    folder = local_folder(layout.location)
    found = [pq.ParquetFile(folder / file.path).read(list(columns)) for file in files]
    return pa.concat_tables(found) if found else pa.table({})


def remove_staged(folder: Path, files: Sequence[DataFile]) -> None:
    """Removes the staged files of a batch that is in the table."""
    for file in files:
        (staged_folder(folder) / file.path).unlink(missing_ok=True)


def remove_unused(folder: Path, used: Collection[str] = ()) -> int:
    """Removes the files directly in `folder` that are older than UNUSED_MS, except those with a name in `used`.

    Returns their number.
    """
    if not folder.is_dir():
        return 0
    oldest_ms = milliseconds_now(folder) - UNUSED_MS
    left = [each for each in os.scandir(folder) if each.name not in used]
    unused = [each for each in left if each.stat().st_mtime_ns // 1_000_000 < oldest_ms]
    for each in unused:
        os.unlink(each.path)
    return len(unused)
