"""The range of a replay (`spark.pipelines.replays.range_replay`)."""

from __future__ import annotations

import json

import pytest

from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.columns import Range
from gnomon.spark.options import SourceOptions
from gnomon.spark.pipelines.replays.range_replay import ReplayRefused, check_read, read_of

READ = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50}


@pytest.mark.parametrize("stop", [0, 99, 100])
def test_a_range_that_the_pipeline_has_read_is_replaced(stop: int) -> None:  # 2
    check_read([Range("orders", 0, 0, stop), Range("orders", 1, 10, 50)], READ)


@pytest.mark.parametrize(
    ("partition", "stop", "position"), [(0, 101, 100), (1, 51, 50), (2, 1, 0)], ids=["first", "second", "new partition"]
)
def test_a_range_that_the_pipeline_has_not_read_is_refused(partition: int, stop: int, position: int) -> None:  # 2
    with pytest.raises(ReplayRefused, match=f"read partition {partition} .* up to offset {position}, .* to {stop}"):
        check_read([Range("orders", partition, 0, stop)], READ)


def test_nothing_is_replaced_before_the_first_batch() -> None:  # 2
    with pytest.raises(ReplayRefused, match="has not run"):
        check_read([], None)


def test_an_empty_range_behind_the_end_is_no_loss() -> None:
    check_read([Range("orders", 0, 300, 300)], READ)


@pytest.mark.parametrize("given", [{"subscribe": "orders,others"}, {"subscribePattern": "o.*"}])
def test_a_batch_read_has_exactly_these_offsets(given: dict[str, str]) -> None:  # 1
    ranges = [Range("orders", 0, 5, 9), Range("orders", 1, 0, 3), Range("others", 0, 7, 7)]
    options = read_of({"kafka.bootstrap.servers": "h:9092", "minPartitions": "4", **given}, ranges)
    parsed = SourceOptions.parse(options, streaming=False)
    assert parsed.assigned == tuple(TopicPartition(*each[:2]) for each in ranges)
    assert parsed.tasks_min == 4
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 5, "1": 0}, "others": {"0": 7}}
    assert json.loads(options["endingOffsets"]) == {"orders": {"0": 9, "1": 3}, "others": {"0": 7}}
