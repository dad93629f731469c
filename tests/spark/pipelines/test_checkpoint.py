"""The checkpoint of a pipeline (`spark.pipelines.checkpoint`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.pipelines.checkpoint import Checkpoint, Generation
from gnomon.spark.pipelines.settings.section import BadPipeline


def test_a_new_checkpoint_is_of_the_first_generation(tmp_path: Path) -> None:
    found = Checkpoint(str(tmp_path / "new"))
    assert (found.generation.number, found.generation.starting, found.generation.replaces) == (0, None, None)
    assert (found.query(), found.committed()) == (None, None)
    assert not (tmp_path / "new").exists()


def test_a_reset_begins_a_generation_that_the_next_driver_finds(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path)).reset({"startingOffsets": "latest"}, "abc")
    Checkpoint(str(tmp_path)).reset({"startingOffsets": "earliest"}, None)
    found = Checkpoint(str(tmp_path))
    assert found.generation.number == 2
    assert found.generation.starting == {"startingOffsets": "earliest"}
    assert found.generation.replaces is None
    assert found.spark_folder == tmp_path / "2"


def test_the_first_offsets_of_a_generation_are_recorded_until_the_next_one(tmp_path: Path) -> None:
    begun = Checkpoint(str(tmp_path))
    assert begun.first() is None
    begun.begin({"orders": {"0": 30}})
    found = Checkpoint(str(tmp_path))
    assert (found.first(), found.generation.number) == ({TopicPartition("orders", 0): 30}, 0)
    found.reset({"startingOffsets": "latest"}, "abc")
    found.begin({"orders": {"0": 40}})
    assert Checkpoint(str(tmp_path)).generation == Generation(
        1, {"startingOffsets": "latest"}, "abc", {"orders": {"0": 40}}
    )
    found.reset({"startingOffsets": "earliest"}, "abc")
    assert Checkpoint(str(tmp_path)).first() is None


def test_the_query_and_the_last_batch_are_those_of_spark(tmp_path: Path) -> None:
    found = Checkpoint(str(tmp_path))
    for folder in ("commits", "offsets"):
        (tmp_path / "0" / folder).mkdir(parents=True)
    (tmp_path / "0" / "metadata").write_text('{"id":"972f7d73-0dee"}')
    for name in ("0", "1", "10", ".10.crc"):
        (tmp_path / "0" / "commits" / name).write_text("v1\n{}")
    (tmp_path / "0" / "offsets" / "10").write_text('v1\n{}\n{"x": {"0": 5, "1": 7}}\n{"x": {"0": 6, "1": 3, "2": 1}}')
    assert found.query() == "972f7d73-0dee"
    assert found.committed() == 10
    assert found.offsets(10) == {"x": {"0": 5, "1": 3, "2": 1}}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "generation": "x"}'])
def test_a_file_that_is_not_gnomons_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "pipeline.json").write_text(content)
    with pytest.raises(BadPipeline, match=r"pipeline\.json"):
        Checkpoint(str(tmp_path))


def test_a_file_of_a_newer_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text('{"version": 2}')
    with pytest.raises(BadPipeline, match="version 2"):
        Checkpoint(str(tmp_path))


def test_a_checkpoint_is_a_folder_of_a_file_system() -> None:
    with pytest.raises(BadPipeline, match="s3://"):
        Checkpoint("s3://bucket/x")
