"""The life of a group member: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from gnomon.wire.kafka.schema import ProtocolMessage, Struct, array, boolean, int8, int16, int32, octets, string


class FindCoordinatorRequest(ProtocolMessage, key=10, versions=(0, 6), flexible=3):
    """Asks who coordinates: one `key` up to v3, `coordinator_keys` from v4 on."""

    key: str = string(until=3, essential=True)
    key_type: int = int8(since=1, essential=True)
    coordinator_keys: list[str] = array(string, since=4, essential=True)


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()


class FindCoordinatorResponse(ProtocolMessage, key=10, versions=(0, 6), flexible=3):
    """The coordinator: in the message itself up to v3, in `coordinators` from v4 on."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3, essential=True)
    error_message: str | None = string.nullable(since=1, until=3)
    node_id: int = int32(until=3, essential=True)
    host: str = string(until=3, essential=True)
    port: int = int32(until=3, essential=True)
    coordinators: list[Coordinator] = array(Coordinator, since=4, essential=True)


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class JoinGroupRequest(ProtocolMessage, key=11, versions=(0, 9), flexible=6):
    """A member joins or rejoins a group."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=5, essential=True)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string.nullable(since=8)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=5)
    metadata: bytes = octets()


class JoinGroupResponse(ProtocolMessage, key=11, versions=(0, 9), flexible=6):
    """The generation; only the leader gets the list of members."""

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string.nullable(since=7)
    protocol_name: str | None = string.nullable(nullable_since=7, default="")
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(ProtocolMessage, key=14, versions=(0, 5), flexible=4):
    """A member asks for its assignment; the leader brings all assignments."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=3, essential=True)
    protocol_type: str | None = string.nullable(since=5)
    protocol_name: str | None = string.nullable(since=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(ProtocolMessage, key=14, versions=(0, 5), flexible=4):
    """The assignment of one member."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string.nullable(since=5)
    protocol_name: str | None = string.nullable(since=5)
    assignment: bytes = octets()


class HeartbeatRequest(ProtocolMessage, key=12, versions=(0, 4), flexible=4):
    """A member reports that it is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string.nullable(since=3, essential=True)


class HeartbeatResponse(ProtocolMessage, key=12, versions=(0, 4), flexible=4):
    """Confirms that the member is in the current generation, or has the error."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string.nullable()
    reason: str | None = string.nullable(since=5)


class LeaveGroupRequest(ProtocolMessage, key=13, versions=(0, 5), flexible=4):
    """Members leave: one `member_id` up to v2, `members` from v3 on."""

    group_id: str = string()
    member_id: str = string(until=2, essential=True)
    members: list[MemberIdentity] = array(MemberIdentity, since=3, essential=True)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string.nullable()
    error_code: int = int16()


class LeaveGroupResponse(ProtocolMessage, key=13, versions=(0, 5), flexible=4):
    """The outcome for each leaving member."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3, essential=True)
