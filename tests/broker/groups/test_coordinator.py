"""The coordinator of groups: their shards, waiting requests, and answers from several shards."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from coordinator_on_logs import commit, error_of, fetch, join, neighbour, serve

from gnomon.broker.coordination.state_log import LogUnavailable, NotLogLeader
from gnomon.broker.errors import KafkaError
from gnomon.broker.groups import group_shard
from gnomon.broker.groups.coordinator import (
    SENT_AWAY_SECONDS,
    WEIGHT_PER_TURN,
    partition_for,
)
from gnomon.broker.groups.parts import OFFSETS_MAX
from gnomon.broker.groups.settings import GroupSettings
from gnomon.runtime.loop.paced import PAUSE_SECONDS
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


@pytest.mark.parametrize(
    ("group", "partition"),
    # The values of Java's String.hashCode: 0, 103, 98262, and Integer.MIN_VALUE, which counts as 0.
    [("", 0), ("g", 3), ("cat", 12), ("polygenelubricants", 0)],
)
def test_a_group_is_stored_in_the_partition_that_kafka_computes(group, partition):
    assert partition_for(group, 50) == partition


def test_a_new_deadline_before_all_others_is_met():
    async def scenario(broker):
        await broker.ask(join("g", session_ms=60_000), 3)
        other = neighbour("g")
        await broker.ask(join(other, session_ms=10_000), 3)
        await trio.sleep(11)
        # Checked in the log: a request would make the coordinator look at its deadlines.
        assert len(broker.log_of("g").records) == 1

    serve(scenario)


def test_a_join_that_is_parked_is_answered_by_a_deadline():
    async def scenario(broker):
        broker.settings = GroupSettings(initial_rebalance_delay_ms=3000)
        start = trio.current_time()
        assert (await broker.ask(join(), 3)).generation_id == 1
        assert trio.current_time() - start == pytest.approx(3, abs=0.1)

    serve(scenario)


def test_a_draining_coordinator_answers_members_that_wait_for_others_and_starts_no_write():
    async def scenario(broker):
        await broker.ask(join("g"), 3)
        parked = broker.tell(join("g"), 3)
        assert parked == []
        log = broker.log_of("g")
        log.held = True
        committed = broker.tell(commit(neighbour("g"), 1), 8)
        written = len(log.records)
        broker.coordinator.drain()
        assert [answer.error_code for answer in parked] == [ErrorCode.NOT_COORDINATOR]
        assert [answer.error_code for answer in broker.tell(join("g"), 3)] == [ErrorCode.NOT_COORDINATOR]
        assert committed == []
        await trio.sleep(60)
        assert len(log.waiting) == 1
        await log.flush()
        assert error_of(committed[0]) is ErrorCode.NONE
        assert len(log.records) == written + 1

    serve(scenario)


def test_a_request_that_waits_for_its_shard_while_the_coordinator_drains_is_answered():
    async def scenario(broker):
        broker.settings = GroupSettings(initial_rebalance_delay_ms=3000)
        parked, found = broker.tell(join("g"), 3), broker.tell(fetch("g"), 8)
        broker.coordinator.drain()
        await trio.sleep(0.1)
        assert [answer.error_code for answer in parked] == [ErrorCode.NOT_COORDINATOR]
        assert found[0].groups[0].error_code == ErrorCode.NONE

    serve(scenario)


def test_silent_members_are_removed_and_the_empty_group_is_recorded():
    async def scenario(broker):
        await broker.ask(join(), 3)
        await trio.sleep(11)
        (described,) = (await broker.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert described.group_state == "Empty"
        assert len(broker.log_of("g").records) == 1

    serve(scenario)


def test_answers_about_several_groups_are_assembled_from_their_shards():
    async def scenario(broker):
        names = [f"g{index}" for index in range(10)]
        for index, name in enumerate(names):
            await broker.ask(commit(name, index), 8)
        await broker.start()
        listed = await broker.ask(ListGroupsRequest(), 4)
        assert sorted(group.group_id for group in listed.groups) == names
        described = await broker.ask(DescribeGroupsRequest(groups=[*names, "nobody"]), 5)
        assert [group.group_id for group in described.groups] == [*names, "nobody"]
        assert [group.group_state for group in described.groups] == ["Empty"] * 10 + ["Dead"]
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        wanted = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
        fetched = await broker.ask(OffsetFetchRequest(groups=wanted), 8)
        assert [group.topics[0].partitions[0].committed_offset for group in fetched.groups] == list(range(10))
        deleted = await broker.ask(DeleteGroupsRequest(groups_names=["g3", "nobody"]), 2)
        assert [result.error_code for result in deleted.results] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert len((await broker.ask(ListGroupsRequest(), 4)).groups) == 9
        assert (await broker.ask(DescribeGroupsRequest(groups=[]), 5)).groups == []

    serve(scenario)


def test_a_listing_of_many_groups_takes_many_turns_and_one_listing_is_made_at_a_time(monkeypatch):
    monkeypatch.setattr(group_shard, "GROUPS_LISTED_MAX", 3)

    async def scenario(broker):
        names = [name for name in (f"n{index}" for index in range(1500)) if partition_for(name, 50) == 0][:20]
        for name in names:
            await broker.ask(commit(name, 1), 8)
        start = trio.current_time()
        ends = []

        async def list_groups():
            listing = await broker.ask(ListGroupsRequest(), 4)
            assert [group.group_id for group in listing.groups] == names
            ends.append(trio.current_time() - start)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(list_groups)
            nursery.start_soon(list_groups)
        assert ends == [pytest.approx(6 * PAUSE_SECONDS), pytest.approx(12 * PAUSE_SECONDS)]

    serve(scenario)


def test_a_listing_whose_shard_is_given_up_between_two_pages_says_so(monkeypatch):
    monkeypatch.setattr(group_shard, "GROUPS_LISTED_MAX", 1)

    async def scenario(broker):
        for name in ("g", neighbour("g")):
            await broker.ask(commit(name, 1), 8)
        listing = broker.tell(ListGroupsRequest(), 4)
        await trio.testing.wait_all_tasks_blocked()
        broker.leads = False
        broker.coordinator.release()
        await trio.sleep(1)
        assert [answer.error_code for answer in listing] == [ErrorCode.NOT_COORDINATOR]

    serve(scenario)


def test_a_group_named_again_is_answered_once_and_a_long_list_yields_to_other_requests():
    async def scenario(broker):
        names = [f"g{index}" for index in range(WEIGHT_PER_TURN + 1)]
        for name in names:
            await broker.ask(DescribeGroupsRequest(groups=[name]), 5)  # all shards are loaded
        answers = broker.tell(DescribeGroupsRequest(groups=names * 100), 5)
        pauses = 0
        while not answers:
            await trio.sleep(PAUSE_SECONDS)
            pauses += 1
        assert pauses >= 3
        assert [group.group_id for group in answers[0].groups] == names

    serve(scenario)


def test_offsets_of_deleted_topics_are_deleted_also_in_shards_that_are_not_loaded():
    async def scenario(broker):
        for name in ("g", "h"):
            await broker.ask(commit(name, 1), 8)
        await broker.start()
        await broker.coordinator.delete_topic_offsets(["t"])
        await broker.start()
        assert [await broker.offset("g"), await broker.offset("h")] == [-1, -1]
        broker.logs.refused = LogUnavailable("damaged")
        await broker.start()
        with pytest.raises(KafkaError) as refused:
            await broker.coordinator.delete_topic_offsets(["t"])
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    serve(scenario)


def test_offsets_of_deleted_topics_are_left_to_other_brokers_that_may_lead_their_shards():
    async def scenario(broker):
        for name in ("g", "h"):
            await broker.ask(commit(name, 1), 8)
        mine, others = (partition_for(name, 50) for name in ("g", "h"))
        broker.log_of("h").certain = False
        assert await broker.coordinator.delete_topic_offsets(["t"]) == ([mine], [others])
        broker.logs.refused = NotLogLeader("led elsewhere")
        await broker.start()
        assert await broker.coordinator.delete_topic_offsets(["t"]) == ([], sorted([mine, others]))

    serve(scenario)


def test_an_offset_is_answered_only_after_the_log_is_confirmed_as_the_latest():
    async def scenario(broker):
        assert error_of(await broker.ask(commit("g", 5), 7)) is ErrorCode.NONE
        assert await broker.offset("g") == 5
        broker.log_of("g").certain = False
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.log_of("g").certain = True
        assert await broker.offset("g") == 5
        assert broker.log_of("g").reads == 1

    serve(scenario)


def test_an_offset_requested_before_the_load_is_answered_only_after_the_log_is_confirmed():
    async def scenario(broker):
        await broker.ask(commit("g", 5), 7)
        await broker.start()
        log = broker.log_of("g")
        log.silent = True
        answers = [*broker.tell(fetch("g"), 8), *broker.tell(fetch("g"), 8)]
        await trio.sleep(1)
        assert (log.reads, answers) == (2, [])
        log.silent, log.certain = False, False
        await broker.start()
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    serve(scenario)


def test_a_request_that_waits_for_a_confirmation_gets_a_retriable_error_after_the_groups_move():
    async def scenario(broker):
        await broker.ask(commit("g", 5), 7)
        log = broker.log_of("g")
        log.silent = True
        answers = broker.tell(fetch("g"), 8)
        broker.leads = False
        broker.coordinator.release()
        assert answers == []
        (confirm,) = log.asked
        confirm(True)
        assert answers[0].groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    serve(scenario)


def test_a_request_for_offsets_gets_a_retriable_error_while_no_other_coordinator_is_known():
    async def scenario(broker):
        await broker.ask(commit("g", 5), 7)
        broker.lease_lives = False
        for _ in range(3):
            assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert error_of(await broker.ask(commit("g", 6), 7)) is ErrorCode.NOT_COORDINATOR
            await trio.sleep(100)
        broker.lease_lives = True
        assert await broker.offset("g") == 5

    serve(scenario)


def test_a_request_for_offsets_of_another_broker_is_redirected_after_a_while():
    async def scenario(broker):
        broker.leads = False
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert error_of(await broker.ask(commit("g", 6), 7)) is ErrorCode.NOT_COORDINATOR
        await trio.sleep(SENT_AWAY_SECONDS - 0.1)
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(0.1)
        assert await broker.offset("g") == ErrorCode.NOT_COORDINATOR
        for leads in (True, False):
            broker.leads = leads
            broker.coordinator.release()
        assert await broker.offset("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    serve(scenario)


COUNT = 3 * OFFSETS_MAX


def many_offsets():
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(COUNT)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])


def places(topics, field):
    return [(topic.name, getattr(item, field)) for topic in topics for item in topic.partitions]


@pytest.mark.parametrize("version", [7, 8])
def test_a_group_with_many_offsets_is_committed_fetched_and_deleted_in_parts(version):
    async def scenario(broker):
        committed = await broker.ask(many_offsets(), 8)
        assert places(committed.topics, "partition_index") == [("t", index) for index in range(COUNT)]
        assert set(places(committed.topics, "error_code")) == {("t", 0)}
        if version == 7:
            fetched = await broker.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        else:
            everything = OffsetFetchRequestGroup(group_id="g", topics=None)
            fetched = (await broker.ask(OffsetFetchRequest(groups=[everything]), 8)).groups[0]
        assert fetched.error_code == 0
        assert places(fetched.topics, "committed_offset") == [("t", index) for index in range(COUNT)]
        assert len(fetched.topics) == 1
        doomed = [OffsetDeleteRequestPartition(partition_index=index) for index in range(COUNT)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=doomed)]
        deleted = await broker.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert (deleted.error_code, len(deleted.topics[0].partitions)) == (0, COUNT)
        assert await broker.offset("g", COUNT - 1) == -1

    serve(scenario)


@pytest.mark.parametrize("deleted", ["group", "topic"])
def test_a_client_gets_one_answer_to_a_deletion_that_takes_several_turns(deleted):
    async def scenario(broker):
        await broker.ask(many_offsets(), 8)
        if deleted == "group":
            answer = await broker.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
            assert [result.error_code for result in answer.results] == [ErrorCode.NONE]
        else:
            assert await broker.coordinator.delete_topic_offsets(["t"]) == ([partition_for("g", 50)], [])
        assert (await broker.ask(ListGroupsRequest(), 4)).groups == []
        await broker.start()
        assert [await broker.offset("g", index) for index in (0, COUNT - 1)] == [-1, -1]

    serve(scenario)


def test_a_deletion_that_takes_several_turns_fails_if_another_broker_claims_the_log_meanwhile():
    async def scenario(broker):
        await broker.ask(many_offsets(), 8)
        log = broker.log_of("g")
        log.held = True
        answers = broker.tell(DeleteGroupsRequest(groups_names=["g"]), 2)
        broker.leads = False
        broker.coordinator.release()
        await trio.sleep(1)
        assert [result.error_code for result in answers[0].results] == [ErrorCode.NOT_COORDINATOR]

    serve(scenario)
