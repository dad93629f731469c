"""`gnomon pipeline` for files, as processes: killed drivers, an orderly end, two drivers at a time, and the reports."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copying import WAIT_SECONDS
from numbered_topic import NumberedTopic
from pipeline_driver import GNOMON, PipelineDriver

from gnomon.testing import KafkaBroker

ROWS = 20
FILE = """
name = "{topic}"
checkpoint = "files.checkpoint"
[source]
files = "in/*.json"
files_per_batch = 1
[format]
kind = "json"
schema = "number BIGINT"
[target]
kind = "topic"
bootstrap = "{servers}"
topic = "{topic}"
key = "CAST(number % 7 AS STRING)"
[trigger]
{trigger}
[spark]
"spark.master" = "local[2]"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


class FilesFolder(PipelineDriver):
    """A pipeline of files with ROWS numbers each, one file a batch; all its files are in a folder."""

    def __init__(self, folder: Path, topic: NumberedTopic) -> None:
        self.folder, self.topic = folder, topic
        super().__init__(folder / "files.toml", folder / "files.checkpoint" / "0")
        self._files = 0
        (folder / "in").mkdir()
        self.write('every = "100 milliseconds"')

    def write(self, trigger: str) -> None:
        """Writes the pipeline's file."""
        self.file.write_text(FILE.format(servers=self.topic.servers, topic=self.topic.name, trigger=trigger))

    def add(self, count: int) -> None:
        """Adds so many files."""
        for number in range(self._files, self._files + count):
            rows = range(number * ROWS, (number + 1) * ROWS)
            (self.folder / "in" / f"{number:03}.json").write_text("".join(f'{{"number": {n}}}\n' for n in rows))
        self._files += count

    def gnomon(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of `gnomon pipeline` to its end."""
        return subprocess.run([str(GNOMON), "pipeline", *words], capture_output=True, text=True, timeout=300)

    def check(self) -> None:
        """Runs until no file is left; then each row is in the topic once, and the rows of a key are in order."""
        self.write("available_now = true")
        done = self.gnomon("run", str(self.file))
        assert done.returncode == 0, done.stderr
        count = self._files * ROWS
        rows = [(key, json.loads(value or b"")["number"]) for _, key, value, _ in self.topic.read(count + 1)]
        assert sorted(number for _, number in rows) == list(range(count))
        for key in {key for key, _ in rows}:
            of_key = [number for name, number in rows if name == key]
            assert of_key == sorted(of_key)


@pytest.fixture
def files(tmp_path: Path, topic: NumberedTopic) -> FilesFolder:
    return FilesFolder(tmp_path, topic)


def test_each_row_is_in_the_topic_once_though_drivers_are_killed(files: FilesFolder) -> None:
    files.add(30)
    for _ in range(3):
        with files.driver():
            files.wait_for_batches(3)
    files.check()


def test_a_driver_that_is_asked_to_stop_ends_after_its_batch(files: FilesFolder) -> None:
    files.add(30)
    with files.driver("--output", "json") as driver:
        files.wait_for_batches(2)
        driver.send_signal(signal.SIGTERM)
        output, errors = driver.communicate(timeout=60)
        assert driver.returncode == 0, errors
    reports = [json.loads(line) for line in output.splitlines()]
    assert [(each["batch"], each["rows"], each["lag"]) for each in reports] == [
        (number, ROWS, 29 - number) for number in range(len(reports))
    ]


def test_of_two_drivers_of_one_checkpoint_one_ends(files: FilesFolder) -> None:
    files.add(30)
    with files.driver() as first, files.driver() as second:
        deadline = time.monotonic() + WAIT_SECONDS
        while first.poll() is None and second.poll() is None:
            assert time.monotonic() < deadline, "both drivers go on"
            time.sleep(0.1)
        ended = first if first.poll() is not None else second
        _, errors = ended.communicate()
        assert ended.returncode == 5, errors
        assert "ALREADY" in errors
    files.check()


def test_reports_and_resets_are_those_of_files(files: FilesFolder) -> None:
    files.add(2)
    checked = json.loads(files.gnomon("check", str(files.file), "--output", "json").stdout)
    assert (checked["files_to_read"], checked["first_files"][0]["file"]) == (2, "in/000.json")
    assert checked["first_rows"][8] == {"key": "1", "value": '{"number":8}', "partition": None}
    files.write("available_now = true")
    done = files.gnomon("run", str(files.file))
    assert (done.returncode, "batch 1: 20 rows" in done.stderr) == (0, True), done.stderr
    state = json.loads(files.gnomon("status", str(files.file), "--output", "json").stdout)
    assert (state["last_batch"], state["batch_in_topic"], state["files_to_read"]) == (1, 1, 0)
    refused = files.gnomon("reset", str(files.file), "--to-offsets", "earliest")
    assert (refused.returncode, "are for topics" in refused.stderr) == (2, True)
    assert files.gnomon("maintain", str(files.file)).returncode == 2
    assert files.gnomon("reset", str(files.file)).returncode == 0
    state = json.loads(files.gnomon("status", str(files.file), "--output", "json").stdout)
    assert (state["last_batch"], state["resets"], state["files_to_read"]) == (None, 1, 2)


def test_a_new_file_is_that_of_the_kind(files: FilesFolder) -> None:
    made = files.folder / "new.toml"
    assert files.gnomon("init", "topic", "--file", str(made)).returncode == 0
    assert 'kind = "topic"' in made.read_text()
