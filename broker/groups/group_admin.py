"""A group as DescribeGroups and ListGroups show it."""

from __future__ import annotations

from collections.abc import Sequence

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


def states_asked_for(request: ListGroupsRequest) -> list[str]:
    """The states whose groups pass the filters of a request, which are in any case."""
    if not _words(request.types_filter, [CLASSIC]):
        return []
    return _words(request.states_filter, [state.value for state in GroupState])


def _words(filter: Sequence[str], known: Sequence[str]) -> list[str]:
    """The known words that a filter names, all for an empty one.

    A filter may have thousands of words, and long ones: it is read once for all groups, and only where it can match.
    """
    if not filter:
        return list(known)
    longest = max(map(len, known))
    named = {word.lower() for word in filter if len(word) <= longest}
    return [word for word in known if word.lower() in named]


def listed(group_id: str, group: Group | None) -> ListedGroup:
    """A group's line in ListGroups; `group` is None if the group has only offsets."""
    return ListedGroup(
        group_id=group_id,
        protocol_type="" if group is None else group.protocol_type,
        group_state=GroupState.EMPTY.value if group is None else group.state.value,
        group_type=CLASSIC,
    )
