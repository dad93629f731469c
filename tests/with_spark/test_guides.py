"""The commands and programs of the guides are run as they stand, except for the address of the broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def blocks(page: str, language: str, section: str) -> list[str]:
    """The blocks of a language in a section of a page."""
    text = (DOCS / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_guide_to_pipelines_goes_from_nothing_to_a_table(broker: KafkaBroker, tmp_path: Path) -> None:
    (commands,) = blocks("pipelines.md", "sh", "From nothing to a table")
    (program,) = blocks("pipelines.md", "python", "From nothing to a table")
    lines = commands.splitlines()
    assert lines.pop(0) == "gnomon standalone &"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GNOMON_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    outputs = ""
    for line in lines:
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        outputs += done.stdout + done.stderr
        if "pipeline init" in line:
            file = tmp_path / "pipeline.toml"
            file.write_text(file.read_text().replace(ADDRESS, broker.bootstrap_servers))
    assert "batch 0: 3 rows" in outputs
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"│ +3 +│", done.stdout), done.stdout


def test_the_programs_of_the_guide_to_spark_read_and_write(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    (reading,), (writing, streaming) = blocks("spark.md", "python", "Reading"), blocks("spark.md", "python", "Writing")
    command = [str(Path(sys.executable).with_name("gnomon")), "topic", "create", "--bootstrap-server"]
    for topic in ("flights", "copy"):
        subprocess.run([*command, broker.bootstrap_servers, topic], check=True, timeout=60)
    names = {"spark": spark, "rows": spark.createDataFrame([(b"a",), (b"b",)], "value binary")}
    streaming = streaming.replace('"checkpoint"', repr(str(tmp_path / "checkpoint")))
    for program in (writing, reading, streaming):
        exec(compile(program.replace(ADDRESS, broker.bootstrap_servers), "spark.md", "exec"), names)  # noqa: S102 - the guide
    assert sorted(bytes(row.value) for row in names["rows"].collect()) == [b"a", b"b"]
    assert names["rows"].columns == ["value", "offset"]
    names["query"].processAllAvailable()
    names["query"].stop()
    copied = spark.read.format("gnomon").options(**{**names["options"], "subscribe": "copy"}).load()
    assert sorted(bytes(row.value) for row in copied.collect()) == [b"a", b"b"]
    assert (
        "__gnomon_sink_flights-copy"
        in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics().topics
    )
