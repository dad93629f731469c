"""Reads topics into Spark, and writes to topics from Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from gnomon.spark.pipelines.files.file_pipeline import FilePipeline
    from gnomon.spark.pipelines.pipeline import Pipeline

__all__ = ["FilePipeline", "Pipeline", "data_source", "register"]
_PIPELINES = {
    "FilePipeline": "gnomon.spark.pipelines.files.file_pipeline",
    "Pipeline": "gnomon.spark.pipelines.pipeline",
}


def __getattr__(name: str) -> Any:
    """Imports a class of pipelines at its first use: it needs packages that the format does not.

    Raises:
        AttributeError: there is nothing of this name.
        ModuleNotFoundError: a package of the extra `lake` is not installed.
    """
    module = _PIPELINES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise _missing("pipelines need", error, "lake") from error


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
        raise _missing("Spark's format 'gnomon' needs", error, "spark") from error
    return found


def _missing(needs: str, error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"{needs} the package {error.name}, which is not installed: pip install 'gnomon[{extra}]'", name=error.name
    )
