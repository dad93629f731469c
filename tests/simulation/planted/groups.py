"""Bugs in members, generations and the expiry of offsets; the sweeps over groups look for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from group_scenario import GROUPS_OF_A_CLUSTER, GROUPS_OF_ONE_BROKER

from gnomon.broker.groups import offsets
from gnomon.broker.groups.group import Group, GroupState
from gnomon.broker.groups.offsets import GroupOffsets
from gnomon.broker.groups.records import OffsetRecord

from planted.planted_bug import ScenarioBugs

GROUP_BUGS = ScenarioBugs(GROUPS_OF_ONE_BROKER)
planted = GROUP_BUGS.planted


# --- expiry ---


@planted("an offset expires although a commit to its place is under way", breaks="broker.groups.offsets, expired")
def expires_under_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupOffsets, "busy", lambda stored, topic, partition: False)


def _expiry_of(patch: pytest.MonkeyPatch, seen: Callable[[Group | None], Group | None]) -> None:
    expired = offsets.expired

    def otherwise(
        group_id: str, group: Group | None, offsets: GroupOffsets, places: Iterable[tuple[str, int]], turn: Any
    ) -> Iterator[OffsetRecord]:
        return expired(group_id, seen(group), offsets, places, turn)

    patch.setattr(offsets, "expired", otherwise)


@planted(
    "the retention time begins at the commit although the group had members",
    quick=True,
    breaks="broker.groups.offsets 3",
)
def retention_from_the_commit(patch: pytest.MonkeyPatch) -> None:
    _expiry_of(patch, lambda group: None if group is not None and group.state is GroupState.EMPTY else group)


@planted("offsets of a topic that members read expire", breaks="broker.groups.offsets 3")
def read_topics_expire(patch: pytest.MonkeyPatch) -> None:
    _expiry_of(patch, lambda group: None if group is not None and group.state is GroupState.STABLE else group)


@planted("offsets of an unread topic are kept as long as the group has members", breaks="broker.groups.offsets 3")
def unread_topics_kept(patch: pytest.MonkeyPatch) -> None:
    expired = offsets.expired

    def of_empty_groups(
        group_id: str, group: Any, offsets: GroupOffsets, places: Iterable[tuple[str, int]], turn: Any
    ) -> Iterator[OffsetRecord]:
        return iter(()) if group is not None and group.members else expired(group_id, group, offsets, places, turn)

    patch.setattr(offsets, "expired", of_empty_groups)


@planted("an expired offset comes back with a reload", breaks="broker.groups.group_shard 1")
def expiry_not_recorded(patch: pytest.MonkeyPatch) -> None:
    expired = offsets.expired

    def unrecorded(
        group_id: str, group: Any, offsets: GroupOffsets, places: Iterable[tuple[str, int]], turn: Any
    ) -> Iterator[OffsetRecord]:
        for record in list(expired(group_id, group, offsets, places, turn)):
            offsets.apply(record)
        return iter(())

    patch.setattr(offsets, "expired", unrecorded)


# --- members ---


@planted("a static member that comes back has no assignment", quick=True, breaks="broker.groups.membership 2")
def assignment_lost(patch: pytest.MonkeyPatch) -> None:
    replace_static = Group.replace_static

    def without(group: Group, old: Any, member_id: str) -> Any:
        group.assigned(old, b"")
        return replace_static(group, old, member_id)

    patch.setattr(Group, "replace_static", without)


@planted("a static member that comes back starts a rebalance", quick=True, breaks="broker.groups.membership 2")
def return_rebalances(patch: pytest.MonkeyPatch) -> None:
    replace_static = Group.replace_static

    def disturbing(group: Group, old: Any, member_id: str) -> Any:
        group.protocol = None
        return replace_static(group, old, member_id)

    patch.setattr(Group, "replace_static", disturbing)


@planted("a commit under the old id of a static member succeeds", quick=True, breaks="broker.groups.group 4")
def old_id_commits(patch: pytest.MonkeyPatch) -> None:
    commit = offsets.commit

    def unfenced(group: Group | None, call: Any, turn: Any) -> None:
        request = call.request
        if group is not None and request.group_instance_id in group.static:
            request.member_id = group.static[request.group_instance_id]
        commit(group, call, turn)

    patch.setattr(offsets, "commit", unfenced)


@planted("generations begin again after a reload", breaks="broker.groups.group 2", scenario=GROUPS_OF_A_CLUSTER)
def generation_forgotten(patch: pytest.MonkeyPatch) -> None:
    from_record = Group.from_record.__func__

    def young(cls: Any, group_id: str, value: Any, turn: Any) -> Any:
        group = from_record(cls, group_id, value, turn)
        group.generation = 1
        return group

    patch.setattr(Group, "from_record", classmethod(young))
