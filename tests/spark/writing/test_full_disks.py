"""A sink whose bookies have no room: the batch fails whole, and can be run again."""

from __future__ import annotations

import pytest
from sink_client import SinkClient, rows_of
from spark_client import SparkClient, with_topics

from gnomon.client.kafka.errors import RequestRefused
from gnomon.runtime.world import Unreachable
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing import staging
from gnomon.spark.writing.delivery import DeliveryFailed

ROWS = [f"row {number:04}" for number in range(300)]


def _fill_disks(client: SparkClient, full: bool) -> None:
    for machine in client.machines.ledgers.bookies.values():
        machine.disk.conditions.full = full


def test_a_batch_whose_staging_finds_no_room_leaves_nothing_and_succeeds_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)  # the tasks stage their rows themselves

    async def work(client: SparkClient) -> None:
        sink = SinkClient(client.cluster)
        await sink.topic()
        _fill_disks(client, True)
        with pytest.raises((RequestRefused, Unreachable)):
            await sink.task(rows_of(ROWS))
        _fill_disks(client, False)
        assert await sink.values() == []
        assert await (await sink.driver()).is_new()
        assert await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(ROWS))]) is BatchVerdict.OK
        assert await sink.values() == ROWS

    with_topics(work)


def test_a_batch_that_is_staged_when_the_disks_fill_is_written_once_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(client: SparkClient) -> None:
        sink = SinkClient(client.cluster)
        task = await sink.task(rows_of(ROWS))
        _fill_disks(client, True)
        with pytest.raises((RequestRefused, Unreachable, DeliveryFailed)):
            await (await sink.driver()).commit("q", 0, [task])
        _fill_disks(client, False)
        verdict = await (await sink.driver()).commit("q", 0, [task])
        assert verdict in (BatchVerdict.OK, BatchVerdict.ALREADY)
        assert await sink.values() == ROWS

    with_topics(work)
