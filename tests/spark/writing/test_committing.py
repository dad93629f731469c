"""The drivers of a sink on a simulated cluster: each row once, whoever dies; numbers cite the invariants."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from uuid import UUID

import pytest
from sink_client import STAGING_PARTITIONS, TARGET, SinkClient, rows_of, with_sink

from gnomon.client.kafka.admin import topic_configs
from gnomon.client.kafka.brokers import KafkaBrokers
from gnomon.client.kafka.fetching import FetchedBatches, read_batches
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.spark.decisions import BatchVerdict, ProposedBatches, StagedBatch
from gnomon.spark.writing import committing, staging, writer_topic
from gnomon.spark.writing.committing import OtherMessage, SinkDriver, StagingLost, WriterFenced
from gnomon.spark.writing.delivery import deliver
from gnomon.spark.writing.staging import StagedTask
from gnomon.spark.writing.writer_topic import PROPOSALS, StagedDamaged, StagedReader, StagedRecord, WriterTopic

MANY = [f"row {number:04}" for number in range(300)]
FEW = MANY[:3]


def test_the_rows_of_a_batch_are_written_in_the_order_of_their_tasks() -> None:
    async def work(sink: SinkClient) -> None:
        tasks = [await sink.task(rows_of(MANY[:100]), task=0), await sink.task(rows_of(MANY[100:]), task=1)]
        assert await (await sink.driver()).commit("q", 0, tasks) is BatchVerdict.OK
        assert await sink.values() == MANY

    with_sink(work)


@pytest.mark.parametrize("inline_max", [0, 1 << 20])
def test_a_batch_that_is_committed_again_is_written_once(monkeypatch: pytest.MonkeyPatch, inline_max: int) -> None:  # 2
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", inline_max)

    async def work(sink: SinkClient) -> None:
        for _ in range(3):
            task = await sink.task(rows_of(MANY))
            assert bool(task.staged) is (inline_max == 0)
            await (await sink.driver()).commit("q", 0, [task])
            assert await sink.values() == MANY
        sink.warnings.clear()
        assert await (await sink.driver()).commit("q", 0, [task]) is BatchVerdict.ALREADY
        assert sink.warnings == ["batch 0 of query 'q' was written before: its rows are not written again"]
        assert await (await sink.driver()).commit("q", 1, [await sink.task(rows_of(FEW))]) is BatchVerdict.OK
        assert await sink.values() == MANY + FEW

    with_sink(work)


def test_the_next_driver_goes_on_where_one_died_after_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    async def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(MANY))
        monkeypatch.setattr(committing, "deliver", dies)
        with pytest.raises(KeyboardInterrupt):
            await (await sink.driver()).commit("q", 0, [task])
        assert await sink.values() == []
        monkeypatch.setattr(committing, "deliver", deliver)
        await (await sink.driver()).recover()
        assert await sink.values() == MANY
        again = await sink.task(rows_of(MANY))
        assert await (await sink.driver()).commit("q", 0, [again]) is BatchVerdict.ALREADY
        assert await sink.values() == MANY

    with_sink(work)


def test_the_next_batch_comes_behind_that_of_a_driver_that_died(monkeypatch: pytest.MonkeyPatch) -> None:  # 1
    async def dies(*_: object) -> bool:
        raise KeyboardInterrupt

    async def work(sink: SinkClient) -> None:
        monkeypatch.setattr(committing, "deliver", dies)
        with pytest.raises(KeyboardInterrupt):
            await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(MANY))])
        monkeypatch.setattr(committing, "deliver", deliver)
        await (await sink.driver()).commit("q", 1, [await sink.task(rows_of(FEW))])
        assert await sink.values() == MANY + FEW

    with_sink(work)


def test_what_is_staged_while_a_decision_is_applied_stays(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    """Two drivers of one checkpoint: the second one is a batch ahead when the first one cleans up."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        ahead: list[StagedTask] = []

        async def slowly(*args: Any) -> bool:
            done = await deliver(*args)
            if not ahead:
                ahead.append(await sink.task(rows_of(FEW)))
            return done

        monkeypatch.setattr(committing, "deliver", slowly)
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(MANY))])
        assert await (await sink.driver()).commit("q", 1, ahead) is BatchVerdict.OK
        assert await sink.values() == MANY + FEW

    with_sink(work)


