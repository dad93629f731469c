"""Work on many offsets is divided into turns of the event loop (5 of `group_shard`)."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.groups import expiry, group_shard
from gnomon.broker.groups.call import DeleteTopicOffsetsRequest, DeleteTopicOffsetsResponse, DeletionUnfinished
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest

PART, COUNT = 4, 10
DAY = 86_400.0


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (group_shard, expiry):
        monkeypatch.setattr(module, "OFFSETS_MAX", PART)
    monkeypatch.setattr(group_shard, "GROUPS_EXAMINED_MAX", 2)


def commit_many(bench: Any, group: str = "g", topic: str = "t") -> None:
    for partition in range(COUNT):
        bench.commit(group, partition, topic=topic, partition=partition)


def delete_group(bench: Any) -> Any:
    return bench.call("tool", "deletes", DeleteGroupsRequest(groups_names=["g"]), 2)


def live(bench: Any) -> list[Any]:
    return [record for part in bench.shard.snapshot(list) for record in part]


def test_a_turn_deletes_a_bounded_number_of_the_offsets_of_a_group(bench):
    commit_many(bench)
    deletions = 0
    while isinstance(delete_group(bench).response, DeletionUnfinished):
        deletions += 1
        assert len(live(bench)) == COUNT - deletions * PART
    assert deletions == COUNT // PART
    assert live(bench) == []
    assert delete_group(bench).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_deletion_has_begun_takes_neither_members_nor_commits_until_it_is_gone(bench):
    commit_many(bench)
    assert isinstance(delete_group(bench).response, DeletionUnfinished)
    assert bench.client("a").join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.commit("g", 7).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while isinstance(delete_group(bench).response, DeletionUnfinished):
        pass
    assert bench.commit("g", 7).error is ErrorCode.NONE
    assert bench.offset() == 7


def test_a_deletion_that_a_crash_has_cut_short_leaves_a_group_that_can_be_used_and_deleted(bench):
    commit_many(bench)
    assert isinstance(delete_group(bench).response, DeletionUnfinished)
    bench.crash()
    assert bench.commit("g", 7).error is ErrorCode.NONE
    while isinstance(delete_group(bench).response, DeletionUnfinished):
        pass
    assert live(bench) == []


@pytest.mark.parametrize("held", [False, True])
def test_offsets_of_a_deleted_topic_are_deleted_in_parts_and_all_others_stay(bench, held):
    bench.held = held
    for group in ("g", "h", "i"):
        commit_many(bench, group, "gone")
        bench.commit(group, 1, topic="kept")
    request = DeleteTopicOffsetsRequest(topics=["gone"], group_ids=None)
    answers = 0
    while True:
        answer = bench.call("broker", "deletes", request, 0)
        bench.release()
        answers += 1
        if isinstance(answer.response, DeleteTopicOffsetsResponse):
            break
        request = DeleteTopicOffsetsRequest(topics=["gone"], group_ids=answer.response.group_ids)
    assert answers >= 3 * COUNT // PART
    assert sorted((record.group_id, record.topic) for record in live(bench)) == [
        (group, "kept") for group in ("g", "h", "i")
    ]


def test_a_turn_examines_a_bounded_number_of_offsets_for_expiry_and_all_that_have_expired_are_deleted(bench):
    for group in ("g", "h"):
        commit_many(bench, group)
    bench.advance(6 * DAY)
    bench.commit("h", 5, partition=3)
    bench.held = True
    lengths = []
    end = bench.now + 1.1 * DAY
    while bench.now < end:
        bench.advance(600)
        lengths += [len(append.records) for append in bench.under_way]
        bench.durable(len(bench.under_way))
    assert max(lengths) <= PART
    assert sum(lengths) == 2 * COUNT - 1
    assert [(record.group_id, record.partition) for record in live(bench)] == [("h", 3)]


def test_a_group_with_many_offsets_is_forgotten_once_all_of_them_have_expired(bench, stable):
    (a,) = stable("a")
    for partition in range(COUNT):
        a.commit(partition, partition=partition)
    a.leave()
    bench.advance(7.1 * DAY)
    assert live(bench) == []
    assert bench.state() is None
