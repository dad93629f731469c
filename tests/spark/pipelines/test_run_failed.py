"""The errors of gnomon in the texts of Spark (`spark.pipelines.run_failed`)."""

from __future__ import annotations

import pytest

from gnomon.spark.pipelines.batch_commit import PipelineFenced
from gnomon.spark.pipelines.run_failed import RunFailed, own_error
from gnomon.spark.pipelines.tasks.letters import RecordsRefused

WORKER = """\
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/gnomon/spark/pipelines/tasks/task_writer.py", line 70, in __call__
    raise RecordsRefused(text)
{name}: {text}

	at org.apache.spark.api.python.BasePythonRunner
"""


def test_a_refused_record_is_named_with_the_setting_that_decides() -> None:
    name = "gnomon.spark.pipelines.tasks.dead_letters.RecordsRefused"
    found = own_error(Exception(WORKER.format(name=name, text="topic 'a', partition 0, offset 4: not a JSON object")))
    assert isinstance(found, RecordsRefused)
    assert str(found) == "topic 'a', partition 0, offset 4: not a JSON object (errors.on_error decides)"


def test_another_error_of_gnomon_has_its_text() -> None:
    found = own_error(Exception(WORKER.format(name="gnomon.spark.reading.DataLost", text="records: were deleted")))
    assert isinstance(found, RunFailed)
    assert str(found) == "records: were deleted"


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs",
        "SparkConcurrentModificationException: Multiple streaming queries are concurrently using metadata",
    ],
)
def test_two_drivers_of_one_checkpoint_are_told_apart_by_spark(text: str) -> None:
    found = own_error(Exception(text))
    assert isinstance(found, PipelineFenced)
    assert "another driver runs on this checkpoint" in str(found)


@pytest.mark.parametrize(
    "text", ["", "Job aborted", WORKER.format(name="ValueError", text="gnomon.spark: x"), " gnomon.x.Y: indented"]
)
def test_other_errors_are_left_to_the_caller(text: str) -> None:
    assert own_error(Exception(text)) is None
