"""Answers that refuse a whole request (numbers: invariants of `refusal`)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from gnomon.wire.kafka.api import APIS, Api, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fields import Struct
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gnomon.wire.kafka.messages.group import FindCoordinatorRequest
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from gnomon.wire.kafka.messages.placement import ElectLeadersRequest, ElectLeadersTopic
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gnomon.wire.kafka.messages.topics import DeleteTopicsRequest
from gnomon.wire.kafka.refusal import named_topics, refusal
from gnomon.wire.kafka.schema import ProtocolMessage, decode, encode

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
ID = UUID(int=7)
BY_NAME = 9
"""A version of Produce, Fetch and OffsetFetch that names topics."""


def refused(request: ProtocolMessage, version: int | None = None) -> Any:
    """The refusal of a request, in its latest version unless another is given."""
    assert request.KEY is not None
    response = APIS[request.KEY].response
    return refusal(request, response, response.VERSIONS[1] if version is None else version, CODE, "why")


def filled(kind: type[Struct], version: int) -> Any:
    """A struct with one item in each array."""
    values: dict[str, object] = {}
    for field in kind.FIELDS:
        if field.array and field.present(version):
            values[field.name] = [filled(field.kind, version) if isinstance(field.kind, type) else field.kind.zero]
    return kind(**values)


def codes(answer: Struct, version: int) -> list[tuple[str, int]]:
    """All error codes of an answer, with the names of their structs."""
    found = []
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name == "error_code" and field.present(version):
            found.append((type(answer).__name__, value))
        elif field.array and isinstance(field.kind, type):
            found += [code for each in value or () for code in codes(each, version)]
    return found


EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.key.name}-{version}")
    for api in APIS.values()
    for version in {api.request.VERSIONS[0], (sum(api.request.VERSIONS) + 1) // 2, api.max_version}
]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_the_answer_of_every_api_has_the_error_and_can_be_encoded(api: Api, version: int) -> None:  # invariants 2, 3
    body = encode(refused(filled(api.request, version), version), version)
    decoded, end = decode(api.response, version, memoryview(body), 0)
    assert end == len(body)
    found = [code for name, code in codes(decoded, version) if (api.key, name) != (ApiKey.FETCH, "FetchResponse")]
    assert set(found) == {CODE}


def test_items_are_answered_by_name_and_number() -> None:  # invariant 1
    data = [PartitionProduceData(index=3, records=b""), PartitionProduceData(index=5, records=b"")]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="a", topic_id=ID, partition_data=data)])
    assert refused(request).responses[0].topic_id == ID
    (topic,) = refused(request, BY_NAME).responses
    assert topic.name == "a"
    assert [(each.index, each.error_code, each.error_message) for each in topic.partition_responses] == [
        (3, CODE, "why"),
        (5, CODE, "why"),
    ]
    wanted = FetchTopic(topic="a", topic_id=ID, partitions=[FetchPartition(partition=4, fetch_offset=9)])
    fetched = refused(FetchRequest(session_id=8, session_epoch=0, topics=[wanted]), BY_NAME)
    assert (fetched.session_id, fetched.responses[0].topic) == (0, "a")
    partition = fetched.responses[0].partitions[0]
    assert (partition.partition_index, partition.error_code, partition.log_start_offset) == (4, CODE, -1)


def test_items_that_are_plain_names_and_numbers_are_answered_as_well() -> None:  # invariant 1
    deleted = refused(DeleteTopicsRequest(topic_names=["a", "b"]))
    assert [(each.name, each.error_code) for each in deleted.responses] == [("a", CODE), ("b", CODE)]
    groups = refused(DeleteGroupsRequest(groups_names=["g"]))
    assert [(each.group_id, each.error_code) for each in groups.results] == [("g", CODE)]
    found = refused(FindCoordinatorRequest(coordinator_keys=["g"]))
    assert [(each.key, each.error_code) for each in found.coordinators] == [("g", CODE)]
    elected = refused(ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="a", partitions=[2])]))
    (result,) = elected.replica_election_results
    assert (result.topic, result.partition_result[0].partition_id) == ("a", 2)
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[6])]
    (group,) = refused(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), BY_NAME
    ).groups
    assert (group.group_id, group.error_code) == ("g", CODE)
    assert (group.topics[0].name, group.topics[0].partitions[0].partition_index) == ("a", 6)


def test_the_topics_of_a_request_are_found_by_name_and_id() -> None:
    assert named_topics(DeleteTopicsRequest(topic_names=["a", "b"])) == {"a", "b"}
    wanted = FetchTopic(topic="a", topic_id=ID, partitions=[])
    assert {"a", ID} <= named_topics(FetchRequest(topics=[wanted]))
    assert named_topics(FetchRequest()) == set()
