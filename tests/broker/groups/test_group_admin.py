from __future__ import annotations

from typing import Any

import pytest

from gnomon.broker.groups import group_shard
from gnomon.broker.groups.call import GroupPage, GroupPageRequest
from gnomon.broker.groups.group_admin import states_asked_for
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest


def describe(bench, version=6, **more):
    (described,) = bench.call("tool", "describes", DescribeGroupsRequest(groups=["g"], **more), version).response.groups
    return described


def listed(bench, **filters):
    groups = [group for page in pages(bench, **filters) for group in page.groups]
    return [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in groups]


def pages(bench, **filters):
    states, page = states_asked_for(ListGroupsRequest(**filters)), GroupPage(group_ids=None)
    while page.group_ids is None or page.position < len(page.group_ids):
        request = GroupPageRequest(states=states, group_ids=page.group_ids, position=page.position)
        page = bench.call("tool", "lists", request, 0).response
        yield page


def test_a_stable_group_is_described_with_subscriptions_and_assignments(bench, stable):
    a, _ = stable("a", bench.client("b", instance="two"))
    described = describe(bench)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.client_id, m.client_host, m.group_instance_id, m.member_assignment) for m in described.members] == [
        ("a", "/127.0.0.1", None, b"a's share"),
        ("b", "/127.0.0.1", "two", b"b's share"),
    ]
    assert described.members[0].member_metadata == a.metadata()


def test_a_group_in_a_rebalance_is_described_without_subscriptions_and_assignments(bench, stable):
    a, _ = stable("a", "b")
    a.join()
    described = describe(bench)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(m.member_metadata, m.member_assignment) for m in described.members] == [(b"", b"")] * 2


def test_an_unknown_group_is_dead_and_from_version_6_an_error(bench):
    assert (describe(bench, 5).group_state, describe(bench, 5).error_code) == ("Dead", ErrorCode.NONE)
    described = describe(bench, 6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "Group g not found" in described.error_message  # as Kafka says it, and as its tools show it


def test_a_group_with_offsets_only_is_empty(bench):
    bench.commit("g", 1)
    assert describe(bench).group_state == "Empty"
    assert listed(bench) == [("g", "", "Empty", "classic")]


def test_authorized_operations_are_described_on_request(bench, stable):
    stable("a")
    assert describe(bench, include_authorized_operations=True).authorized_operations == 0b1_0100_1000
    assert describe(bench).authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["g", "h"]),
        ({"states_filter": ["stable"]}, ["g"]),
        ({"states_filter": ["Empty", "Stable"]}, ["g", "h"]),
        ({"states_filter": ["Dead"]}, []),
        ({"types_filter": ["Classic"]}, ["g", "h"]),
        ({"types_filter": ["consumer"]}, []),
    ],
)
def test_groups_are_listed_by_state_and_type(bench, stable, filters, names):
    stable("a")
    bench.commit("h", 1)
    assert [row[0] for row in listed(bench, **filters)] == names


class Word(str):
    """Counts how often it is looked at in another case."""

    lowered = 0

    def lower(self) -> Any:
        Word.lowered += 1
        return super().lower()


def test_the_words_of_a_filter_are_read_once_for_all_groups_and_long_ones_never(bench):
    for number in range(30):
        bench.commit(f"g{number}", 1)
    words = [Word(f"{number:04x}") for number in range(50)] + [Word("Empty" * 1000), Word("EMPTY")]
    assert len(listed(bench, states_filter=words)) == 30
    assert Word.lowered == 51


def test_a_turn_lists_a_bounded_number_of_groups(bench, monkeypatch):
    monkeypatch.setattr(group_shard, "GROUPS_LISTED_MAX", 4)
    for number in range(10):
        bench.commit(f"g{number}", 1)
    found = [[group.group_id for group in page.groups] for page in pages(bench)]
    assert found == [["g0", "g1", "g2", "g3"], ["g4", "g5", "g6", "g7"], ["g8", "g9"]]
    assert [len(page.groups) for page in pages(bench, states_filter=["stable"])] == [0, 0, 0]


def test_a_group_that_ends_between_two_pages_is_not_listed(bench, monkeypatch):
    monkeypatch.setattr(group_shard, "GROUPS_LISTED_MAX", 1)
    for group in "gh":
        bench.commit(group, 1)
    listing = pages(bench)
    assert [group.group_id for group in next(listing).groups] == ["g"]
    bench.call("tool", "deletes", DeleteGroupsRequest(groups_names=["h"]), 2)
    assert [group for page in listing for group in page.groups] == []


def test_a_group_that_only_assigned_a_member_id_is_forgotten(bench):
    bench.client("a").join()
    assert listed(bench) == [("g", "", "Empty", "classic")]
    bench.advance(11)
    assert listed(bench) == []
