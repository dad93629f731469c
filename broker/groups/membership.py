"""The requests of members to their group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. The rules are Kafka's.

1. From JoinGroup v4 on a dynamic member joins with an id that the coordinator gave it before (KIP-394).
2. A static member comes back under a new id without a rebalance if the protocol stays the same; the old id is fenced
   (KIP-345). From JoinGroup v9 on, the response asks a leader that comes back to skip the assignment (KIP-814); before
   v9 the response names the leader's old id, which has the same effect.
3. The subscriptions and assignments of a group's members are bounded, so that the group's record fits into the log: a
   failed append would refuse the calls of all groups of the shard.
4. A request with a member id that the group does not know gets an error. SyncGroup and Heartbeat must also name the
   current generation.
"""

from __future__ import annotations

import math

from gnomon.broker.groups.call import GroupCall, Reply, join_refusal
from gnomon.broker.groups.group import Group, GroupState
from gnomon.broker.groups.member import MEMBER_BYTES, Member
from gnomon.broker.groups.rebalance import (
    assign,
    drop,
    end_joining_if_all_joined,
    generation_response,
    note_synced,
    rebalance,
    refuse_join,
    refuse_sync,
    sync_response,
)
from gnomon.broker.groups.turn import Turn
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)

FIRST_VERSION_WITH_GIVEN_IDS = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
MEMBER_NAME_CHARACTERS_MAX = 1000
"""A member id begins with this much of its client's name: an id must fit into the 32,767 bytes of a Kafka text."""
MEMBERS_BYTES_MAX = 8 << 20
"""Bound on the metadata of all members of a group; Kafka's bound is that of a batch, 1 MiB by default."""
PROTOCOLS_MAX = 50
"""Bound on the protocols of one member; those of all members are compared with each other."""
ASSIGNMENTS_BYTES_MAX = 8 << 20
"""Bound on the assignments of a leader, for the same reason."""
NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member's parked JoinGroup keeps it in the group this long, as in Kafka: no client knows its id yet."""


