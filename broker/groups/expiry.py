"""A search for expired offsets in all groups of a shard, one part in each turn. Pure.

1. A part examines some OFFSETS_MAX offsets, and a group counts as GROUP_WEIGHT of them.
2. Groups and offsets may change between two parts: each offset is judged as it is in its part's turn.
3. A vacant group is over once all its offsets have expired, if they fit in one run, and otherwise with the next search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from gnomon.broker.groups import offsets
from gnomon.broker.groups.group import Group
from gnomon.broker.groups.offsets import NO_OFFSETS, GroupOffsets
from gnomon.broker.groups.parts import GROUP_WEIGHT, OFFSETS_MAX
from gnomon.broker.groups.records import OffsetRecord
from gnomon.broker.groups.turn import Turn


class ExpiryPart(NamedTuple):
    """The findings of one part."""

    tombstones: list[OffsetRecord]
    groups_over: list[str]
    last: bool


class ExpirySearch:
    """One search.

    Args:
        groups, stored: the groups and offsets of the shard, by group id; they may change between two parts.
    """

    def __init__(self, groups: Mapping[str, Group], stored: Mapping[str, GroupOffsets]) -> None:
        self._groups = groups
        self._stored = stored
        self._runs = self._runs_of_offsets()

    def part(self, turn: Turn) -> ExpiryPart:
        """Examines the next part."""
        tombstones: list[OffsetRecord] = []
        groups_over: list[str] = []
        room = OFFSETS_MAX
        for group_id, places, last in self._runs:
            group, stored = self._groups.get(group_id), self._stored.get(group_id, NO_OFFSETS)
            found = list(offsets.expired(group_id, group, stored, places, turn))
            tombstones += found
            if last and group is not None and group.vacant() and stored.consists_of(len(found)):
                groups_over.append(group_id)
            room -= GROUP_WEIGHT + len(places)
            if room <= 0:
                return ExpiryPart(tombstones, groups_over, last=False)
        return ExpiryPart(tombstones, groups_over, last=True)

    def _runs_of_offsets(self) -> Iterator[tuple[str, list[tuple[str, int]], bool]]:
        """The places of every group in runs of at most OFFSETS_MAX, with whether a run is the group's last one."""
        without_group = (group_id for group_id in list(self._stored) if group_id not in self._groups)
        for group_id in chain(list(self._groups), without_group):
            places = self._stored.get(group_id, NO_OFFSETS).durable_places()
            run = list(islice(places, OFFSETS_MAX))
            while following := list(islice(places, OFFSETS_MAX)):
                yield group_id, run, False
                run = following
            yield group_id, run, True
