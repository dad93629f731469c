"""`gnomon pipeline run` as a process: killed drivers and brokers, an orderly end, and two drivers at a time."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from cluster_broker import ClusterBroker
from copying import WAIT_SECONDS
from followed_table import KINDS, Target
from numbered_topic import NumberedTopic
from pipeline_driver import GNOMON, PipelineDriver

from gnomon.testing import KafkaBroker

FILE = """
name = "copy"
[source]
bootstrap = "{servers}"
topic = "{topic}"
options = {{maxOffsetsPerTrigger = 100}}
[format]
kind = "csv"
schema = "number BIGINT"
[target]
{target}
[trigger]
{trigger}
[spark]
"spark.master" = "local[2]"
"""
PATH = 'path = "table"'
PLACES = {
    "delta": PATH,
    "iceberg": 'table = "default.table"\ncatalog = {type = "sql", uri = "sqlite:///catalog.db", warehouse = "w"}',
    "parquet": PATH,
}


class PipelineFolder(PipelineDriver):
    """A pipeline that copies a numbered topic, 100 records a batch; its file, checkpoint and table are in a folder."""

    def __init__(
        self, folder: Path, topic: NumberedTopic, kind: str, trigger: str = 'every = "100 milliseconds"'
    ) -> None:
        self._folder, self._topic, self._kind = folder, topic, kind
        target = f'kind = "{kind}"\n{PLACES[kind]}'
        super().__init__(folder / "copy.toml", folder / "copy.checkpoint" / "0")
        self.file.write_text(FILE.format(servers=topic.servers, topic=topic.name, target=target, trigger=trigger))

    def run(self) -> None:
        """Runs to the present end of the topic."""
        last = PipelineFolder(self._folder, self._topic, self._kind, "available_now = true")
        done = subprocess.run(
            [str(GNOMON), "pipeline", "run", str(last.file)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    def check(self) -> None:
        """Each record is in the table once."""
        rows = Target(self._kind, self._folder).rows("number, _partition, _offset")
        partitions = self._topic.partitions
        assert rows == [(n, n % partitions, n // partitions) for n in range(self._topic.sent)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_is_in_the_table_once_though_drivers_and_brokers_are_killed(
    topic: NumberedTopic, broker: KafkaBroker | ClusterBroker, tmp_path: Path, kind: str
) -> None:
    topic.produce(3_000)
    pipeline = PipelineFolder(tmp_path, topic, kind)
    for number in range(3):
        with pipeline.driver():
            pipeline.wait_for_batches(2)
            if number < 2:
                broker.kill()
                broker.start()
                pipeline.wait_for_batches(1)
    pipeline.run()
    pipeline.check()


def test_a_driver_that_is_asked_to_stop_ends_after_its_batch(topic: NumberedTopic, tmp_path: Path) -> None:
    topic.produce(3_000)
    pipeline = PipelineFolder(tmp_path, topic, "parquet")
    metrics, picture = tmp_path / "copy.prom", tmp_path / "copy.png"
    with pipeline.driver("--output", "json", "--metrics-file", str(metrics), "--picture", str(picture)) as driver:
        pipeline.wait_for_batches(2)
        driver.send_signal(signal.SIGTERM)
        output, errors = driver.communicate(timeout=60)
        assert driver.returncode == 0, errors
    reports = [json.loads(line) for line in output.splitlines()]
    assert [report["batch"] for report in reports] == list(range(len(reports)))
    assert {report["rows"] for report in reports} == {100}
    assert f'gnomon_pipeline_rows_total{{pipeline="copy"}} {100.0 * len(reports)}' in metrics.read_text()
    assert f'gnomon_pipeline_lag_records{{pipeline="copy"}} {float(reports[-1]["lag"])}' in metrics.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    pipeline.run()
    pipeline.check()


def test_a_driver_whose_jvm_is_killed_says_so(topic: NumberedTopic, tmp_path: Path) -> None:
    topic.produce(3_000)
    pipeline = PipelineFolder(tmp_path, topic, "delta")
    with pipeline.driver() as driver:
        pipeline.wait_for_batches(2)
        (jvm,) = (child for child in psutil.Process(driver.pid).children() if child.name() == "java")
        jvm.kill()
        _, errors = driver.communicate(timeout=60)
    assert (driver.returncode, "\nError: Spark's JVM has ended with status -9" in errors) == (1, True), errors
    pipeline.run()
    pipeline.check()


def test_two_drivers_of_one_checkpoint_write_each_record_once(topic: NumberedTopic, tmp_path: Path) -> None:
    topic.produce(3_000)
    pipeline = PipelineFolder(tmp_path, topic, "delta")
    with pipeline.driver() as first, pipeline.driver() as second:
        deadline = time.monotonic() + WAIT_SECONDS
        while first.poll() is None and second.poll() is None:
            assert time.monotonic() < deadline, "both drivers go on"
            time.sleep(0.1)
        ended = first if first.poll() is not None else second
        _, errors = ended.communicate()
        assert ended.returncode == 5, errors
        assert "ALREADY" in errors or "FENCED" in errors
    pipeline.run()
    pipeline.check()
