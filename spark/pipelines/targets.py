"""The table of a pipeline's target."""

from __future__ import annotations

from gnomon.spark.pipelines.settings.settings import TargetSettings
from gnomon.spark.pipelines.tasks.decoding import KEY_COLUMN
from gnomon.spark.tables.delta_table import DeltaTable
from gnomon.spark.tables.iceberg_table import IcebergTable
from gnomon.spark.tables.parquet_table import ParquetTable
from gnomon.spark.tables.schema_fit import Evolution
from gnomon.spark.tables.table import CommitMode, Table


def table_of(name: str, target: TargetSettings, replaces: str | None) -> Table:
    """The table.

    Args:
        name: the pipeline's.
        replaces: the query whose place the pipeline's query takes.

    Raises:
        BadTable: no table can be written so.
        ModuleNotFoundError: the library of this kind of table is not installed.
    """
    evolve: Evolution = "add" if target.adds_columns else "fail"
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
