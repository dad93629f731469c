"""The commands of pipelines that need no Spark, on a broker: init, check, status, reset and maintain."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from gnomon.spark.pipelines.pipeline import Pipeline
from gnomon.spark.tables.data_files.file_writer import FileWriter
from gnomon.spark.tables.table import CommitVerdict, TableBatch
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]
KINDS = ("delta", "iceberg", "parquet")
START_MS = 1_700_000_000_000


class Described:
    """A pipeline's file that `init` has written, aimed at a topic of its own."""

    def __init__(self, ask: Run, broker: KafkaBroker, folder: Path, kind: str) -> None:
        self.topic = f"orders-{uuid4().hex[:8]}"
        self.file = folder / "pipeline.toml"
        self.ask, self._servers = ask, broker.bootstrap_servers
        assert ask("pipeline", "init", kind, "--file", self.file).returncode == 0
        self.change("127.0.0.1:9092", self._servers)
        self.change('topic = "orders"', f'topic = "{self.topic}"')
        self.change("name STRING, at TIMESTAMP", "name STRING")
        assert ask("topic", "create", self.topic, "--partitions", 2).returncode == 0

    def change(self, before: str, after: str) -> None:
        text = self.file.read_text()
        assert before in text
        self.file.write_text(text.replace(before, after))

    def write(self, *values: bytes, key: bytes | None = None) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "log_level": 0})
        for number, value in enumerate(values):
            producer.produce(self.topic, value, key, partition=number % 2, timestamp=START_MS + number)
        assert producer.flush(30) == 0

    def run(self, command: str, *options: object) -> subprocess.CompletedProcess[str]:
        return self.ask("pipeline", command, self.file, *options)

    def report(self, command: str, *options: object) -> dict[str, Any]:
        done = self.run(command, *options, "--output", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(params=KINDS)
def described(request: pytest.FixtureRequest, ask: Run, broker: KafkaBroker, tmp_path: Path) -> Described:
    return Described(ask, broker, tmp_path, request.param)


def names(folder: Path) -> set[str]:
    """The files of a folder; the catalog's own database is made when it is first asked."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} - {"catalog.db"}


@pytest.mark.parametrize("kind", [*KINDS, "topic"])
def test_the_file_of_init_is_whole_and_is_not_written_over(inside: Run, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "pipeline.toml"
    assert inside("pipeline", "init", kind, "--file", file).returncode == 0
    before = file.read_text()
    assert tomllib.loads(before)["target"]["kind"] == kind
    again = inside("pipeline", "init", kind, "--file", file)
    assert (again.returncode, file.read_text()) == (5, before)
    assert "exists" in again.stderr


def test_check_shows_what_a_run_would_do_and_changes_nothing(described: Described) -> None:
    described.write(b'{"id": 1, "name": "a"}', b'{"id": 2}', b'{"id": 3, "name": "c"}')
    before = names(described.file.parent)
    found = described.report("check")
    assert names(described.file.parent) == before
    assert (found["records_to_read"], found["table_exists"]) == (3, False)
    assert found["bytes_to_read"] > 100
    assert found["target"].split()[0] in KINDS
    assert [(each["partition"], each["records"], each["holds"]) for each in found["partitions"]] == [
        (0, 2, 0),
        (1, 1, 0),
    ]
    assert {each["read_from"] for each in found["partitions"]} == {"brokers"}, "a standalone node has no bookies"
    assert [each["column"] for each in found["columns"][:2]] == ["id", "name"]
    assert [each["row"]["id"] for each in found["first_records"]] == [1, 3, 2]
    assert found["first_records"][0]["row"]["_timestamp"] == "2023-11-14T22:13:20+00:00"
    assert described.run("check").returncode == 0


def test_check_shows_values_of_all_types(described: Described) -> None:
    columns = "n DECIMAL(9,2), d DATE, l ARRAY<DATE>, s STRUCT<t: TIMESTAMP>"
    described.change('schema = "id BIGINT, name STRING"', f'schema = "{columns}"\nkey = "raw"')
    value = b'{"n": 1.25, "d": "2024-01-02", "l": ["2024-01-02"], "s": {"t": "2024-01-02T03:04:05Z"}}'
    described.write(value, key=b"\0\xff")
    for output in ("json", "yaml", "table"):
        assert described.run("check", "--output", output).returncode == 0
    row = described.report("check")["first_records"][0]["row"]
    assert {name: row[name] for name in ("n", "d", "l", "s", "_key")} == {
        "n": "1.25",
        "d": "2024-01-02",
        "l": ["2024-01-02"],
        "s": {"t": "2024-01-02T03:04:05+00:00"},
        "_key": "AP8=",
    }


def test_check_ends_with_1_and_the_first_record_that_does_not_fit(described: Described) -> None:
    described.write(b'{"id": 1}', b'{"id": "x"}')
    done = described.run("check", "--output", "json")
    assert done.returncode == 1
    assert f"{described.topic}-1 offset 0" in done.stderr
    errors = [each["error"] for each in json.loads(done.stdout)["first_records"]]
    assert [bool(error) for error in errors] == [False, True]


def test_check_writes_the_columns_that_it_infers(described: Described) -> None:
    described.change('schema = "id BIGINT, name STRING"', "")
    described.write(b'{"id": 1, "price": 2.5}')
    before = described.file.read_text()
    assert described.report("check")["inferred_schema"] == "id BIGINT, price DOUBLE"
    assert described.file.read_text() == before
    assert described.run("check", "--write-schema").returncode == 0
    assert tomllib.loads(described.file.read_text())["format"]["schema"] == "id BIGINT, price DOUBLE"


def committed(described: Described, *ids: int) -> None:
    """A driver writes rows, and dies before its checkpoint says so."""
    table = Pipeline.load(described.file).table()
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    writer = FileWriter(table.prepare(schema), schema)
    writer.write(pa.RecordBatch.from_pylist([{"id": each} for each in ids], schema))
    assert table.commit(TableBatch("0f1e2d3c4b5a496", 4), schema, writer.close()) is CommitVerdict.COMMITTED


def test_check_shows_the_columns_of_the_table_before_and_after(described: Described) -> None:
    described.write(b'{"id": 1, "name": "a"}')
    columns = {each["column"]: (each["type"], each["in_table"]) for each in described.report("check")["columns"]}
    assert (columns["id"], columns["name"]) == (("int64", ""), ("string", ""))
    committed(described, 1)
    described.change('schema = "id BIGINT, name STRING"', 'schema = "id BIGINT, name STRING, price DOUBLE"')
    found = json.loads(described.run("check", "--output", "json").stdout)
    columns = {each["column"]: (each["type"], each["in_table"]) for each in found["columns"]}
    assert found["table_exists"]
    assert columns["id"] == ("int64", "int64")
    assert columns["name"][1] in ("string", "large_string")
    assert columns["price"] == ("double", "")


def test_status_shows_the_last_batch_and_what_is_left(described: Described) -> None:
    described.write(*[b'{"id": 1}'] * 5)
    first = described.report("status")
    assert (first["last_batch"], first["batch_in_table"], first["lag"], first["resets"]) == (None, None, 5, 0)
    committed(described, 1)
    assert described.report("status")["batch_in_table"] == 4


@pytest.mark.parametrize(
    ("options", "lag"),
    [
        (["--to-offsets", "latest"], 0),
        (["--to-offsets", "earliest"], 6),
        (["--to-time", "2023-11-14T22:13:20.002Z"], 4),
    ],
)
def test_reset_moves_the_start_of_the_next_run(described: Described, options: list[str], lag: int) -> None:
    described.write(*[b'{"id": 1}'] * 6)
    done = described.run("reset", *options)
    assert done.returncode == 0, done.stderr
    found = described.report("status")
    assert (found["resets"], found["lag"]) == (1, lag)


def test_reset_takes_one_place(described: Described) -> None:
    for options in ([], ["--to-offsets", "latest", "--to-time", "2023-11-14T22:13:20Z"]):
        done = described.run("reset", *options)
        assert done.returncode == 2
        assert "one of --to-offsets and --to-time" in done.stderr
    assert described.run("reset", "--to-offsets", "no").returncode == 2


def test_maintain_tells_what_it_did(described: Described) -> None:
    assert "not exist" in described.run("maintain").stderr
    committed(described, 1, 2)
    done = described.run("maintain")
    assert done.returncode == 0
    assert done.stderr.strip()
