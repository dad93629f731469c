"""The batches of a pipeline of files (`spark.pipelines.files.file_log`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.spark.pipelines.checkpoint import Checkpoint
from gnomon.spark.pipelines.files.file_log import FileLog
from gnomon.spark.pipelines.files.next_files import SourceFile
from gnomon.spark.pipelines.settings.section import BadPipeline

A, B = SourceFile("a", 1, 2), SourceFile("b", 3, 4)


def log_of(folder: Path) -> FileLog:
    return FileLog(Checkpoint(str(folder)))


def test_a_new_log_has_no_batches_and_changes_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path / "new")
    assert (log.query(), log.next_number(), log.batch(0), log.read()) == (None, 0, None, {})
    assert not (tmp_path / "new").exists()


def test_a_query_keeps_its_id_until_a_reset(tmp_path: Path) -> None:
    assert log_of(tmp_path).begin("first") == "first"
    assert log_of(tmp_path).begin("second") == "first"
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.reset({}, "first")
    assert log_of(tmp_path).begin("third") == "third"


def test_the_next_driver_finds_recorded_and_ended_batches(tmp_path: Path) -> None:  # 1, 3
    log = log_of(tmp_path)
    log.begin("q")
    log.record(0, [A])
    assert (log_of(tmp_path).next_number(), log_of(tmp_path).batch(0)) == (0, (A,))
    log.end(0)
    log.record(1, [B])
    assert (log_of(tmp_path).next_number(), log_of(tmp_path).batch(1)) == (1, (B,))
    assert log_of(tmp_path).read() == {"a": A, "b": B}


def test_of_two_drivers_one_records_a_batch_and_one_ends_it(tmp_path: Path) -> None:  # 2
    log, other = log_of(tmp_path), log_of(tmp_path)
    log.begin("q")
    assert log.record(0, [A])
    assert not other.record(0, [B])
    assert other.batch(0) == (A,)
    assert other.end(0)
    assert not log.end(0)


@pytest.mark.parametrize("content", ["", "{}", '{"version": 2}', '{"version": 1, "files": [["a"]]}'])
def test_a_record_that_is_not_gnomons_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    log = log_of(tmp_path)
    log.begin("q")
    (tmp_path / "0" / "batches" / "0").write_text(content)
    with pytest.raises(BadPipeline, match="batches/0"):
        log.batch(0)


def test_the_checkpoint_of_a_pipeline_of_topics_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0" / "offsets").mkdir(parents=True)
    with pytest.raises(BadPipeline, match="that of a pipeline of topics"):
        log_of(tmp_path)
