"""The jars of Spark's Kafka connector and of Delta's writer, which come through Maven once."""

from __future__ import annotations

from pathlib import Path

from bench.system import fetch_jars
from bench.workspace import SOURCES

CONNECTOR = SOURCES.parent / "tests" / "with_spark" / "connector" / "pom.xml"
DELTA = Path(__file__).with_name("delta_pom.xml")


def connector_jars(cache: Path) -> list[str]:
    """The paths of the connector's jars. Raises GeneratorUnavailable if they cannot be fetched."""
    return _jars(CONNECTOR, cache / "spark-connector", "Spark's Kafka connector")


def delta_jars(cache: Path) -> list[str]:
    """The paths of the jars of Delta's writer; raises as `connector_jars`."""
    return _jars(DELTA, cache / "spark-delta", "Delta's writer for Spark")


def _jars(pom: Path, folder: Path, what: str) -> list[str]:
    if not list(folder.glob("*.jar")):
        fetch_jars(pom, folder, what)
    return sorted(map(str, folder.glob("*.jar")))
