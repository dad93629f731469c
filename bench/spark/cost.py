"""The cost of a job per row: its time, and the processor time of Spark and of each role of a server, apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.spark.server import SparkServer
from bench.spark.session import SparkSessionProcess


def costed(
    session: SparkSessionProcess, server: SparkServer, rows: int, job: Callable[[], dict[str, Any]]
) -> dict[str, float]:
    """Runs a job over that many rows: rows a second, and microseconds of processor time per row."""
    spark, roles = session.cpu_seconds(), server.cpu_seconds()
    seconds = job()["seconds"]
    spark, after = session.cpu_seconds() - spark, server.cpu_seconds()
    return {
        "rate": rows / seconds,
        "spark_us": spark / rows * 1e6,
        **{f"{role}_us": (after[role] - before) / rows * 1e6 for role, before in roles.items()},
    }
