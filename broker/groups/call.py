"""A request to the coordinator on its way to its one reply.

A refusal of the coordination runtime becomes Kafka's error here (`error_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.broker.coordination.state_machine import Refusal
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages import group, group_admin, offsets
from gnomon.wire.kafka.schema import ProtocolMessage, array, int16, int32, nullable_array, string


class DeleteTopicOffsetsRequest(ProtocolMessage, versions=(0, 0)):
    """Names topics that were deleted, and the groups that may have offsets of them (None: all); sent by the broker to
    its own coordinator, never on the wire."""

    topics: list[str] = array(string)
    group_ids: list[str] | None = nullable_array(string)


class DeleteTopicOffsetsResponse(ProtocolMessage, versions=(0, 0)):
    """Confirms that the offsets of the topics are deleted, or has the error."""

    error_code: int = int16()


class DeletionUnfinished(ProtocolMessage, versions=(0, 0)):
    """The answer to a deletion of more offsets than one turn of the event loop deletes. The coordinator asks again: for
    the same groups, or for the groups named here if offsets of topics are deleted."""

    group_ids: list[str] = array(string)


class GroupPageRequest(ProtocolMessage, versions=(0, 0)):
    """Asks a shard for its groups in some states, as many as one turn of the event loop lists. `group_ids` and
    `position` are those of the page before; None asks for the first page."""

    states: list[str] = array(string)
    group_ids: list[str] | None = nullable_array(string)
    position: int = int32()


class GroupPage(ProtocolMessage, versions=(0, 0)):
    """Some groups of a shard. `group_ids` are those of all its groups; those from `position` on are for later pages."""

    error_code: int = int16()
    groups: list[group_admin.ListedGroup] = array(group_admin.ListedGroup)
    group_ids: list[str] = array(string)
    position: int = int32()


class ManyOffsets(ProtocolMessage, versions=(0, 0)):
    """The answer to an OffsetFetch of all offsets of a group that has too many for one turn of the event loop: their
    places. The coordinator then asks for them in parts."""

    topics: list[offsets.OffsetFetchRequestTopics] = array(offsets.OffsetFetchRequestTopics)


@dataclass(frozen=True, slots=True, eq=False)
class GroupCall:
    """One request, its sender, and the caller's own token, which is called with the response.

    `request` is a decoded message of `wire.kafka.messages`, `version` its API version.
    """

    request: Any
    version: int
    client_id: str
    client_host: str
    token: Any


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The response to a call, as the coordination runtime holds it back (`HeldReply`)."""

    call: GroupCall
    response: ProtocolMessage

    def send(self) -> None:
        """Gives the response to the caller."""
        self.call.token(self.response)

    def refuse(self, refusal: Refusal) -> None:
        """Gives the caller an error instead."""
        self.call.token(refused(self.call, error_of(refusal)))


_ERRORS = {
    Refusal.NOT_LEADER: ErrorCode.NOT_COORDINATOR,
    Refusal.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Refusal.UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def error_of(refusal: Refusal) -> ErrorCode:
    """Kafka's error for a refusal: the client finds the coordinator again, or tries again."""
    return _ERRORS[refusal]


def join_refusal(call: GroupCall, error: ErrorCode, member_id: str | None = None) -> group.JoinGroupResponse:
    """A JoinGroup response with an error; its member id is the request's unless given."""
    return group.JoinGroupResponse(
        error_code=error,
        protocol_name=None if call.version >= 7 else "",
        member_id=call.request.member_id if member_id is None else member_id,
    )


def refused(call: GroupCall, error: ErrorCode) -> ProtocolMessage:
    """The response that gives `error` for every item of the call, in the shape of its API and version."""
    request = call.request
    match request:
        case group.JoinGroupRequest():
            return join_refusal(call, error)
        case group.SyncGroupRequest():
            return group.SyncGroupResponse(error_code=error)
        case group.HeartbeatRequest():
            return group.HeartbeatResponse(error_code=error)
        case group.LeaveGroupRequest():
            return group.LeaveGroupResponse(error_code=error)
        case offsets.OffsetCommitRequest():
            return _commit_refusal(request, error)
        case offsets.OffsetFetchRequest():
            return _fetch_refusal(request, call.version, error)
        case offsets.OffsetDeleteRequest():
            return offsets.OffsetDeleteResponse(error_code=error)
        case group_admin.DescribeGroupsRequest():
            described = [
                group_admin.DescribedGroup(
                    group_id=name,
                    error_code=error,
                    error_message=error.text if call.version >= group_admin.UNKNOWN_GROUP_ERROR_SINCE else None,
                )
                for name in request.groups
            ]
            return group_admin.DescribeGroupsResponse(groups=described)
        case group_admin.ListGroupsRequest():
            return group_admin.ListGroupsResponse(error_code=error)
        case group_admin.DeleteGroupsRequest():
            results = [
                group_admin.DeletableGroupResult(group_id=name, error_code=error) for name in request.groups_names
            ]
            return group_admin.DeleteGroupsResponse(results=results)
        case GroupPageRequest():
            return GroupPage(error_code=error)
        case DeleteTopicOffsetsRequest():
            return DeleteTopicOffsetsResponse(error_code=error)
    raise AssertionError(f"{type(request).__name__} is no request of a group coordinator")


def _commit_refusal(request: offsets.OffsetCommitRequest, error: ErrorCode) -> offsets.OffsetCommitResponse:
    return offsets.OffsetCommitResponse(
        topics=[
            offsets.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offsets.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch_refusal(request: offsets.OffsetFetchRequest, version: int, error: ErrorCode) -> offsets.OffsetFetchResponse:
    if version >= offsets.FETCH_GROUPS_SINCE:
        groups = [offsets.OffsetFetchResponseGroup(group_id=one.group_id, error_code=error) for one in request.groups]
        return offsets.OffsetFetchResponse(groups=groups)
    if version >= 2:
        return offsets.OffsetFetchResponse(error_code=error)
    topics = [
        offsets.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                offsets.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
    return offsets.OffsetFetchResponse(topics=topics)
