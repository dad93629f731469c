"""The way of a group from one generation to the next, and the effects of the group's deadlines.

1. PreparingRebalance ends when every member has joined and no handed-out member id is outstanding, at the latest after
   the longest rebalance timeout of the members. After Empty it always lasts for the initial rebalance delay, which is
   extended while new members join, up to that timeout.
2. At the end of PreparingRebalance dynamic members that did not join are dropped; static members stay until their
   session ends. If all members that are left are static and none has joined, PreparingRebalance continues.
3. Every parked call is answered by the end of its phase, or when its member is removed.
4. A generation has one assignment: the first that its leader sent. It takes effect once its record is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gnomon.broker.groups.call import join_refusal
from gnomon.broker.groups.group import Group, GroupState
from gnomon.broker.groups.member import Member
from gnomon.broker.groups.turn import Turn
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import JoinGroupResponse, SyncGroupResponse


def rebalance(group: Group, turn: Turn) -> None:
    """Starts a joining phase; ends one that has begun if all members have joined."""
    if group.state is GroupState.PREPARING_REBALANCE:
        end_joining_if_all_joined(group, turn)
        return
    initial = group.state is GroupState.EMPTY
    for member in group.members.values():
        refuse_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    group.unsynced.clear()
    group.sync_deadline = math.inf
    group.assigning = None
    group.enter(GroupState.PREPARING_REBALANCE, turn.wall_ms)
    delay_ms = turn.settings.initial_rebalance_delay_ms
    if initial and delay_ms > 0:
        group.gathering, group.grew = True, False
        group.gather_left_ms = max(0, group.rebalance_timeout_ms() - delay_ms)
        group.set_join_deadline(turn.after_ms(delay_ms))
    elif initial or group.all_joined():
        end_joining(group, turn)
    else:
        group.set_join_deadline(turn.after_ms(group.rebalance_timeout_ms()))


def end_joining_if_all_joined(group: Group, turn: Turn) -> None:
    """Ends the joining phase early, unless the group is still gathering for its first generation."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.gathering and group.all_joined():
        end_joining(group, turn)


def end_joining(group: Group, turn: Turn) -> None:
    """Begins the next generation with the members that joined."""
    group.join_deadline = math.inf
    group.gathering = False
    for member in [m for m in group.members.values() if m.joining is None and m.instance_id is None]:
        group.remove(member)
    if group.members and not group.elect_joined_leader():
        # Static members only, and none joined: the phase goes on until one joins or all sessions end.
        session_end = min(member.deadline for member in group.members.values())
        group.set_join_deadline(max(session_end, turn.after_ms(group.rebalance_timeout_ms())))
        return
    group.generation += 1
    if not group.members:
        group.protocol = None
        group.enter(GroupState.EMPTY, turn.wall_ms)
        turn.append([group.record()])
        return
    group.protocol = group.chosen_protocol()
    group.enter(GroupState.COMPLETING_REBALANCE, turn.wall_ms)
    group.unsynced = dict.fromkeys(group.members)
    group.set_sync_deadline(turn.after_ms(group.rebalance_timeout_ms()))
    for member in group.members.values():
        answer_join(group, member, turn)
        member.new = False
        group.restart_session(member, turn)


def generation_response(group: Group, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    """The current generation as the answer to a member's JoinGroup; the leader's has the members."""
    members = [member.listed(group.protocol) for member in group.members.values()] if with_members else []
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def answer_join(group: Group, member: Member, turn: Turn) -> None:
    """Answers a member's parked JoinGroup with the generation that begins."""
    call, member.joining = member.joining, None
    if call is not None:
        leads = group.leader == member.member_id
        turn.reply(call, generation_response(group, member.member_id, with_members=leads))


def refuse_join(member: Member, error: ErrorCode, turn: Turn) -> None:
    """Answers a member's parked JoinGroup, if there is one, with an error."""
    call, member.joining = member.joining, None
    if call is not None:
        turn.reply(call, join_refusal(call, error, member.member_id))


def refuse_sync(group: Group, member: Member, error: ErrorCode, turn: Turn) -> None:
    """Answers a member's parked SyncGroup, if there is one, with an error."""
    call, member.syncing = member.syncing, None
    if call is not None:
        turn.refuse(call, error)
        group.restart_session(member, turn)


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    """The member's assignment as the answer to SyncGroup."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def note_synced(group: Group, member: Member) -> None:
    """The member has sent SyncGroup in this generation."""
    group.unsynced.pop(member.member_id, None)
    if not group.unsynced:
        group.sync_deadline = math.inf


def assign(group: Group, assignments: Mapping[str, bytes], turn: Turn) -> None:
    """Appends the leader's assignment; members that it left out get nothing."""
    group.assigning = group.record(assignments)
    turn.append([group.assigning])


def become_stable(group: Group, turn: Turn) -> None:
    """The record of the assignment was replayed: every member gets its part of it."""
    assert group.assigning is not None
    assert group.assigning.value is not None
    assignments = {stored.member_id: stored.assignment for stored in group.assigning.value.members}
    group.assigning = None
    group.enter(GroupState.STABLE, turn.wall_ms)
    for member in group.members.values():
        group.assigned(member, assignments[member.member_id])
        call, member.syncing = member.syncing, None
        if call is not None:
            turn.reply(call, sync_response(group, member))
            group.restart_session(member, turn)


def drop(group: Group, member: Member, turn: Turn) -> None:
    """Removes a member; its parked calls get UNKNOWN_MEMBER_ID. The caller rebalances after the last removal."""
    refuse_join(member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
    refuse_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
    group.remove(member)


def tick(group: Group, turn: Turn) -> None:
    """Handles every deadline that is due at `turn.now`."""
    now = turn.now
    expired_ids = [member_id for member_id, deadline in group.pending.items() if deadline <= now]
    for member_id in expired_ids:
        group.expect_no_more(member_id)
    expired = [member for member in group.members.values() if member.deadline <= now]
    if group.sync_deadline <= now:
        group.sync_deadline = math.inf
        expired += [group.members[name] for name in group.unsynced if group.members[name].deadline > now]
    for member in expired:
        drop(group, member, turn)
    if expired:
        rebalance(group, turn)
    elif expired_ids:
        end_joining_if_all_joined(group, turn)
    if group.join_deadline <= now:
        _joining_is_due(group, turn)
    group.settle_wake()


def _joining_is_due(group: Group, turn: Turn) -> None:
    if group.gathering and group.grew and group.gather_left_ms > 0:
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, group.gather_left_ms)
        group.gather_left_ms -= delay_ms
        group.grew = False
        group.set_join_deadline(turn.after_ms(delay_ms))
        return
    end_joining(group, turn)
