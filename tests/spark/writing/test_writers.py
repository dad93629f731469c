"""The writers of a cluster, seen and ended without their drivers."""

from __future__ import annotations

from typing import Any

import pytest
from sink_client import TARGET, SinkClient, rows_of, with_sink

from gnomon.client.kafka.admin import delete_records, delete_topic
from gnomon.client.kafka.producing import append
from gnomon.spark.decisions import BatchVerdict
from gnomon.spark.writing import committing, writers
from gnomon.spark.writing.delivery import DeliveryFailed, deliver
from gnomon.spark.writing.writers import NoSuchWriter, UndeliveredRows, Writers
from gnomon.wire.kafka.records import Record, build_batch

ROWS = [f"row {number:04}" for number in range(100)]


async def dies(*_: object) -> bool:
    raise KeyboardInterrupt


async def decided_only(sink: SinkClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver dies behind its decision."""
    monkeypatch.setattr(committing, "deliver", dies)
    with pytest.raises(KeyboardInterrupt):
        await (await sink.driver()).commit("q", 4, [await sink.task(rows_of(ROWS))])
    monkeypatch.setattr(committing, "deliver", deliver)


def test_a_decision_that_is_not_applied_is_shown_and_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        known = Writers(sink.cluster)
        assert await known.names() == ["w"]
        state = await known.state("w")
        assert state.decision is not None
        assert (state.decision.query, state.decision.batch, state.is_applied) == ("q", 4, False)
        assert state.rows == (UndeliveredRows(TARGET, 100, 0),)
        await known.finish("w")
        assert await sink.values() == ROWS
        assert (await known.state("w")).is_applied

    with_sink(work)


def test_rows_that_are_given_up_are_counted_and_the_query_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        known = Writers(sink.cluster)
        assert (await known.forget("w")).rows == (UndeliveredRows(TARGET, 100, 0),)
        assert (await known.forget("w")).rows == ()
        again = await sink.task(rows_of(ROWS))
        assert await (await sink.driver()).commit("q", 4, [again]) is BatchVerdict.ALREADY
        await (await sink.driver()).commit("q", 5, [await sink.task(rows_of(["next"]))])
        assert await sink.values() == ["next"]

    with_sink(work)


def test_the_rows_of_a_deleted_topic_are_unknown_and_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        await delete_topic(sink.cluster, TARGET.topic)
        known = Writers(sink.cluster)
        ((rows,),) = [state.rows for state in await known.states()]
        assert (rows.target, rows.rows, rows.delivered) == (TARGET, 100, None)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in (rows.problem or "")
        assert (await known.forget("w")).rows == (rows,)
        assert (await known.state("w")).is_applied

    with_sink(work)


def test_a_deleted_topic_is_named_with_the_answer_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        await delete_topic(sink.cluster, TARGET.topic)
        with pytest.raises(DeliveryFailed, match=r"partition 0 of topic 'others': .*UNKNOWN_TOPIC_OR_PARTITION"):
            await Writers(sink.cluster).finish("w")
        assert not (await Writers(sink.cluster).state("w")).is_applied

    with_sink(work)


def test_rows_that_may_have_been_deleted_since_are_unknown_and_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        await append(sink.cluster, TARGET, build_batch([Record(0, 0, None, b"later")], base_timestamp=0))
        await delete_records(sink.cluster, TARGET.topic, {TARGET.partition: 6})
        known = Writers(sink.cluster)
        (rows,) = (await known.state("w")).rows
        assert (rows.rows, rows.delivered) == (100, None)
        assert "deleted since, from offset 5 on" in (rows.problem or "")
        await known.forget("w")
        await (await sink.driver()).commit("q", 5, [await sink.task(rows_of(["next"]))])
        assert await sink.values(start=6) == ["next"]

    with_sink(work)


def test_a_decision_that_follows_is_not_given_up_with_the_one_that_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await decided_only(sink, monkeypatch)
        shown = writers.delivered_batches

        async def meanwhile(*given: Any) -> int:
            monkeypatch.setattr(writers, "delivered_batches", shown)
            await Writers(sink.cluster).finish("w")
            monkeypatch.setattr(committing, "deliver", dies)
            with pytest.raises(KeyboardInterrupt):
                await (await sink.driver()).commit("q", 5, [await sink.task(rows_of(["next"]))])
            monkeypatch.setattr(committing, "deliver", deliver)
            return await shown(*given)

        monkeypatch.setattr(writers, "delivered_batches", meanwhile)
        before = await Writers(sink.cluster).forget("w")
        assert before.decision is not None
        assert before.decision.batch == 4
        await Writers(sink.cluster).finish("w")
        assert await sink.values() == [*ROWS, "next"]

    with_sink(work)


def test_a_writer_that_is_removed_while_all_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        await sink.topic("a")
        await sink.topic("b")
        listed = Writers(sink.cluster)
        names = await listed.names()
        await delete_topic(sink.cluster, "__gnomon_sink_a")

        async def before() -> list[str]:
            return names

        monkeypatch.setattr(listed, "names", before)
        assert [state.writer for state in await listed.states()] == ["b"]

    with_sink(work)


def test_a_writer_without_a_topic_is_no_writer() -> None:
    async def work(sink: SinkClient) -> None:
        known = Writers(sink.cluster)
        await sink.topic()
        assert (await known.state("w")).decision is None
        await delete_topic(sink.cluster, "__gnomon_sink_w")
        for ask in (known.state, known.finish, known.forget):
            with pytest.raises(NoSuchWriter, match="there is no writer 'w'"):
                await ask("w")

    with_sink(work)
