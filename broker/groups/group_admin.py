"""A group as DescribeGroups and ListGroups show it."""

from __future__ import annotations

from gnomon.broker.groups.group import Group, GroupState
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import (
    UNKNOWN_GROUP_ERROR_SINCE,
    DescribedGroup,
    ListedGroup,
    ListGroupsRequest,
)

CLASSIC = "classic"
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""Read, delete and describe, by Kafka's numbers: without access control every client may do them."""
NOT_ASKED = -(2**31)


def describe(group_id: str, group: Group | None, known: bool, version: int, operations_asked: bool) -> DescribedGroup:
    """Describes a group; `group` is None if no member ever joined it, and `known` is whether it has offsets then."""
    operations = ALL_OPERATIONS if operations_asked else NOT_ASKED
    if group is not None:
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=(group.protocol or "") if stable else "",
            members=[member.described(group.protocol, stable) for member in group.members.values()],
            authorized_operations=operations,
        )
    if known:
        return DescribedGroup(group_id=group_id, group_state=GroupState.EMPTY.value, authorized_operations=operations)
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value, authorized_operations=operations)
    if version >= UNKNOWN_GROUP_ERROR_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found: it does not exist, check its name"
    return described


def listed(group_id: str, group: Group | None, request: ListGroupsRequest) -> ListedGroup | None:
    """A group's line in ListGroups, or None if a filter (in any case) leaves it out."""
    state = GroupState.EMPTY if group is None else group.state
    if not _passes(state.value, request.states_filter) or not _passes(CLASSIC, request.types_filter):
        return None
    return ListedGroup(
        group_id=group_id,
        protocol_type="" if group is None else group.protocol_type,
        group_state=state.value,
        group_type=CLASSIC,
    )


def _passes(name: str, allowed: list[str]) -> bool:
    return not allowed or name.lower() in [item.lower() for item in allowed]
