"""Snapshots of a shard that are made while its groups change (5 of `state_machine`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.groups import group_shard
from gnomon.broker.groups.group_shard import GroupShard
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.groups.records import decode_record
from gnomon.broker.groups.settings import GroupSettings
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest

GROUPS = ["g", "h", "i"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS)),
        st.tuples(st.just("durable"), st.integers(1, 3)),
        st.just(("part",)),
    ),
    max_size=40,
)


def take(bench: Any, step: Any, offset: int) -> None:
    match step:
        case "commit", group, partition:
            bench.commit(group, offset, partition=partition)
        case "delete", group:
            bench.call("tool", "deletes", DeleteGroupsRequest(groups_names=[group]), 2)
        case "durable", count:
            bench.durable(count)


def live(shard: GroupShard) -> Any:
    return sorted({record.encoded() for part in shard.snapshot(list) for record in part})


@given(before=STEPS, during=STEPS)
def test_a_snapshot_and_the_records_appended_since_its_first_part_replace_the_log(
    new_bench: Any, before: Any, during: Any
) -> None:
    """5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_shard, "SNAPSHOT_PART_RECORDS", 2)
        bench = new_bench()
        bench.held = True
        for number, step in enumerate(before):
            take(bench, step, number)
        # The log in the order of its appends: what is pending now lies before the snapshot.
        after: list[Any] = []
        parts = bench.shard.snapshot(lambda: [record for append in bench.under_way for record in append.records])
        for number, step in enumerate([("part",), *during, *[("part",)] * 50]):
            if step == ("part",):
                after += [record.encoded() for record in next(parts, [])]
                continue
            waiting = len(bench.under_way)
            take(bench, step, 100 + number)
            if step[0] != "durable":
                after += [record.encoded() for append in list(bench.under_way)[waiting:] for record in append.records]
        bench.durable(len(bench.under_way))
        replayed = GroupShard(GroupSettings, MembersMemory(), bench.new_id)
        for key, value in after:
            replayed.replay(decode_record(key, value))
        assert live(replayed) == live(bench.shard)
