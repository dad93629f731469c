"""Bugs in the sink of `gnomon.spark` and in its pipelines; the sweeps over the sink's drivers look for them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from spark_scenario import SINK

from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.producing import append, send_batch
from gnomon.client.kafka.topic_partition import LATEST, TopicPartition
from gnomon.spark.decisions import BatchVerdict, Decisions, Proposal
from gnomon.spark.pipelines.batch_commit import BatchCommit
from gnomon.spark.tables import parquet_table
from gnomon.spark.writing import committing, delivery, writer_topic
from gnomon.spark.writing.applying import PartitionApplication
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.writer_topic import PROPOSALS, WriterTopic
from gnomon.wire.kafka.errors import ErrorCode

from planted.planted_bug import ScenarioBugs

SINK_BUGS = ScenarioBugs(SINK)
planted = SINK_BUGS.planted
COMMITTING = "tests/spark/writing/test_committing.py"
PIPELINES = "tests/spark/pipelines/test_batch_commit.py"
PARQUET = "tests/spark/tables/test_parquet_table.py"


# --- decisions ---


@planted("the last proposal of a number wins", breaks="spark.decisions 1", quick=True)
def last_wins(patch: pytest.MonkeyPatch) -> None:
    read = Decisions.read

    def also_the_same_number(decisions: Any, offset: int, proposal: Any) -> bool:
        if decisions.last is not None and proposal.number == decisions.last.number:
            decisions.last, decisions.last_offset = proposal, offset
            return True
        return read(decisions, offset, proposal)

    patch.setattr(Decisions, "read", also_the_same_number)


@planted("a proposal of batches that may be deleted is valid", breaks="spark.decisions 3")
def without_durable_staging(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decisions, "keeps", lambda decisions, staged_from: True)


@planted("a query that comes back writes its last batch again", breaks="spark.decisions 5")
def earlier_owners_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decisions, "owners_for", lambda decisions, query: {})


@planted("the epoch is not raised from decision to decision", breaks="spark.decisions 6")
def one_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposal, "producer_epoch", property(lambda proposal: 1))


@planted(
    "a driver goes on with what it knew when proposals were deleted before it had read them",
    breaks="spark.decisions 4",
    found_by=f"{COMMITTING}::test_a_driver_that_reads_while_proposals_are_deleted_begins_again",
)
def folded_from_the_middle(patch: pytest.MonkeyPatch) -> None:
    first = property(
        lambda driver: driver.__dict__["decisions"],
        lambda driver, decisions: driver.__dict__.setdefault("decisions", decisions),
    )
    patch.setattr(SinkDriver, "decisions", first, raising=False)


@planted(
    "a batch id is compared with that of any query",
    breaks="spark.decisions 2",
    found_by="tests/spark/test_decisions.py::test_the_verdicts_of_a_driver",
)
def query_not_compared(patch: pytest.MonkeyPatch) -> None:
    verdict = Decisions.verdict

    def of_any_query(decisions: Any, query: str, batch: int, *, takes_over: bool = False) -> BatchVerdict:
        if decisions.last is not None and batch <= decisions.last.batch:
            return BatchVerdict.ALREADY
        return verdict(decisions, query, batch, takes_over=takes_over)

    patch.setattr(Decisions, "verdict", of_any_query)


# --- delivery ---


@planted("a gap of sequences is a repeat, whatever came before", breaks="spark.writing.applying 2")
def gap_is_repeat(patch: pytest.MonkeyPatch) -> None:
    answered = PartitionApplication.answered

    def believing(application: Any, code: Any) -> None:
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            application._resumes = False
            application.applied = application._in_flight[0]
        answered(application, code)

    patch.setattr(PartitionApplication, "answered", believing)


@planted("a batch without an answer is not sent again", breaks="spark.writing.applying 3")
def unanswered_is_applied(patch: pytest.MonkeyPatch) -> None:
    answered = PartitionApplication.answered
    patch.setattr(
        PartitionApplication,
        "answered",
        lambda application, code: answered(application, ErrorCode.NONE if code is None else code),
    )


@planted("a driver that recovers a decision begins in its middle", breaks="spark.writing.applying 1")
def resumed_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    async def half(cluster: Any, decision: Any, batches: Any, decided_ms: int) -> dict[TopicPartition, int]:
        numbers = Counter(each.target for each in batches.staged)
        return {target: number // 2 for target, number in numbers.items()}

    patch.setattr(committing, "delivered_before", half)


@planted(
    "an old decision is sent without a search, although its producer may be forgotten",
    breaks="spark.writing.delivery 1",
    found_by=f"{COMMITTING}::test_an_old_decision_is_looked_for_in_its_targets_before_it_is_sent",
)
def forgotten_producer_believed(patch: pytest.MonkeyPatch) -> None:
    async def nothing(cluster: Any, decision: Any, batches: Any, decided_ms: int) -> dict[TopicPartition, int]:
        return {}

    patch.setattr(committing, "delivered_before", nothing)


# --- drivers ---


@planted("a driver leaves the decision of another one alone", breaks="spark.writing.committing 1", quick=True)
def not_recovered(patch: pytest.MonkeyPatch) -> None:
    async def reads_only(driver: Any) -> None:
        await driver.is_new()

    patch.setattr(SinkDriver, "recover", reads_only)


@planted("batches are proposed before their staging is acknowledged", breaks="spark.writing.writer_topic 1")
def proposed_before_staged(patch: pytest.MonkeyPatch) -> None:
    async def at_once(cluster: Any, place: TopicPartition, batch: bytes) -> int:
        if place.partition == PROPOSALS:
            return await append(cluster, place, batch)
        end = (await find_offsets(cluster, {place: LATEST}))[place] or 0
        send_batch(await cluster.leader(*place), place, batch)
        return end

    patch.setattr(writer_topic, "append", at_once)


@planted(
    "the ends of the staged batches are asked behind the proposal",
    breaks="spark.writing.committing 3",
    found_by=f"{COMMITTING}::test_what_is_staged_right_behind_a_proposal_stays",
)
def ends_asked_late(patch: pytest.MonkeyPatch) -> None:
    deliver = delivery.deliver

    async def up_to_later_ends(cluster: Any, topic: Any, decision: Any, staged: Any, applied: Any) -> bool:
        ends = await find_offsets(cluster, dict.fromkeys(topic.staging, LATEST))
        complete = await deliver(cluster, topic, decision, staged, applied)
        if complete:
            await topic.delete_before({place.partition: end or 0 for place, end in ends.items()})
        return complete

    patch.setattr(committing, "deliver", up_to_later_ends)


@planted("staged batches are deleted up to their present end", breaks="spark.writing.committing 4")
def staging_cleaned_too_far(patch: pytest.MonkeyPatch) -> None:
    delete_before = WriterTopic.delete_before

    async def up_to_the_end(topic: Any, ends: Mapping[int, int]) -> None:
        if PROPOSALS not in ends:
            found = await find_offsets(topic._cluster, dict.fromkeys(topic.staging, LATEST))
            ends = {place.partition: end or 0 for place, end in found.items()}
        await delete_before(topic, ends)

    patch.setattr(WriterTopic, "delete_before", up_to_the_end)


@planted("staged batches are deleted before they are applied", breaks="spark.writing.committing 4", quick=True)
def staging_cleaned_too_early(patch: pytest.MonkeyPatch) -> None:
    deliver = delivery.deliver

    async def behind_the_deletion(cluster: Any, topic: Any, decision: Any, staged: Any, applied: Any) -> bool:
        await topic.delete_before(decision.staging_ends)
        return await deliver(cluster, topic, decision, staged, applied)

    patch.setattr(committing, "deliver", behind_the_deletion)


@planted("the log of proposals begins behind the last decision", breaks="spark.writing.committing 4")
def decision_deleted(patch: pytest.MonkeyPatch) -> None:
    delete_before = WriterTopic.delete_before

    async def the_decision_too(topic: Any, ends: Mapping[int, int]) -> None:
        await delete_before(topic, {place: end + (place == PROPOSALS) for place, end in ends.items()})

    patch.setattr(WriterTopic, "delete_before", the_decision_too)


@planted("the batches of a driver are decided if any proposal of their number is", breaks="spark.writing.committing 2")
def any_decision_is_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposal, "__eq__", lambda proposal, other: other is not None)


# --- pipelines ---


@planted(
    "dead letters are written without the number of their batch",
    breaks="spark.pipelines.batch_commit 3",
    found_by=f"{PIPELINES}::test_a_driver_that_dies_between_both_leaves_a_batch_that_the_next_one_commits",
)
def letters_outside_the_batch(patch: pytest.MonkeyPatch) -> None:
    commit, numbers = BatchCommit.commit, count()

    def after_its_letters(driver: Any, batch: Any, schema: Any, results: Sequence[Any]) -> Any:
        letters, driver._dead_letters = driver._dead_letters, None
        if letters is not None and any(result.dead for result in results):
            letters.commit(batch._replace(number=next(numbers)), results)
        try:
            return commit(driver, batch, schema, results)
        finally:
            driver._dead_letters = letters

    patch.setattr(BatchCommit, "commit", after_its_letters)


@planted(
    "a manifest takes the place of another one of its number",
    breaks="spark.tables.parquet_table 1",
    found_by=f"{PARQUET}::test_a_driver_that_was_stopped_creates_no_manifest_of_an_old_number",
)
def manifest_replaced(patch: pytest.MonkeyPatch) -> None:
    def replaced(path: Path, content: bytes) -> bool:
        path.with_suffix(".new").write_bytes(content)
        os.replace(path.with_suffix(".new"), path)
        return True

    patch.setattr(parquet_table, "create_whole", replaced)
