"""The delivery of a decision to its targets: wrong staged records, silence, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sink_client import SinkClient, rows_of, with_sink

from gnomon.client.client import connect
from gnomon.client.kafka.admin import ensure_topic
from gnomon.client.kafka.producing import AppendAnswer, append, outcome_of
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.runtime.world import Unreachable
from gnomon.spark.decisions import StagedBatch
from gnomon.spark.writing import delivery, staging
from gnomon.spark.writing.delivery import DeliveryFailed
from gnomon.spark.writing.staging import StagedTask
from gnomon.spark.writing.writer_topic import StagedDamaged, StagedReader
from gnomon.spark.writing.writers import Writers
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch

ROWS = [f"row {number:04}" for number in range(60)]
PATIENCE_SECONDS = 20
"""That of the client in these tests."""
Change = Callable[[Sequence[StagedBatch]], list[StagedBatch]]


def at_the_place_of_another(staged: Sequence[StagedBatch]) -> list[StagedBatch]:
    return [staged[0]._replace(offset=staged[1].offset), *staged[1:]]


def with_another_crc(staged: Sequence[StagedBatch]) -> list[StagedBatch]:
    return [staged[0]._replace(crc=staged[0].crc ^ 1), *staged[1:]]


def with_another_count(staged: Sequence[StagedBatch]) -> list[StagedBatch]:
    return [staged[0]._replace(records=staged[0].records + 1), *staged[1:]]


@pytest.mark.parametrize("change", [at_the_place_of_another, with_another_crc, with_another_count])
def test_a_staged_record_that_is_not_the_decided_one_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """`writer_topic` 4."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(ROWS))
        wrong = task._replace(staged=tuple(change(task.staged)))
        place = f"offset {wrong.staged[0].offset} of partition 1 of topic '__gnomon_sink_w'"
        with pytest.raises(StagedDamaged, match=f"{place} is not the batch that was staged there"):
            await (await sink.driver()).commit("q", 0, [wrong])
        assert await sink.values() == []
        assert not (await Writers(sink.cluster).state("w")).is_applied

    with_sink(work)


def test_nothing_behind_a_staged_record_that_is_another_one_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(ROWS))
        wrong = task.staged[3]._replace(records=task.staged[3].records - 1)
        with pytest.raises(StagedDamaged):
            await (await sink.driver()).commit("q", 0, [task._replace(staged=(*task.staged[:3], wrong))])
        before = sum(batch.records for batch in task.staged[:3])
        written = await sink.values()
        assert written == ROWS[: len(written)]
        assert len(written) <= before

    with_sink(work)


def test_a_staged_record_that_is_gone_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        task: StagedTask = await sink.task(rows_of(ROWS))
        topic = await sink.topic()
        assert await StagedReader(topic).get(task.staged[0]) is not None
        await topic.delete_before({1: task.staged[1].offset})
        assert await StagedReader(topic).get(task.staged[0]) is None
        assert await StagedReader(topic).get(task.staged[1]) is not None

    with_sink(work)


async def silent(*_: object) -> AppendAnswer:
    raise Unreachable("no answer to PRODUCE")


async def without_copies(*_: object) -> AppendAnswer:
    return AppendAnswer(ErrorCode.NOT_ENOUGH_REPLICAS, -1, "too few bookies")


@pytest.mark.parametrize(
    ("answer", "text"), [(silent, "no answer to PRODUCE"), (without_copies, r"too few bookies \(NOT_ENOUGH_REPLICAS\)")]
)
def test_a_target_that_takes_no_batch_is_given_up_after_the_patience(
    monkeypatch: pytest.MonkeyPatch, answer: Any, text: str
) -> None:
    async def work(sink: SinkClient) -> None:
        clock = sink.cluster.clock
        task = await sink.task(rows_of(ROWS))
        monkeypatch.setattr(delivery, "outcome_of", answer)
        began = clock.monotonic()
        with pytest.raises(DeliveryFailed, match=f"^partition 0 of topic 'others': {text}$"):
            await (await sink.driver()).commit("q", 0, [task])
        assert clock.monotonic() - began == pytest.approx(PATIENCE_SECONDS, abs=2)
        monkeypatch.setattr(delivery, "outcome_of", outcome_of)
        await (await sink.driver()).recover()
        assert await sink.values() == ROWS

    with_sink(work)


def test_each_batch_that_is_applied_gives_the_next_one_the_whole_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """All answers are lost for a while, again and again."""

    async def work(sink: SinkClient) -> None:
        clock = sink.cluster.clock
        lost_until = clock.monotonic()

        async def late(*sent: Any) -> AppendAnswer:
            nonlocal lost_until
            answer = await outcome_of(*sent)
            if clock.monotonic() < lost_until:
                raise Unreachable("the answer is lost")
            lost_until = clock.monotonic() + 0.7 * PATIENCE_SECONDS
            return answer

        monkeypatch.setattr(delivery, "outcome_of", late)
        began = clock.monotonic()
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(ROWS))])
        assert clock.monotonic() - began > 2 * PATIENCE_SECONDS
        assert await sink.values() == ROWS

    with_sink(work)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("the reason of the broker", "the reason of the broker"), (None, ErrorCode.INVALID_RECORD.text)],
)
def test_a_final_refusal_is_the_text_of_the_broker_at_once(
    monkeypatch: pytest.MonkeyPatch, text: str | None, shown: str
) -> None:
    async def refused(*_: object) -> AppendAnswer:
        return AppendAnswer(ErrorCode.INVALID_RECORD, -1, text)

    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(ROWS))
        monkeypatch.setattr(delivery, "outcome_of", refused)
        began = sink.cluster.clock.monotonic()
        with pytest.raises(DeliveryFailed) as caught:
            await (await sink.driver()).commit("q", 0, [task])
        assert str(caught.value) == f"partition 0 of topic 'others': {shown} (INVALID_RECORD)"
        assert sink.cluster.clock.monotonic() - began < 2

    with_sink(work)


def test_a_target_beyond_its_quota_refuses_with_its_reason_and_the_decision_remains() -> None:
    full = TopicPartition("full", 0)
    quota = {"gnomon.backlog.quota.bytes": "1"}

    async def work(sink: SinkClient) -> None:
        clock = sink.cluster.clock
        await ensure_topic(sink.cluster, full.topic, 1, quota)
        async with connect("broker-1:6650", world=sink.cluster.world, name="reader") as native:
            await (await native.subscribe(full.topic, "slow")).close()
            await append(sink.cluster, full, build_batch([Record(0, 0, None, b"unread")], base_timestamp=0))
            await clock.sleep(15)
            refusal = "partition 0 of topic 'full': subscription 'slow' of topic 'full' has not read .*POLICY_VIOLATION"
            with pytest.raises(DeliveryFailed, match=refusal):
                await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(ROWS), topic=full.topic)])
            (rows,) = (await Writers(sink.cluster).state("w")).rows
            assert (rows.target, rows.rows, rows.delivered) == (full, len(ROWS), 0)
            await native.subscriptions.delete(full.topic, "slow")
            await clock.sleep(15)
        await Writers(sink.cluster).finish("w")
        assert await sink.values(full, start=1) == ROWS

    with_sink(work)
