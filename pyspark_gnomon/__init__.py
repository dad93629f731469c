"""The format `gnomon`, found by Spark: it imports each package whose name begins with `pyspark_`.

An error at the import would break all Python formats of a session. So where a package of the extra `spark` is missing,
the format exists, and says so when it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from gnomon.spark import data_source


class IncompleteSource(DataSource):
    """The format `gnomon` without a package that it needs."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ModuleNotFoundError, which names the package and the extra."""
        super().__init__(options)
        data_source()

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "gnomon"


try:
    DefaultSource = data_source()
except ModuleNotFoundError:
    DefaultSource = IncompleteSource
