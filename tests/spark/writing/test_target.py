"""The rules that the configs of a topic make for rows."""

from __future__ import annotations

import pytest
from sink_client import SinkClient, rows_of, with_sink

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.client.kafka.admin import ensure_topic
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing.target import RowRefused, Target, target_of
from gnomon.spark.writing.targets import find_targets

CONFIGS = {
    "max.message.bytes": "1000",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "5000",
    "message.timestamp.after.max.ms": "7000",
}


def test_the_rules_are_those_of_the_configs() -> None:
    assert target_of("orders", 3, CONFIGS) == Target(
        name="orders", partitions=3, batch_bytes_max=1_000, compacted=False, past_ms_max=5_000, future_ms_max=7_000
    )


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_topic_that_is_compacted_needs_keys(policy: str) -> None:
    assert target_of("orders", 3, {**CONFIGS, "cleanup.policy": policy}).compacted


def test_a_broker_that_sets_the_timestamps_leaves_them_without_bounds() -> None:
    found = target_of("orders", 3, {**CONFIGS, "message.timestamp.type": "LogAppendTime"})
    assert (found.past_ms_max, found.future_ms_max) == (None, None)


def test_a_shadow_takes_no_rows() -> None:
    with pytest.raises(RowRefused, match="topic 'copy' is a shadow: write to its source 'orders'"):
        target_of("copy", 3, {**CONFIGS, SHADOW_SOURCE: "orders"})


def test_topics_are_found_with_their_own_configs() -> None:
    async def work(sink: SinkClient) -> None:
        own = {"message.timestamp.before.max.ms": "5000", "message.timestamp.after.max.ms": "7000"}
        await ensure_topic(sink.cluster, "bounded", 2, {**own, "max.message.bytes": "3000"})
        await ensure_topic(sink.cluster, "stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        found = await find_targets(sink.cluster, ["stamped", "bounded", "others", "bounded"])
        plain = found["others"]
        assert (plain.name, plain.partitions, plain.compacted) == ("others", 1, False)
        assert found["bounded"] == Target("bounded", 2, 3_000, False, 5_000, 7_000)
        assert found["stamped"] == plain._replace(name="stamped", past_ms_max=None, future_ms_max=None)

    with_sink(work)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing", "topic 'missing'.*; the sink creates no topics of rows"),
        ("copy", "topic 'copy' is a shadow: write to its source 'others'"),
        ("__gnomon_sink_w", "topic '__gnomon_sink_w' is internal: the sink does not write to it"),
    ],
)
def test_a_topic_that_takes_no_rows_is_refused(name: str, text: str) -> None:
    async def work(sink: SinkClient) -> None:
        await sink.topic()
        await ensure_topic(sink.cluster, "copy", -1, {SHADOW_SOURCE: "others"})
        with pytest.raises(RowRefused, match=text):
            await find_targets(sink.cluster, ["others", name])

    with_sink(work)


def test_a_time_outside_the_bounds_of_its_topic_is_refused_before_a_batch_is_staged() -> None:
    async def work(sink: SinkClient) -> None:
        bounds = {"message.timestamp.before.max.ms": "5000", "message.timestamp.after.max.ms": "7000"}
        await ensure_topic(sink.cluster, "bounded", 1, bounds)
        now_ms = sink.cluster.clock.wall_ms()
        for late_ms in (-4_000, 6_000):
            await sink.task(rows_of(["row"], timestamp=[(now_ms + late_ms) * 1_000]), topic="bounded")
        for late_ms in (-6_000, 9_000):
            with pytest.raises(RowRefused, match=rf"topic 'bounded' takes timestamps .*, not {now_ms + late_ms}"):
                await sink.task(rows_of(["row"], timestamp=[(now_ms + late_ms) * 1_000]), topic="bounded")

    with_sink(work)


def test_a_topic_whose_broker_sets_the_timestamps_takes_rows_of_any_time() -> None:
    async def work(sink: SinkClient) -> None:
        await ensure_topic(sink.cluster, "stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        task = await sink.task(rows_of(["old", "new"], timestamp=[0, 1 << 50]), topic="stamped")
        assert await (await sink.driver()).commit("q", 0, [task]) is BatchVerdict.OK
        assert await sink.values(TopicPartition("stamped", 0), start=0) == ["old", "new"]

    with_sink(work)
