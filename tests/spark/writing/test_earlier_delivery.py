"""The search for the batches of an old decision, whose producer a leader may have forgotten."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
import trio
from sink_client import TARGET, SinkClient, rows_of, with_sink

from gnomon.client.kafka.admin import delete_records
from gnomon.client.kafka.producing import append, send_batch
from gnomon.spark.decisions import ProposedBatches
from gnomon.spark.writing import delivery, earlier_delivery
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.writer_topic import WriterTopic
from gnomon.wire.kafka.batch import parse_batch
from gnomon.wire.kafka.records import Record, build_batch

ROWS = [f"row {number:04}" for number in range(100)]
EXPIRATION_SECONDS = 60
EXPIRES = {"producer.id.expiration.ms": str(EXPIRATION_SECONDS * 1_000)}
END = 5
"""The end of the target before the decision."""


class Sends:
    """The first sequences of the batches that are sent; a driver dies with one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sequences: list[int] = []
        self.life = trio.CancelScope()
        self.batches_max: int | None = None
        monkeypatch.setattr(delivery, "send_batch", self.send)

    def send(self, leader: Any, place: Any, batch: bytes) -> Any:
        self.sequences.append(parse_batch(memoryview(batch)).base_sequence)
        if len(self.sequences) == self.batches_max:
            self.life.cancel()
        return send_batch(leader, place, batch)


async def delivered(sink: SinkClient, monkeypatch: pytest.MonkeyPatch, batch: int = 0) -> None:
    """A driver dies before it cleans up behind its decision, whose rows are all written."""

    async def dies(topic: WriterTopic, ends: Mapping[int, int]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WriterTopic, "delete_before", dies)
        with pytest.raises(KeyboardInterrupt):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of(ROWS))])
    assert (await sink.values())[batch * len(ROWS) :] == ROWS


async def undelivered(driver: SinkDriver) -> ProposedBatches:
    found = await driver.undelivered()
    assert found is not None
    return found


async def half_as_old(sink: SinkClient) -> None:
    await sink.cluster.clock.sleep(EXPIRATION_SECONDS / 2)


def test_the_search_begins_at_the_end_that_the_decision_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records before it may be deleted."""
    sends = Sends(monkeypatch)

    async def work(sink: SinkClient) -> None:
        await delivered(sink, monkeypatch)
        assert (await undelivered(await sink.driver())).target_ends == {TARGET: END}
        await half_as_old(sink)
        await delete_records(sink.cluster, TARGET.topic, {TARGET.partition: END})
        sends.sequences.clear()
        await (await sink.driver()).recover()
        assert sends.sequences == []
        assert await (await sink.driver()).undelivered() is None
        assert await sink.values(start=END) == ROWS

    with_sink(work, EXPIRES)


def test_a_search_whose_first_record_was_deleted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch)

    async def work(sink: SinkClient) -> None:
        await delivered(sink, monkeypatch)
        await half_as_old(sink)
        await append(sink.cluster, TARGET, build_batch([Record(0, 0, None, b"later")], base_timestamp=0))
        _, end = await sink.bounds(TARGET)
        await delete_records(sink.cluster, TARGET.topic, {TARGET.partition: end - 1})
        sends.sequences.clear()
        refusal = (
            f"^partition 0 of topic 'others': a decision of long ago may be in records that were deleted since, from"
            f" offset {END} on: forget the decision, or accept its rows twice$"
        )
        for _ in range(2):
            with pytest.raises(DeliveryFailed, match=refusal):
                await (await sink.driver()).recover()
        assert sends.sequences == []
        await undelivered(await sink.driver())
        assert await sink.values(start=end - 1) == ["later"]

    with_sink(work, EXPIRES)


def test_batches_that_are_not_in_the_log_are_sent_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch)
    sends.batches_max = 4

    async def work(sink: SinkClient) -> None:
        with sends.life:
            await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(ROWS))])
        await sink.cluster.clock.sleep(1)
        found = await sink.values()
        assert 0 < len(found) < len(ROWS)
        await half_as_old(sink)
        sends.sequences.clear()
        await (await sink.driver()).recover()
        assert sends.sequences[0] == len(found)
        assert await sink.values() == ROWS

    with_sink(work, EXPIRES)


def test_the_batches_of_a_decision_that_is_not_old_are_sent_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch)
    searches: list[int] = []
    read_batches = earlier_delivery.read_batches

    async def counted(*given: Any) -> AsyncGenerator[Any, None]:
        searches.append(given[3])
        async with aclosing(read_batches(*given)) as parts:
            async for part in parts:
                yield part

    monkeypatch.setattr(earlier_delivery, "read_batches", counted)

    async def work(sink: SinkClient) -> None:
        await delivered(sink, monkeypatch)
        await sink.cluster.clock.sleep(EXPIRATION_SECONDS / 2 - 5)
        sends.sequences.clear()
        await (await sink.driver()).recover()
        assert searches == []
        assert sends.sequences[0] == 0
        assert await sink.values() == ROWS
        await delivered(sink, monkeypatch, batch=1)
        await half_as_old(sink)
        await (await sink.driver()).recover()
        assert searches == [END + len(ROWS)]

    with_sink(work, EXPIRES)
