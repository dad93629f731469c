"""Pipelines from topics of numbered JSON objects into tables of each kind, which other programs read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
from confluent_kafka import Producer
from numbered_topic import NumberedTopic

from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.pipelines.progress import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("delta", "iceberg", "parquet")
RECORDS = 200
NOT_JSON = b"not JSON"


class Target(NamedTuple):
    """A table of one kind in a folder."""

    kind: str
    folder: Path

    def settings(self, **more: Any) -> dict[str, Any]:
        """The section `target`."""
        place: dict[str, Any] = {"path": "table"}
        if self.kind == "iceberg":
            place = {
                "table": "default.table",
                "catalog": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "w"},
            }
        return {"kind": self.kind, **place, **more}

    def rows(self, columns: str = "a, _partition, _offset", table: str = "table") -> list[tuple[Any, ...]]:
        """The rows, as DuckDB reads them, in order."""
        found = self._read(table)
        return sorted(duckdb.sql(f"SELECT {columns} FROM found").fetchall()) if found is not None else []

    def _read(self, table: str) -> Any:
        if self.kind == "delta":
            import deltalake

            return deltalake.DeltaTable(str(self.folder / table)).to_pyarrow_dataset()
        if self.kind == "iceberg":
            from pyiceberg.catalog import load_catalog

            return (
                load_catalog("default", type="sql", uri=f"sqlite:///{self.folder}/catalog.db")
                .load_table(f"default.{table}")
                .scan()
                .to_arrow()
            )
        files = f"{self.folder}/{table}/**/*.parquet"
        return duckdb.sql(f"SELECT * FROM read_parquet('{files}', hive_partitioning = true)")


def write(
    topic: NumberedTopic, values: Iterable[bytes | None], key: Callable[[int], bytes] = lambda n: b"k%d" % n
) -> None:
    """Writes records; each has the key of its number and goes to the partitions in turn."""
    producer = Producer({"bootstrap.servers": topic.servers})
    for number, value in enumerate(values):
        producer.produce(
            topic.name, value, key(number), number % topic.partitions, timestamp=1_700_000_000_000 + number
        )
    assert producer.flush() == 0


def numbers(start: int, stop: int, bad: Iterable[int] = ()) -> list[bytes]:
    refused = set(bad)
    return [NOT_JSON if number in refused else b'{"a": %d}' % number for number in range(start, stop)]


def pipeline(topic: NumberedTopic, into: Target, **sections: Mapping[str, Any]) -> Pipeline:
    """A pipeline of JSON objects with a number `a`."""
    given: dict[str, Any] = {
        "name": topic.name,
        "checkpoint": "checkpoint",
        "source": {"bootstrap": topic.servers, "topic": topic.name},
        "format": {"kind": "json", "schema": "a BIGINT"},
        "target": into.settings(),
        "trigger": {"available_now": True},
    }
    for name, section in sections.items():
        merged = {**given.get(name, {}), **section}
        given[name] = {key: value for key, value in merged.items() if value is not None}
    return Pipeline.of(given, into.folder)


def run(spark: SparkSession, made: Pipeline) -> list[BatchProgress]:
    """Runs to the present end."""
    found: list[BatchProgress] = []
    made.run(spark, found.append)
    return found
