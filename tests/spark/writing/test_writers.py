"""The writers of a cluster, seen and ended without their drivers."""

from __future__ import annotations

import pytest
from sink_client import TARGET, SinkClient, rows_of, with_sink

from gnomon.client.kafka.admin import delete_topic
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing import committing
from gnomon.spark.writing.delivery import deliver
from gnomon.spark.writing.writers import NoSuchWriter, UndeliveredRows, Writers

ROWS = [f"row {number:04}" for number in range(100)]


async def decided_only(sink: SinkClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver dies behind its decision."""

    async def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(committing, "deliver", dies)
    with pytest.raises(KeyboardInterrupt):
        await (await sink.driver()).commit("q", 4, [await sink.task(rows_of(ROWS))])
    monkeypatch.setattr(committing, "deliver", deliver)


def test_a_decision_that_is_not_applied_is_shown_and_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        writers = Writers(sink.cluster)
        assert await writers.names() == ["w"]
        state = await writers.state("w")
        assert state.decision is not None
        assert (state.decision.query, state.decision.batch, state.is_applied) == ("q", 4, False)
        assert state.rows == (UndeliveredRows(TARGET, 100, 0),)
        await writers.finish("w")
        assert await sink.values() == ROWS
        assert (await writers.state("w")).is_applied

    with_sink(work)


def test_rows_that_are_given_up_are_counted_and_the_query_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        writers = Writers(sink.cluster)
        assert (await writers.forget("w")).rows == (UndeliveredRows(TARGET, 100, 0),)
        assert (await writers.forget("w")).rows == ()
        again = await sink.task(rows_of(ROWS))
        assert await (await sink.driver()).commit("q", 4, [again]) is BatchVerdict.ALREADY
        await (await sink.driver()).commit("q", 5, [await sink.task(rows_of(["next"]))])
        assert await sink.values() == ["next"]

    with_sink(work)


def test_a_writer_without_a_topic_is_no_writer() -> None:
    async def work(sink: SinkClient) -> None:
        writers = Writers(sink.cluster)
        await sink.topic()
        assert (await writers.state("w")).decision is None
        await delete_topic(sink.cluster, "__gnomon_sink_w")
        for ask in (writers.state, writers.finish, writers.forget):
            with pytest.raises(NoSuchWriter, match="there is no writer 'w'"):
                await ask("w")

    with_sink(work)
