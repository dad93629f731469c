"""Bugs in the sink of `gnomon.spark`; the sweeps over its drivers look for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from spark_scenario import SINK

from gnomon.client.kafka.offsets import find_offsets
from gnomon.client.kafka.topic_partition import LATEST
from gnomon.spark.decisions import Decisions, Proposal
from gnomon.spark.writing import committing, delivery
from gnomon.spark.writing.applying import PartitionApplication
from gnomon.spark.writing.committing import SinkDriver
from gnomon.spark.writing.writer_topic import PROPOSALS, WriterTopic
from gnomon.wire.kafka.errors import ErrorCode

from planted.planted_bug import ScenarioBugs

SINK_BUGS = ScenarioBugs(SINK)
planted = SINK_BUGS.planted


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


@planted("a driver leaves the decision of another one alone", breaks="spark.writing.committing 1", quick=True)
def not_recovered(patch: pytest.MonkeyPatch) -> None:
    async def reads_only(driver: Any) -> None:
        await driver.is_new()

    patch.setattr(SinkDriver, "recover", reads_only)


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