def test_another_query_is_fenced_unless_it_takes_the_writer_over() -> None:
    async def work(sink: SinkClient) -> None:
        await (await sink.driver()).commit("q", 7, [await sink.task(rows_of(FEW))])
        text = (
            "writer 'w' belongs to query 'q', which wrote its batch 7. Was the checkpoint deleted?"
            " writerTakeOver=true continues with this query; another writer begins anew"
        )
        with pytest.raises(WriterFenced, match=re.escape(text)):
            await (await sink.driver()).commit("other", 0, [await sink.task(rows_of(FEW))])
        assert await sink.values() == FEW
        taking = await sink.driver(takes_over=True)
        assert await taking.commit("other", 0, [await sink.task(rows_of(FEW))]) is BatchVerdict.OK
        with pytest.raises(WriterFenced):
            await (await sink.driver()).commit("q", 8, [await sink.task(rows_of(FEW))])
        assert await sink.values() == FEW + FEW

    with_sink(work)


def test_what_was_staged_before_the_decision_of_another_query_is_not_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver of the decision deletes everything that was staged below the ends that it has recorded."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        early = await sink.task(rows_of(MANY), query="b")
        await (await sink.driver()).commit("a", 0, [await sink.task(rows_of(FEW))])
        with pytest.raises(StagingLost, match="run the batch again"):
            await (await sink.driver(takes_over=True)).commit("b", 0, [early])
        late = await sink.task(rows_of(MANY), query="b")
        await (await sink.driver(takes_over=True)).commit("b", 0, [late])
        assert await sink.values() == FEW + MANY

    with_sink(work)


def test_the_log_of_proposals_begins_with_the_last_decision_and_staged_batches_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 4
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        topic = await sink.topic()
        for batch in range(3):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of(MANY))])
            assert await sink.bounds(topic.place(0)) == (batch, batch + 1)
            for place in topic.staging:
                start, end = await sink.bounds(place)
                assert start == end
        assert await sink.values() == 3 * MANY

    with_sink(work)


def test_a_driver_that_reads_while_proposals_are_deleted_begins_again() -> None:
    async def work(sink: SinkClient) -> None:
        slow = await sink.driver()
        await slow.commit("q", 0, [await sink.task(rows_of(FEW))])
        for batch in (1, 2):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of(FEW))])
        assert await slow.commit("q", 2, [await sink.task(rows_of(FEW))]) is BatchVerdict.ALREADY
        assert await slow.commit("q", 3, [await sink.task(rows_of(FEW))]) is BatchVerdict.OK
        assert await sink.values() == 4 * FEW

    with_sink(work)


def test_a_large_list_of_batches_is_staged_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "CONTENT_BYTES_MAX", 100)

    async def work(sink: SinkClient) -> None:
        for batch in range(2):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of(MANY))])
            await (await sink.driver()).recover()
        assert await sink.values() == 2 * MANY

    with_sink(work)


@pytest.mark.parametrize(("kibibytes", "parts"), [(500, 0), (600, 2)])
def test_a_list_of_batches_of_more_than_512_kibibytes_is_staged(kibibytes: int, parts: int) -> None:
    """The list alone counts: these batches are in no log."""

    async def work(sink: SinkClient) -> None:
        driver = await sink.driver()
        batch = StagedBatch(TARGET, 1, 1 << 40, 1_000, 1 << 31)
        size = len(ProposedBatches((batch,) * 1_000, {TARGET: 5}).encode()) / 1_000
        staged = [batch] * round(kibibytes * 1_024 / size)
        assert await driver._propose("q", 0, staged) is BatchVerdict.OK
        decision = driver.decisions.last
        assert decision is not None
        assert (len(decision.content_places), not decision.content) == (parts, parts > 0)
        content = await driver._content(decision)
        assert content is not None
        assert content.staged == tuple(staged)

    with_sink(work)


