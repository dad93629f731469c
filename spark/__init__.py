"""Reads topics into Spark, and writes to topics from Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def register(session: SparkSession) -> None:
    """Makes the format `gnomon` known to a session. Where gnomon is installed from its wheel, Spark finds it itself.

    Raises:
        ModuleNotFoundError: a package of the extra `spark` is not installed.
    """
    found = data_source()
    session.dataSource.register(found)


def data_source() -> type[DataSource]:
    """The class of the format `gnomon`; raises as `register`."""
    try:
        found: type[DataSource] = import_module("gnomon.spark.source").GnomonDataSource
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Spark's format 'gnomon' needs the package {error.name}, which is not installed: pip install"
            " 'gnomon[spark]'",
            name=error.name,
        ) from error
    return found
