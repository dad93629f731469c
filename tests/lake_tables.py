"""The three kinds of tables in a folder, read back by other programs than the one that writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from deltalake.table import TableAlterer, TableMerger
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from gnomon.spark.tables import delta_table, iceberg_table, parquet_table
from gnomon.spark.tables.data_files.data_file import DataFile
from gnomon.spark.tables.data_files.file_writer import FileWriter
from gnomon.spark.tables.table import CommitVerdict, LakeTable, TableBatch

KINDS = ("delta", "iceberg", "parquet")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])
QUERY = "0f1e2d3c-4b5a-4968-8776-655443322110"
OTHER_QUERY = "f0000000-0000-4000-8000-000000000000"
"""Its number is higher than that of QUERY."""
Rows = list[dict[str, Any]]


def rows_of(*ids: int, **others: Any) -> Rows:
    """Rows with these ids."""
    return [{"id": each, "name": f"n{each}", **others} for each in ids]


class LakeKind:
    """One kind of table, at one place."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.catalog = {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }

    @property
    def module(self) -> ModuleType:
        """The module of the table: its `verdict` is called between reading and committing."""
        return {"delta": delta_table, "iceberg": iceberg_table, "parquet": parquet_table}[self.name]

    @property
    def place(self) -> Path:
        """The folder of the table."""
        return self.folder / "db" / "t"

    def open(self, pipeline: str = "p", **options: Any) -> LakeTable:
        """A new handle."""
        if self.name == "iceberg":
            return iceberg_table.IcebergTable("db.t", pipeline, catalog=self.catalog, **options)
        if self.name == "delta":
            return delta_table.DeltaTable(str(self.place), pipeline, **options)
        return parquet_table.ParquetTable(str(self.place), pipeline, **options)

    def rows(self) -> Rows:
        """The rows that a reader finds, by their ids; a column `id` is in every table."""
        try:
            found = self._table()
        except (duckdb.IOException, deltalake.exceptions.TableNotFoundError):
            return []
        return sorted(found.to_pylist(), key=lambda row: row["id"])

    def ids(self) -> list[int]:
        """The ids of these rows."""
        return [row["id"] for row in self.rows()]

    def _table(self) -> pa.Table:
        if self.name == "iceberg":
            catalog = load_catalog(**self.catalog)
            return catalog.load_table("db.t").scan().to_arrow() if catalog.table_exists("db.t") else pa.table({})
        if self.name == "delta":
            return pa.table(deltalake.DeltaTable(self.place).to_pyarrow_table())
        files = f"read_parquet('{self.place}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
        return duckdb.sql(f"SELECT * FROM {files}").to_arrow_table()


def write(table: LakeTable, rows: Rows, schema: pa.Schema = SCHEMA, more: Sequence[pa.Field] = ()) -> list[DataFile]:
    """A task writes rows.

    Args:
        more: columns of the rows beside those of the table.
    """
    layout = table.prepare(schema)
    writer = FileWriter(layout, pa.schema([*schema, *more]))
    writer.write(pa.RecordBatch.from_pylist(rows, pa.schema([*schema, *more])))
    return writer.close()


def put(table: LakeTable, number: int, rows: Rows, schema: pa.Schema = SCHEMA, query: str = QUERY) -> CommitVerdict:
    """A task writes rows, and the driver commits them."""
    return table.commit(TableBatch(query, number), schema, write(table, rows, schema))


class Died(BaseException):
    """The process has died: nothing catches this."""


class Deaths:
    """Kills the process at one of its effects on disks and catalogs.

    Args:
        at: the effect, counted from 0; none if it is negative.
        after: dies once the effect has happened, instead of before.
    """

    def __init__(self, at: int = -1, *, after: bool = False) -> None:
        self._at = at
        self._after = after
        self.dead = False
        self.seen = 0
        """The effects so far."""

    def watched(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        """The effect, as the dying process has it."""

        def call(*args: Any, **options: Any) -> Any:
            number, self.seen = self.seen, self.seen + 1
            if self.dead or (number == self._at and not self._after):
                self.dead = True
                raise Died
            try:
                return effect(*args, **options)
            finally:
                if number == self._at:
                    self.dead = True
                    raise Died

        return call


EFFECTS: Mapping[str, Sequence[tuple[Any, str]]] = {
    "delta": (
        (deltalake.DeltaTable, "create"),
        (deltalake.DeltaTable, "create_write_transaction"),
        (TableAlterer, "add_columns"),
        (TableMerger, "execute"),
    ),
    "iceberg": ((SqlCatalog, "commit_table"), (SqlCatalog, "create_namespace")),
    "parquet": ((os, "link"), (os, "rename"), (tempfile, "mkstemp")),
}
DISK_EFFECTS = tuple((os, name) for name in ("fsync", "unlink", "mkdir"))


@contextmanager
def dying(kind: LakeKind, deaths: Deaths) -> Iterator[None]:
    """Runs the block as a process that dies."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (*EFFECTS[kind.name], *DISK_EFFECTS):
            patch.setattr(owner, name, deaths.watched(getattr(owner, name)))
        try:
            yield
        except Died:
            pass