def appends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The partition of each append to a writer's topic from now on, and its records."""
    found: list[tuple[int, int]] = []
    append = WriterTopic.append

    async def noted(topic: WriterTopic, partition: int, values: Sequence[bytes]) -> int:
        found.append((partition, len(values)))
        return await append(topic, partition, values)

    monkeypatch.setattr(WriterTopic, "append", noted)
    return found


@pytest.mark.parametrize(("kibibytes", "is_staged"), [(60, False), (70, True)])
def test_a_task_of_less_than_64_kibibytes_stages_nothing(
    monkeypatch: pytest.MonkeyPatch, kibibytes: int, is_staged: bool
) -> None:
    async def work(sink: SinkClient) -> None:
        noted = appends(monkeypatch)
        task = await sink.task(rows_of(["x" * 1_000] * kibibytes), batch_bytes=10_000)
        assert (bool(task.staged), not task.inline, bool(noted)) == (is_staged,) * 3
        await (await sink.driver()).commit("q", 0, [task])
        assert len(await sink.values()) == kibibytes

    with_sink(work)


def test_a_driver_stages_the_batches_of_small_tasks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(sink: SinkClient) -> None:
        tasks = [await sink.task(rows_of(MANY[at : at + 10]), task=at) for at in range(0, 100, 10)]
        batches = sum(len(task.inline) for task in tasks)
        assert batches >= 10
        noted = appends(monkeypatch)
        await (await sink.driver()).commit("q", 0, tasks)
        assert noted == [(1, batches), (PROPOSALS, 1)]
        assert await sink.values() == MANY[:100]

    with_sink(work)


def test_a_batch_without_rows_is_no_decision() -> None:
    async def work(sink: SinkClient) -> None:
        assert await (await sink.driver()).commit("q", 0, [await sink.task()]) is BatchVerdict.OK
        assert await sink.bounds((await sink.topic()).place(0)) == (0, 0)

    with_sink(work)


def test_a_task_of_another_version_is_refused() -> None:
    async def work(sink: SinkClient) -> None:
        task = (await sink.task(rows_of(FEW)))._replace(version=99)
        with pytest.raises(OtherMessage, match="messages of version 99, this driver knows 1"):
            await (await sink.driver()).commit("q", 0, [task])

    with_sink(work)


def test_an_old_decision_is_looked_for_in_its_targets_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader has forgotten the producer: it would append a repeat again."""

    async def nowhere(*_: object) -> None:
        raise KeyboardInterrupt

    async def work(sink: SinkClient) -> None:
        driver = await sink.driver()
        monkeypatch.setattr(driver._topic, "delete_before", nowhere)
        with pytest.raises(KeyboardInterrupt):
            await driver.commit("q", 0, [await sink.task(rows_of(MANY))])
        assert await sink.values() == MANY
        await sink.cluster.clock.sleep(700)  # until a pass of retention has removed the producer
        await (await sink.driver()).recover()
        assert await sink.values() == MANY

    with_sink(work, {"producer.id.expiration.ms": "60000"})


def test_every_decision_has_its_own_epoch_in_the_target() -> None:
    async def work(sink: SinkClient) -> None:
        for batch in range(3):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of(FEW))])
        driver = await sink.driver()
        await driver.recover()
        assert driver.decisions.last is not None
        assert driver.decisions.last.producer_epoch == 3

    with_sink(work)


def test_what_is_staged_right_behind_a_proposal_stays(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    """The ends that a decision records are older than its proposal."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    append = WriterTopic.append

    async def work(sink: SinkClient) -> None:
        ahead: list[StagedTask] = []

        async def appended(topic: WriterTopic, partition: int, values: Sequence[bytes]) -> int:
            offset = await append(topic, partition, values)
            if partition == PROPOSALS and not ahead:
                ahead.append(await sink.task(rows_of(FEW)))
            return offset

        monkeypatch.setattr(WriterTopic, "append", appended)
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(MANY))])
        assert await (await sink.driver()).commit("q", 1, ahead) is BatchVerdict.OK
        assert await sink.values() == MANY + FEW

    with_sink(work)


