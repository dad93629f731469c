"""Plans and tasks of batch reads, on a simulated cluster: no JVM is needed."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from sent_requests import SentRequests
from spark_client import EVERYTHING, START_MS, SparkClient, with_topics

from gnomon.client.kafka.brokers import UnknownTopic
from gnomon.spark.columns import BATCH_BYTES_MAX, Range
from gnomon.spark.offsets import BadOption
from gnomon.spark.planning import DataLost
from gnomon.spark.reading import decoded
from gnomon.spark.task import Task
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.records import Record, build_batch


def test_a_topic_is_read_whole_with_all_columns() -> None:
    async def work(client: SparkClient) -> None:
        rows = await client.rows()
        assert [(row["partition"], row["offset"]) for row in rows] == EVERYTHING
        for row in rows:
            assert (row["key"], row["value"], row["topic"]) == (b"%d" % row["offset"], b"orders", "orders")
            assert row["timestamp"].timestamp() * 1_000 == START_MS + row["offset"]
            assert (row["timestampType"], row["headers"]) == (0, [{"key": "n", "value": None}])
        assert [(task.range.partition, task.range.stop) for task in await client.tasks()] == [(0, 30), (1, 20)]

    with_topics(work)


def test_topics_are_chosen_by_name_by_pattern_and_by_partition() -> None:
    async def work(client: SparkClient) -> None:
        assert len(await client.rows(subscribe="orders,others")) == 55
        assert len(await client.rows(subscribePattern="o.*s")) == 55
        assert await client.rows(subscribePattern="order") == []
        assert await client.places(assign='{"orders":[1,2]}') == EVERYTHING[30:]

    with_topics(work)


def test_a_range_is_given_by_offsets_and_by_times() -> None:
    async def work(client: SparkClient) -> None:
        starts, stops = '{"orders":{"0":7,"1":-2,"2":-2}}', '{"orders":{"0":12,"1":3,"2":-1}}'
        chosen = [(0, offset) for offset in range(7, 12)] + [(1, offset) for offset in range(3)]
        assert await client.places(startingOffsets=starts, endingOffsets=stops) == chosen
        times = {"startingTimestamp": str(START_MS + 18), "endingTimestamp": str(START_MS + 22)}
        late = {"startingOffsetsByTimestampStrategy": "latest"}
        chosen = [(0, offset) for offset in range(18, 22)] + [(1, offset) for offset in range(18, 20)]
        assert await client.places(**times, **late) == chosen
        each = f'{{"orders":{{"0":{START_MS + 29},"1":{START_MS + 19},"2":0}}}}'
        assert await client.places(startingOffsetsByTimestamp=each, **late) == [(0, 29), (1, 19)]

    with_topics(work)


def test_tasks_are_cut_by_number_and_by_records() -> None:
    async def work(client: SparkClient) -> None:
        assert len(await client.tasks(minPartitions="10")) >= 10
        assert await client.places(minPartitions="10") == EVERYTHING
        assert [task.range.stop - task.range.start for task in await client.tasks(maxRecordsPerPartition="7")] == [
            *(6, 6, 6, 6, 6),
            *(6, 7, 7),
        ]
        assert await client.places(maxRecordsPerPartition="7") == EVERYTHING

    with_topics(work)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"subscribe": "missing"}, UnknownTopic, "topic 'missing'"),
        ({"assign": '{"orders":[0,3]}'}, BadOption, "assign: topic 'orders' has no partition 3"),
        (
            {"startingOffsets": '{"orders":{"0":1,"3":1}}'},
            BadOption,
            "startingOffsets: give each partition that is read (missing: orders-1, orders-2; unknown: orders-3)",
        ),
        (
            {"startingTimestamp": str(START_MS + 25)},
            BadOption,
            f"startingTimestamp: partition 1 of topic 'orders' has no record from {START_MS + 25} ms on",
        ),
        (
            {"endingOffsets": '{"orders":{"0":31,"1":-1,"2":-1}}'},
            DataLost,
            "partition 0 of topic 'orders': the read is of offsets 0 to 31, the log has 0 to 30",
        ),
        (
            {"startingOffsets": '{"orders":{"0":9,"1":0,"2":0}}', "endingOffsets": '{"orders":{"0":8,"1":0,"2":0}}'},
            DataLost,
            "partition 0 of topic 'orders': the read is of offsets 9 to 8",
        ),
    ],
)
def test_a_read_that_cannot_be_planned_is_refused(given: dict[str, str], error: type[Exception], text: str) -> None:
    async def work(client: SparkClient) -> None:
        with pytest.raises(error, match=re.escape(text)):
            await client.tasks(**given)

    with_topics(work)


def test_lost_records_are_an_error_or_a_warning() -> None:
    async def work(client: SparkClient) -> None:
        await client.delete_before(0, 12)
        lost = {"startingOffsets": '{"orders":{"0":3,"1":-2,"2":-2}}'}
        with pytest.raises(
            DataLost, match=re.escape("offsets 3 to 30, the log has 12 to 30; failOnDataLoss=false reads")
        ):
            await client.tasks(**lost)
        assert await client.places(**lost, failOnDataLoss="false") == [
            place for place in EVERYTHING if place >= (0, 12)
        ]
        (warning,) = client.warnings
        assert warning.endswith("the read is of offsets 3 to 30, the log has 12 to 30; lost offsets: 9")
        assert await client.places() == [place for place in EVERYTHING if place >= (0, 12)]

    with_topics(work)


def test_rows_arrive_in_arrow_batches_of_some_eight_mebibytes_of_records() -> None:
    """Of records as they are decompressed: a batch of many equal bytes is small on the wire."""
    value = b"x" * 10_000
    records = [Record(delta, 0, None, value) for delta in range(100)]
    batches = [
        memoryview(build_batch(records, base_timestamp=0, compression=Codec.GZIP, base_offset=100 * at))
        for at in range(20)
    ]
    assert sum(map(len, batches)) < 1 << 20
    task = Task((), uuid4(), Range("orders", 0, 0, 2_000), ("offset",), BATCH_BYTES_MAX, True, None)
    sizes = [len(value) * rows.num_rows for rows in decoded(task, [[batch] for batch in batches])]
    assert sum(sizes) == 20_000_000
    assert max(sizes) < (8 << 20) + 1_000_000
    assert min(sizes[:-1]) >= 8 << 20


@pytest.mark.parametrize(
    ("start", "end", "lost"), [(3, 8, 5), (3, 12, 9), (3, 20, 9), (20, 40, 10), (3, 40, 19), (40, 50, 10), (9, 8, 0)]
)
def test_the_warning_has_the_number_of_lost_offsets(start: int, end: int, lost: int) -> None:
    """The log has the offsets from 12 to 29."""

    async def work(client: SparkClient) -> None:
        await client.delete_before(0, 12)
        bounds = ("startingOffsets", start), ("endingOffsets", end)
        given = {name: f'{{"orders":{{"0":{at},"1":0,"2":0}}}}' for name, at in bounds}
        rows = await client.places(**given, failOnDataLoss="false")
        assert len(rows) == max(0, end - start) - lost
        (warning,) = client.warnings
        assert warning.endswith(f"; lost offsets: {lost}")

    with_topics(work)


@pytest.mark.parametrize("via", ["brokers", "auto"])
def test_a_read_is_no_member_of_a_group_and_commits_nothing(monkeypatch: pytest.MonkeyPatch, via: str) -> None:
    async def work(client: SparkClient) -> None:
        sent = SentRequests(monkeypatch)
        assert len(await client.rows(via=via, subscribe="orders,others", minPartitions="6")) == 55
        assert ApiKey.LIST_OFFSETS in sent.keys
        assert (ApiKey.FETCH in sent.keys) is (via == "brokers")
        assert sent.of_groups == set()

    with_topics(work)
