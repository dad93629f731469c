from __future__ import annotations

import pytest

from gnomon.broker.coordination.state_machine import Refusal
from gnomon.broker.groups import group as groups
from gnomon.broker.groups import offsets
from gnomon.broker.groups.call import DeleteTopicOffsetsRequest
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from gnomon.wire.kafka.schema import encode_prefixed

DAY = 86_400


def delete_offset(bench, topic="t", group="g"):
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    return bench.call("tool", "deletes", OffsetDeleteRequest(group_id=group, topics=topics), 0)


def delete_group(bench, group="g"):
    return bench.call("tool", "deletes", DeleteGroupsRequest(groups_names=[group]), 2)


def test_an_offset_is_visible_only_after_it_is_durable(bench):
    bench.commit("g", 1)
    bench.held = True
    answer = bench.commit("g", 2)
    assert bench.offset() == 1
    assert answer.response is None
    bench.release()
    assert answer.error is ErrorCode.NONE
    assert bench.offset() == 2


def test_an_offset_whose_append_failed_is_never_visible(bench):
    bench.commit("g", 1)
    bench.held = True
    answer = bench.commit("g", 2)
    bench.fail(Refusal.UNAVAILABLE)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.offset() == 1


def test_an_unknown_group_has_no_offsets_and_that_is_no_error(bench):
    assert bench.offset("nobody") == -1
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    for version in range(1, 8):
        request = OffsetFetchRequest(group_id="nobody", topics=topics)
        (topic,) = bench.call("tool", "fetches", request, version).response.topics
        assert topic.partitions[0].committed_offset == -1
        assert topic.partitions[0].error_code == ErrorCode.NONE


def test_all_offsets_of_a_group_are_returned_if_no_topics_are_named(bench):
    bench.commit("g", 1, topic="t", metadata="why")
    bench.commit("g", 2, topic="u", partition=7)
    (group,) = bench.call(
        "tool", "fetches", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8
    ).response.groups
    found = {(t.name, p.partition_index): (p.committed_offset, p.metadata) for t in group.topics for p in t.partitions}
    assert found == {("t", 0): (1, "why"), ("u", 7): (2, "")}
    assert group.topics[0].partitions[0].committed_leader_epoch == 3
    old = bench.call("tool", "fetches", OffsetFetchRequest(group_id="g", topics=None), 7)
    assert [topic.name for topic in old.response.topics] == ["t", "u"]


def test_metadata_that_is_too_large_is_refused_for_its_partition_alone(new_bench):
    bench = new_bench(offset_metadata_bytes_max=10)
    topic = OffsetCommitRequestTopic(
        name="t",
        partitions=[
            OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 11),
            OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=None),
        ],
    )
    answer = bench.call("tool", "commits", OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    assert [part.error_code for part in answer.response.topics[0].partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert (bench.offset(), bench.offset(partition=1)) == (-1, 2)


def test_a_commit_that_the_log_cannot_hold_is_refused(bench, monkeypatch):
    monkeypatch.setattr(offsets, "COMMIT_BYTES_MAX", 1000)
    parts = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(10)]
    topic = OffsetCommitRequestTopic(name="t", partitions=parts)
    # Small on the wire, but each record names the group again.
    request = OffsetCommitRequest(group_id="g" * 100, topics=[topic])
    assert bench.call("tool", "commits", request, 8).error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert bench.log == []


def test_an_offset_named_several_times_is_deleted_once(bench):
    bench.commit("g", 1)
    written = len(bench.log)
    parts = [OffsetDeleteRequestPartition(partition_index=0)] * 3
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=parts)])
    assert bench.call("tool", "deletes", request, 0).error is ErrorCode.NONE
    assert len(bench.log) == written + 1


def test_a_retention_beyond_the_largest_time_is_for_ever(bench):
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[part])
    request = OffsetCommitRequest(group_id="g", retention_time_ms=2**63 - 1, topics=[topic])
    assert bench.call("tool", "commits", request, 2).error is ErrorCode.NONE
    bench.load()
    bench.advance(30 * DAY)
    assert bench.offset() == 1