@pytest.mark.parametrize("inline_max", [0, 1 << 20])
def test_the_ends_of_a_decision_are_behind_its_batches_and_before_its_rows(
    monkeypatch: pytest.MonkeyPatch, inline_max: int
) -> None:  # 3
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", inline_max)

    async def work(sink: SinkClient) -> None:
        for batch in range(2):
            driver, topic = await sink.driver(), await sink.topic()
            written = (await sink.bounds(TARGET))[1]
            await driver.commit("q", batch, [await sink.task(rows_of(MANY)), await sink.task(rows_of(FEW), task=1)])
            decision = driver.decisions.last
            assert decision is not None
            ends = {place.partition: (await sink.bounds(place))[1] for place in topic.staging}
            assert decision.staging_ends == ends
            assert all(decision.staged_from[number] < ends[number] for number in decision.staged_from)
            assert ProposedBatches.decode(decision.content).target_ends == {TARGET: written}
            assert await driver.undelivered() is None

    with_sink(work)


def test_a_driver_whose_staged_batches_are_gone_was_overtaken_by_one_that_wrote_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 2
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        async def overtaken(*given: Any) -> bool:
            monkeypatch.setattr(committing, "deliver", deliver)
            await (await sink.driver()).recover()
            assert not await deliver(*given), "the other driver has deleted what it had written"
            return False

        monkeypatch.setattr(committing, "deliver", overtaken)
        assert await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(MANY))]) is BatchVerdict.OK
        assert await sink.values() == MANY

    with_sink(work)


def test_a_staged_record_that_is_another_one_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    read = WriterTopic.read

    async def changed(topic: WriterTopic, partition: int, start: int, stop: int) -> AsyncGenerator[StagedRecord, None]:
        async with aclosing(read(topic, partition, start, stop)) as records:
            async for record in records:
                yield record if partition == PROPOSALS else record._replace(value=record.value[:-1] + b"?")

    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(MANY))
        monkeypatch.setattr(WriterTopic, "read", changed)
        with pytest.raises(StagedDamaged, match="is not the batch that was staged there"):
            await (await sink.driver()).commit("q", 0, [task])
        assert await sink.values() == []

    with_sink(work)


def test_what_a_dead_driver_has_staged_goes_with_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:  # 4
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        await sink.task(rows_of(MANY), task=0)
        await sink.task(rows_of(MANY), task=1)
        topic = await sink.topic()
        garbage = {place: (await sink.bounds(place))[1] for place in topic.staging}
        assert all(garbage.values())
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(FEW))])
        assert all([(await sink.bounds(place))[0] >= end for place, end in garbage.items()])
        assert await sink.values() == FEW

    with_sink(work)


def test_the_topic_of_a_writer_keeps_its_records_for_ever() -> None:
    async def work(sink: SinkClient) -> None:
        topic = await sink.topic()
        assert topic.partitions == 1 + STAGING_PARTITIONS
        configs = (await topic_configs(sink.cluster, [topic.name]))[topic.name]
        kept = ("cleanup.policy", "retention.ms", "retention.bytes")
        assert [configs[name] for name in kept] == ["delete", "-1", "-1"]

    with_sink(work)


def test_batches_are_no_larger_than_their_topic_takes() -> None:
    async def work(sink: SinkClient) -> None:
        task = await sink.task(rows_of(MANY * 20), batch_bytes=64 << 20)
        assert await (await sink.driver()).commit("q", 0, [task]) is BatchVerdict.OK
        assert await sink.values() == MANY * 20

    with_sink(work, {"message.max.bytes": "20000"})


