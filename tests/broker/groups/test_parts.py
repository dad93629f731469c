"""The parts of long group requests; the numbers are those of the invariants of `parts`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.groups.call import GroupCall, ManyOffsets
from gnomon.broker.groups.parts import OFFSETS_MAX, joined, parts_of, with_places
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)

COUNTS = st.lists(st.sampled_from([0, 1, 2, 100, OFFSETS_MAX - 1, OFFSETS_MAX, OFFSETS_MAX + 1, 900]), max_size=8)


def call(request: Any, version: int) -> GroupCall:
    return GroupCall(request, version, "client", "/127.0.0.1", None)


def commit(counts: list[int]) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=f"t{number}",
            partitions=[OffsetCommitRequestPartition(partition_index=index) for index in range(count)],
        )
        for number, count in enumerate(counts)
    ]
    return OffsetCommitRequest(group_id="g", topics=topics)


def committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@given(COUNTS)
def test_the_joined_answer_to_a_commit_has_each_partition_in_order(counts: list[int]) -> None:
    """1, 2, 3."""
    asked = call(commit(counts), 8)
    parts = list(parts_of(asked))
    sizes = [sum(1 + len(topic.partitions) for topic in part.request.topics) for part in parts]
    assert all(size <= OFFSETS_MAX + 1 for size in sizes)
    assert sum(counts) + len(counts) > OFFSETS_MAX or [part.request for part in parts] == [asked.request]
    answers = [committed(part.request) for part in parts]
    assert joined(asked, answers) == committed(asked.request)
    assert asked.request == commit(counts), "the request itself was changed"


def test_a_group_that_is_named_twice_has_the_parts_of_its_first_mention() -> None:
    """1."""
    groups = [
        OffsetFetchRequestGroup(group_id=name, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
        for name, topic in (("g", "first"), ("h", "only"), ("g", "second"))
    ]
    parts = list(parts_of(call(OffsetFetchRequest(groups=groups), 8)))
    assert [(part.group_id, part.request.groups[0].topics[0].name) for part in parts] == [
        ("g", "first"),
        ("h", "only"),
    ]


@pytest.mark.parametrize(
    ("request_", "answers", "whole"),
    [
        (
            DescribeGroupsRequest(groups=["a", "b"]),
            [DescribeGroupsResponse(groups=[DescribedGroup(group_id=name)]) for name in "ab"],
            DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in "ab"]),
        ),
        (
            DeleteGroupsRequest(groups_names=["a", "b"]),
            [DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name)]) for name in "ab"],
            DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in "ab"]),
        ),
        (DescribeGroupsRequest(groups=[]), [], DescribeGroupsResponse(groups=[])),
        (DeleteGroupsRequest(groups_names=[]), [], DeleteGroupsResponse(results=[])),
        (OffsetFetchRequest(groups=[]), [], OffsetFetchResponse(groups=[])),
    ],
)
def test_answers_about_groups_are_joined(request_: Any, answers: list[Any], whole: Any) -> None:
    """2."""
    assert len(list(parts_of(call(request_, 8)))) == len(answers)
    assert joined(call(request_, 8), answers) == whole


def test_an_error_of_a_group_in_one_part_is_the_error_of_the_group() -> None:
    """2."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(3 * OFFSETS_MAX)))]
    asked = call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8)
    parts = list(parts_of(asked))
    assert len(parts) > 1
    found = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t")])
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    refused = OffsetFetchResponseGroup(group_id="g", error_code=error)
    answers = [OffsetFetchResponse(groups=[each]) for each in [found, refused, *[found] * (len(parts) - 2)]]
    assert joined(asked, answers) == OffsetFetchResponse(groups=[refused])


def test_an_error_of_a_part_of_a_deletion_is_that_of_the_deletion() -> None:
    """2."""
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2 * OFFSETS_MAX)]
    topic = OffsetDeleteRequestTopic(name="t", partitions=partitions)
    asked = call(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    parts = list(parts_of(asked))
    refused = OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert joined(asked, [OffsetDeleteResponse()] * (len(parts) - 1) + [refused]) == refused


@pytest.mark.parametrize("version", [7, 8])
def test_a_fetch_of_many_offsets_names_them_the_second_time(version: int) -> None:
    """1."""
    request = OffsetFetchRequest(group_id="g", topics=None)
    if version == 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    asked = call(request, version)
    parts = list(parts_of(asked))
    assert with_places(asked, parts, [OffsetFetchResponse()]) is None
    places = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(3 * OFFSETS_MAX)))]
    again = with_places(asked, parts, [ManyOffsets(topics=places)])
    assert again is not None
    named = [part.request for part in parts_of(call(again, version))]
    topics = [each.groups[0].topics if version == 8 else each.topics for each in named]
    indexes = [index for some in topics for topic in some for index in topic.partition_indexes]
    assert indexes == places[0].partition_indexes
    assert all(before < after for before, after in pairwise(indexes))


def test_topics_of_an_old_fetch_are_cut_too() -> None:
    """1."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(3 * OFFSETS_MAX)))
    parts = list(parts_of(call(OffsetFetchRequest(group_id="g", topics=[topic]), 7)))
    assert len(parts) == 3