def join(group: Group, call: GroupCall, turn: Turn) -> None:
    """Adds a member to the group, or has a known one join again; answers now or when the joining phase ends."""
    request: JoinGroupRequest = call.request
    if not _has_room(group, request.member_id, turn.settings.members_max) or not _fits(group, call):
        _turn_away(group, request.member_id, turn)
        turn.reply(call, join_refusal(call, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif not turn.memory.room(_growth(group, call)):
        _turn_away(group, request.member_id, turn)
        turn.reply(call, join_refusal(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    elif len(request.protocols) > PROTOCOLS_MAX or not group.supports(request.protocol_type, request.protocols):
        turn.reply(call, join_refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not request.member_id:
        _join_new(group, call, turn)
    elif request.member_id in group.pending and request.group_instance_id is None:
        _add(group, call, request.member_id, turn)
    else:
        _join_again(group, call, turn)


def _has_room(group: Group, member_id: str, members_max: int) -> bool:
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Members that do not join again make room, so the first ones that join are in.
            known = group.members.get(member_id)
            return (known is not None and known.joining is not None) or group.joined_count() < members_max
        case _:
            return member_id in group.members or len(group.members) < members_max


def _said_bytes(request: JoinGroupRequest) -> int:
    return sum(len(item.name) + len(item.metadata) for item in request.protocols)


def _growth(group: Group, call: GroupCall) -> int:
    """About how many bytes the member of a JoinGroup takes in memory, more than it takes now."""
    request: JoinGroupRequest = call.request
    known = group.members.get(request.member_id)
    texts = len(call.client_id) + len(request.group_instance_id or "") + MEMBER_BYTES
    return _said_bytes(request) + texts - (0 if known is None else known.said_bytes)


def _fits(group: Group, call: GroupCall) -> bool:
    """Whether the group's record will fit into its log."""
    request: JoinGroupRequest = call.request
    said_bytes = _said_bytes(request)
    others = (member.said_bytes for member in group.members.values() if member.member_id != request.member_id)
    return said_bytes + sum(others) <= MEMBERS_BYTES_MAX


def _turn_away(group: Group, member_id: str, turn: Turn) -> None:
    if group.expect_no_more(member_id):
        end_joining_if_all_joined(group, turn)
    elif member_id in group.members:
        drop(group, group.members[member_id], turn)
        rebalance(group, turn)


def _join_new(group: Group, call: GroupCall, turn: Turn) -> None:
    request: JoinGroupRequest = call.request
    instance_id = request.group_instance_id
    whose = call.client_id if instance_id is None else instance_id
    member_id = f"{whose[:MEMBER_NAME_CHARACTERS_MAX]}-{turn.new_id()}"
    if instance_id is not None and instance_id in group.static:
        _come_back(group, call, group.members[group.static[instance_id]], member_id, turn)
    elif instance_id is None and call.version >= FIRST_VERSION_WITH_GIVEN_IDS:
        deadline = turn.after_ms(request.session_timeout_ms)
        group.expect(member_id, deadline)
        turn.reply(call, join_refusal(call, ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, call, member_id, turn)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # JoinGroup v0 has no rebalance timeout: the session timeout serves for both. It does for 0 too, or the member would
    # be dropped before it could sync; kafkajs sends that where its caller gives none.
    given_ms = request.rebalance_timeout_ms
    return given_ms if given_ms > 0 else request.session_timeout_ms


def _add(group: Group, call: GroupCall, member_id: str, turn: Turn) -> None:
    request: JoinGroupRequest = call.request
    if not group.members:
        group.protocol_type = request.protocol_type
    member = Member(
        member_id,
        request.group_instance_id,
        call.client_id,
        call.client_host,
        request.session_timeout_ms,
        _rebalance_timeout_ms(request),
        [(item.name, item.metadata) for item in request.protocols],
        joining=call,
        new=True,
        deadline=turn.after_ms(NEW_MEMBER_TIMEOUT_MS),
    )
    group.add(member)
    group.grew = True
    rebalance(group, turn)


def _update(group: Group, call: GroupCall, member: Member, turn: Turn) -> None:
    """Updates a member from its JoinGroup, which is parked; the caller starts the rebalance."""
    request: JoinGroupRequest = call.request
    refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    group.speaks_now(member, [(item.name, item.metadata) for item in request.protocols])
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    member.joining = call
    if not member.new:
        member.deadline = math.inf


def _join_again(group: Group, call: GroupCall, turn: Turn) -> None:
    request: JoinGroupRequest = call.request
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        turn.reply(call, join_refusal(call, error))
        return
    member = group.members[request.member_id]
    leads = group.leader == member.member_id
    unchanged = member.says_the_same(request.protocols)
    # In CompletingRebalance the response was lost; in Stable a leader that joins wants a rebalance.
    if unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not leads)
    ):
        turn.reply(call, generation_response(group, member.member_id, with_members=leads))
        return
    refuse_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    _update(group, call, member, turn)
    rebalance(group, turn)


def _come_back(group: Group, call: GroupCall, old: Member, member_id: str, turn: Turn) -> None:
    """A static member has restarted and joins under a new id."""
    previous_leader = group.leader
    refuse_join(old, ErrorCode.FENCED_INSTANCE_ID, turn)
    refuse_sync(group, old, ErrorCode.FENCED_INSTANCE_ID, turn)
    member = group.replace_static(old, member_id)
    member.client_id, member.client_host = call.client_id, call.client_host
    _update(group, call, member, turn)
    if group.state is not GroupState.STABLE or group.chosen_protocol() != group.protocol:
        rebalance(group, turn)
        return
    member.joining = None
    group.restart_session(member, turn)
    leads = group.leader == member_id
    if call.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
        response = generation_response(group, member_id, with_members=leads)
        response.skip_assignment = leads
    else:
        response = generation_response(group, member_id, with_members=False)
        response.leader = previous_leader or ""
    turn.append([group.record()], [Reply(call, response)])


def sync(group: Group, call: GroupCall, turn: Turn) -> None:
    """Answers with the member's assignment, now or once the leader's assignment is durable."""
    request: SyncGroupRequest = call.request
    error = _check_sync(group, request, turn)
    if error:
        turn.refuse(call, error)
        return
    member = group.members[request.member_id]
    note_synced(group, member)
    if group.state is GroupState.STABLE:
        group.restart_session(member, turn)
        turn.reply(call, sync_response(group, member))
        return
    refuse_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    member.syncing = call
    member.deadline = math.inf
    if group.leader == member.member_id and group.assigning is None:
        assign(group, {item.member_id: item.assignment for item in request.assignments}, turn)


def _check_sync(group: Group, request: SyncGroupRequest, turn: Turn) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    assigned_bytes = sum(MEMBER_BYTES + len(item.assignment) for item in request.assignments)
    if assigned_bytes > ASSIGNMENTS_BYTES_MAX:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    room = turn.memory.room(assigned_bytes - sum(len(member.assignment) for member in group.members.values()))
    return ErrorCode.NONE if room else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def heartbeat(group: Group, call: GroupCall, turn: Turn) -> None:
    """Keeps a member's session alive and notifies it of a rebalance."""
    request: HeartbeatRequest = call.request
    error = group.check_member(request.member_id, request.group_instance_id)
    if not error and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error:
        turn.refuse(call, error)
        return
    group.restart_session(group.members[request.member_id], turn)
    rebalancing = group.state is GroupState.PREPARING_REBALANCE
    turn.reply(call, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE))


def leave(group: Group, call: GroupCall, turn: Turn) -> None:
    """Removes members: by their ids, or static ones by their instance ids alone."""
    request: LeaveGroupRequest = call.request
    single = call.version < 3
    identities = [MemberIdentity(member_id=request.member_id)] if single else request.members
    members_before = len(group.members)
    results = [_leave_one(group, identity, turn) for identity in identities]
    if len(group.members) < members_before:
        rebalance(group, turn)
    else:
        end_joining_if_all_joined(group, turn)
    if single:
        turn.reply(call, LeaveGroupResponse(error_code=results[0].error_code))
    else:
        turn.reply(call, LeaveGroupResponse(members=results))


def _leave_one(group: Group, identity: MemberIdentity, turn: Turn) -> MemberResponse:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static.get(instance_id, "")
    if group.expect_no_more(member_id):
        error = ErrorCode.NONE
    else:
        error = group.check_member(member_id, instance_id)
        if not error:
            drop(group, group.members[member_id], turn)
    return MemberResponse(member_id=identity.member_id, group_instance_id=instance_id, error_code=error)