def test_a_group_with_members_accepts_commits_of_members_only(bench, stable):
    assert bench.commit("g", 1).error is ErrorCode.NONE
    (a,) = stable("a")
    assert bench.commit("g", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("g", 2, generation_id_or_member_epoch=-1, member_id=a.member_id).error is (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert a.commit(3).error is ErrorCode.NONE
    a.leave()
    assert bench.commit("g", 4).error is ErrorCode.NONE
    assert bench.commit("h", 4, generation_id_or_member_epoch=1, member_id="m").error is ErrorCode.ILLEGAL_GENERATION


def test_members_commit_while_a_rebalance_is_prepared_except_between_join_and_sync(bench, stable):
    a, b = stable("a", "b")
    a.join()
    assert b.commit(5).error is ErrorCode.NONE
    b.join()
    a.learn()
    b.learn()
    assert b.commit(6).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.offset() == 5


def test_a_commit_keeps_the_session_alive(bench, stable):
    (a,) = stable("a")
    for offset in range(4):
        bench.advance(9)
        assert a.commit(offset).error is ErrorCode.NONE


def test_offsets_of_a_topic_that_members_read_are_not_deleted(bench, stable):
    a = bench.client("a", topics=["t"])
    stable(a)
    a.commit(1)
    a.commit(2, topic="u")
    assert delete_offset(bench, "t").error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(bench, "u").error is ErrorCode.NONE
    assert delete_offset(bench, "never committed").error is ErrorCode.NONE
    assert (bench.offset(topic="t"), bench.offset(topic="u")) == (1, -1)
    assert delete_offset(bench, group="nobody").error is ErrorCode.GROUP_ID_NOT_FOUND
    a.leave()
    assert delete_offset(bench, "t").error is ErrorCode.NONE
    assert bench.offset(topic="t") == -1


def test_offsets_of_a_group_of_another_protocol_type_are_not_deleted_while_in_use(bench, stable):
    a = bench.client("a", protocol_type="connect")
    stable(a)
    assert delete_offset(bench).error is ErrorCode.NON_EMPTY_GROUP


def test_an_unreadable_subscription_counts_as_covering_all_topics(bench, stable):
    a = bench.client("a")
    a.metadata = lambda: b"\0"
    stable(a)
    a.commit(1)
    assert delete_offset(bench).error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def short_subscription(version, topic):
    """The subscription that @platformatic/kafka sends: it names version 1 and ends after user_data."""
    return version.to_bytes(2, "big") + encode_prefixed(ConsumerProtocolSubscription(topics=[topic]), 0)[2:]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_subscription_that_ends_after_user_data_covers_its_topics_only(bench, stable, version):
    a = bench.client("a")
    a.metadata = lambda: short_subscription(version, "t")
    stable(a)
    a.commit(1)
    a.commit(2, topic="u")
    assert delete_offset(bench, "t").error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(bench, "u").error is ErrorCode.NONE
    assert (bench.offset(topic="t"), bench.offset(topic="u")) == (1, -1)


def test_offsets_expire_beside_a_subscription_that_ends_after_user_data_and_not_beside_an_unreadable_one(new_bench):
    for metadata, left in [(short_subscription(1, "t"), -1), (b"\0\1", 2)]:
        bench = new_bench(initial_rebalance_delay_ms=0, offsets_retention_minutes=20)
        a = bench.client("a", session_ms=1_800_000)
        a.metadata = lambda metadata=metadata: metadata
        a.enter()
        a.learn().sync({"a": "all"})
        a.commit(1)
        a.commit(2, topic="left")
        bench.advance(1_700)
        assert (bench.offset(), bench.offset(topic="left")) == (1, left)


def test_a_deletion_of_a_group_deletes_its_offsets_also_those_in_flight(bench, stable):
    (a,) = stable("a")
    a.commit(1)
    assert delete_group(bench).error is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    bench.held = True
    late = bench.commit("g", 2, partition=1)
    deleted = delete_group(bench)
    bench.release()
    assert (late.error, deleted.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (bench.offset(), bench.offset(partition=1)) == (-1, -1)
    assert delete_group(bench).error is ErrorCode.GROUP_ID_NOT_FOUND
    bench.crash()
    assert (bench.state(), bench.offset(), bench.offset(partition=1)) == (None, -1, -1)


def test_a_deletion_of_a_topic_deletes_its_offsets_in_every_group(bench):
    for group in ("g", "h"):
        bench.commit(group, 1, topic="gone")
        bench.commit(group, 2, topic="kept")
    bench.call("broker", "deletes", DeleteTopicOffsetsRequest(topics=["gone"], group_ids=None), 0)
    bench.crash()
    for group in ("g", "h"):
        assert (bench.offset(group, "gone"), bench.offset(group, "kept")) == (-1, 2)


def test_offsets_expire_seven_days_after_the_group_became_empty(bench, stable):
    (a,) = stable("a")
    a.commit(1)
    for _ in range(8):
        bench.advance(DAY)
        a.member_id = ""
        stable(a)
    assert bench.offset() == 1
    a.leave()
    bench.advance(6.9 * DAY)
    bench.crash()
    assert bench.offset() == 1
    bench.advance(0.2 * DAY)
    assert bench.offset() == -1
    assert bench.state() is None
    assert list(bench.shard.snapshot(list)) == []


def test_offsets_of_a_group_that_never_had_members_expire_seven_days_after_the_commit(bench):
    bench.commit("g", 1)
    bench.advance(3 * DAY)
    bench.commit("g", 2, partition=1)
    bench.advance(4.1 * DAY)
    assert (bench.offset(), bench.offset(partition=1)) == (-1, 2)
    bench.advance(3 * DAY)
    assert bench.offset(partition=1) == -1


def test_a_stable_group_loses_old_offsets_only_of_topics_that_it_does_not_read(new_bench):
    bench = new_bench(initial_rebalance_delay_ms=0, offsets_retention_minutes=20)
    a = bench.client("a", session_ms=1_800_000)
    a.enter()
    a.learn().sync({"a": "all"})
    a.commit(1)
    a.commit(2, topic="left")
    bench.advance(1_700)
    assert (bench.offset(), bench.offset(topic="left")) == (1, -1)


def test_an_explicit_retention_overrides_the_configured_one(bench):
    bench.call(
        "tool",
        "commits",
        OffsetCommitRequest(
            group_id="g",
            retention_time_ms=3_600_000,
            topics=[
                OffsetCommitRequestTopic(
                    name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                )
            ],
        ),
        4,
    )
    bench.advance(1800)
    bench.crash()
    assert bench.offset() == 1
    bench.advance(2500)
    assert bench.offset() == -1


def test_an_altered_retention_applies_to_stored_offsets(bench):
    bench.commit("g", 1)
    bench.settings = type(bench.settings)(offsets_retention_minutes=1)
    bench.advance(700)
    assert bench.offset() == -1


def test_the_subscriptions_of_a_group_are_read_once_for_all_its_topics(new_bench, monkeypatch):
    bench = new_bench(initial_rebalance_delay_ms=0, offsets_retention_minutes=20)
    a = bench.client("a", session_ms=1_800_000)
    a.enter()
    a.learn().sync({"a": "all"})
    for number in range(50):
        a.commit(1, topic=f"topic-{number}")
    reads = []
    decode = groups.subscribed_topics
    monkeypatch.setattr(groups, "subscribed_topics", lambda *args: reads.append(args) or decode(*args))
    bench.advance(1_700)
    looks = len(reads)
    assert 1 <= looks <= 5
    assert bench.offset(topic="topic-7") == -1
    topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])] * 50
    bench.call("tool", "deletes", OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert len(reads) == looks + 1
