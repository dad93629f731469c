"""The table of a pipeline's target."""

from __future__ import annotations

from gnomon.spark.pipelines.settings.settings import TargetSettings
from gnomon.spark.pipelines.tasks.decoding import KEY_COLUMN
from gnomon.spark.tables.delta_table import DeltaTable
from gnomon.spark.tables.iceberg_table import IcebergTable
from gnomon.spark.tables.parquet_table import ParquetTable
from gnomon.spark.tables.replacing_table import ReplacingTable
from gnomon.spark.tables.schema_fit import Evolution
from gnomon.spark.tables.table import BadTable, CommitMode, LakeTable


def replacing_table_of(name: str, target: TargetSettings) -> ReplacingTable:
    """The table, for a replay that replaces rows of it; arguments and errors as `table_of`."""
    if target.kind == "parquet" or target.upserts:
        reason = "a folder of Parquet files only grows" if target.kind == "parquet" else "a key has one row there"
        raise BadTable(f"{target.path or target.table}: {reason}, so no rows are replaced: replay into a new table")
    evolve = _evolution(target)
    if target.kind == "delta":
        return DeltaTable(target.path, name, partition_by=target.partition_by, mode=CommitMode.REPLACE, evolve=evolve)
    return IcebergTable(
        target.table,
        name,
        catalog=target.catalog,
        partition_by=target.partition_by,
        mode=CommitMode.REPLACE,
        evolve=evolve,
    )


def table_of(name: str, target: TargetSettings, replaces: str | None) -> LakeTable:
    """The table.

    Args:
        name: the pipeline's.
        replaces: the query whose place the pipeline's query takes.

    Raises:
        BadTable: no table can be written so.
        ModuleNotFoundError: the library of this kind of table is not installed.
    """
    evolve = _evolution(target)
    mode, keys = (CommitMode.UPSERT, (KEY_COLUMN,)) if target.upserts else (CommitMode.APPEND, ())
    if target.kind == "parquet":
        return ParquetTable(target.path, name, partition_by=target.partition_by, evolve=evolve, replaces=replaces)
    if target.kind == "delta":
        return DeltaTable(
            target.path,
            name,
            partition_by=target.partition_by,
            mode=mode,
            keys=keys,
            evolve=evolve,
            replaces=replaces,
        )
    return IcebergTable(
        target.table,
        name,
        catalog=target.catalog,
        partition_by=target.partition_by,
        mode=mode,
        keys=keys,
        evolve=evolve,
        replaces=replaces,
    )


def _evolution(target: TargetSettings) -> Evolution:
    return "add" if target.adds_columns else "fail"