def keep_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers delete staged batches alone."""
    delete_before = WriterTopic.delete_before

    async def kept(topic: WriterTopic, ends: Mapping[int, int]) -> None:
        if PROPOSALS not in ends:
            await delete_before(topic, ends)

    monkeypatch.setattr(WriterTopic, "delete_before", kept)


def test_a_log_that_begins_with_a_void_proposal_has_the_same_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may show such a start while it deletes records, or for ever if it dies meanwhile."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    delete_before = WriterTopic.delete_before
    keep_proposals(monkeypatch)

    async def work(sink: SinkClient) -> None:
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(["0"]))])
        late = await sink.driver()
        await late.is_new()
        await (await sink.driver()).commit("q", 1, [await sink.task(rows_of(["1"]))])
        early = await sink.task(rows_of(["2"]))
        void = await sink.task(rows_of(["1"]))  # with it, the ends of the void proposal are behind `early`
        assert await late._propose("q", 1, void.staged) is BatchVerdict.ALREADY
        await (await sink.driver()).commit("q", 2, [early])
        topic = await sink.topic()
        assert await sink.bounds(topic.place(PROPOSALS)) == (0, 4)
        await delete_before(topic, {PROPOSALS: 2})
        assert await (await sink.driver()).commit("q", 2, [void]) is BatchVerdict.ALREADY
        assert await (await sink.driver()).commit("q", 3, [await sink.task(rows_of(["3"]))]) is BatchVerdict.OK
        assert await sink.values() == ["0", "1", "2", "3"]

    with_sink(work)


def test_a_driver_reads_up_to_an_end_that_was_asked_for_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between both questions another driver may decide, apply and delete."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)
    bound = SinkDriver._bound

    async def work(sink: SinkClient) -> None:
        await (await sink.driver()).commit("q", 0, [await sink.task(rows_of(["0"]))])
        await (await sink.driver()).commit("q", 1, [await sink.task(rows_of(["1"]))])
        slow = await sink.driver()

        async def meanwhile(driver: SinkDriver, end: int) -> int:
            found = await bound(driver, end)
            if driver is slow:
                monkeypatch.setattr(SinkDriver, "_bound", bound)
                await (await sink.driver()).commit("q", 2, [await sink.task(rows_of(["2"]))])
            return found

        monkeypatch.setattr(SinkDriver, "_bound", meanwhile)
        assert not await slow.is_new()
        assert slow.decisions.last is not None
        assert slow.decisions.last.batch == 2

    with_sink(work)


def begins_behind(monkeypatch: pytest.MonkeyPatch, *places: tuple[int, int]) -> None:
    """Reads of a writer's topic from these partitions and offsets begin with the next record."""

    async def behind(
        cluster: KafkaBrokers, place: TopicPartition, topic_id: UUID, start: int, stop: int
    ) -> AsyncGenerator[FetchedBatches, None]:
        start += (place.partition, start) in places
        async with aclosing(read_batches(cluster, place, topic_id, start, max(stop, start + 1))) as parts:
            async for part in parts:
                yield part

    monkeypatch.setattr(writer_topic, "read_batches", behind)


def test_a_read_that_begins_behind_a_staged_record_finds_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`writer_topic` 3: a broker may answer so while it deletes."""
    monkeypatch.setattr(staging, "MESSAGE_BYTES_MAX", 0)

    async def work(sink: SinkClient) -> None:
        for value in ("0", "1"):
            await sink.task(rows_of([value]))
        topic = await sink.topic()
        begins_behind(monkeypatch, (1, 0))
        assert await StagedReader(topic).get(StagedBatch(TARGET, 1, 0, 1, 0)) is None
        assert await topic.staged_content([(1, 1), (1, 0)]) is None

    with_sink(work)


def test_a_read_that_begins_behind_a_proposal_finds_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_proposals(monkeypatch)

    async def work(sink: SinkClient) -> None:
        known = await sink.driver()
        await known.commit("q", 0, [await sink.task(rows_of(["0"]))])
        for batch in (1, 2, 3):
            await (await sink.driver()).commit("q", batch, [await sink.task(rows_of([str(batch)]))])
        begins_behind(monkeypatch, (PROPOSALS, 0), (PROPOSALS, 1), (PROPOSALS, 2))
        for driver in (known, await sink.driver()):
            assert not await driver.is_new()
            assert driver.decisions.last is not None
            assert (driver.decisions.last.batch, driver.decisions.last_offset) == (3, 3)
        assert await known.commit("q", 4, [await sink.task(rows_of(["4"]))]) is BatchVerdict.OK
        assert await sink.values() == ["0", "1", "2", "3", "4"]

    with_sink(work)
