"""The file that `gnomon pipeline init` writes for each kind of target runs, once it names a broker and a topic."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from followed_table import Target, write
from numbered_topic import NumberedTopic
from pipeline_driver import GNOMON

from gnomon.testing import KafkaBroker

ORDERS = [b'{"id":%d,"name":"n%d","at":"2026-01-31T12:00:00.000Z"}' % (number, number) for number in range(5)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def run_initial_file(folder: Path, kind: str, topic: NumberedTopic) -> None:
    """Writes the file, gives it the broker and the topic of the test, and runs it."""
    file = folder / "pipeline.toml"
    assert gnomon(folder, "init", kind).returncode == 0
    text = file.read_text()
    for before, after in (("127.0.0.1:9092", topic.servers), ('topic = "orders"', f'topic = "{topic.name}"')):
        assert before in text
        text = text.replace(before, after)
    file.write_text(text)
    done = gnomon(folder, "run", file.name)
    assert done.returncode == 0, done.stderr


def gnomon(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(GNOMON), "pipeline", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["iceberg", "parquet"])  # the guide to pipelines has delta
def test_the_initial_file_of_a_table_runs(kind: str, topic: NumberedTopic, tmp_path: Path) -> None:
    write(topic, ORDERS)
    run_initial_file(tmp_path, kind, topic)
    columns = 'id, name, CAST(epoch("at") AS BIGINT), _partition, _offset'
    rows: list[tuple[Any, ...]] = [
        (number, f"n{number}", 1_769_860_800, number % 2, number // 2) for number in range(5)
    ]
    warehouse = "orders" if kind == "iceberg" else "orders-table"
    assert Target(kind, tmp_path).rows(columns, warehouse) == rows


@pytest.mark.usefixtures("spark")
def test_the_initial_file_of_a_topic_runs(topic: NumberedTopic, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_bytes(b"\n".join(ORDERS))
    run_initial_file(tmp_path, "topic", topic)
    found = sorted((key, value) for _, key, value, _ in topic.read(len(ORDERS)))
    assert found == [(b"%d" % number, value) for number, value in enumerate(ORDERS)]
