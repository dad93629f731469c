"""Describing, listing and deleting groups."""

from __future__ import annotations

from gnomon.wire.kafka.schema import ProtocolMessage, Struct, array, boolean, int16, int32, octets, string

UNKNOWN_GROUP_ERROR_SINCE = 6
"""DescribeGroups reports an unknown group by an error with a text (KIP-1043); before, by the state Dead."""


class DescribeGroupsRequest(ProtocolMessage, key=15, versions=(0, 6), flexible=5):
    """Asks for the state and members of groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3, essential=True)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable(since=UNKNOWN_GROUP_ERROR_SINCE)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-(2**31))


class DescribeGroupsResponse(ProtocolMessage, key=15, versions=(0, 6), flexible=5):
    """State and members of each group."""

    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(ProtocolMessage, key=16, versions=(0, 5), flexible=3):
    """Asks for the groups of this broker; empty filters pass all."""

    states_filter: list[str] = array(string, since=4, essential=True)
    types_filter: list[str] = array(string, since=5, essential=True)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


class ListGroupsResponse(ProtocolMessage, key=16, versions=(0, 5), flexible=3):
    """The groups of this broker."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(ProtocolMessage, key=42, versions=(0, 2), flexible=2):
    """Names groups to delete."""

    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(ProtocolMessage, key=42, versions=(0, 2), flexible=2):
    """The outcome of each deletion."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
