"""The assignment by the leader of a storm's group: each member's partitions, and the name of the whole plan.

`reader-1/7 0,2` gives a member partitions 0 and 2 by the seventh plan of reader-1. By the name a judge sees whether
all members of a generation have the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.wire.kafka.messages.group import SyncGroupRequestAssignment


def assignments_of(plan: str, members: Sequence[str], partitions: int) -> list[SyncGroupRequestAssignment]:
    """Deals the partitions out to the members in turn.

    Args:
        members: their member ids.
        partitions: the number of partitions.
    """
    return [
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=f"{plan} {','.join(map(str, range(index, partitions, len(members))))}".encode(),
        )
        for index, member in enumerate(members)
    ]


def plan_and_partitions(assignment: bytes) -> tuple[str, tuple[int, ...]]:
    """The name of the plan, and the partitions of the member that got the assignment."""
    plan, _, listed = assignment.decode().partition(" ")
    return plan, tuple(map(int, filter(None, listed.split(","))))
