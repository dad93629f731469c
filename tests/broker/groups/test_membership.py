"""Consumers in transcripts: flush left is what they ask, indented what they hear."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gnomon.broker.groups import membership
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import LeaveGroupRequest, MemberIdentity


def said(bench, expected):
    lines, bench.transcript = bench.transcript, []
    assert "\n".join(lines) == dedent(expected).strip()
    return True


def test_a_group_of_two_grows_and_shrinks(bench):
    a, b = bench.client("a"), bench.client("b")
    a.enter()
    a.learn().sync({"a": "0-5"})
    assert said(
        bench,
        """
        a joins
          a joins → MEMBER_ID_REQUIRED
        a joins
          a joins → generation 1 range leader a [a]
        a syncs
          a syncs → 0-5
        """,
    )
    b.enter()
    a.heartbeat()
    a.join()
    b.learn().sync()
    a.learn().sync({"a": "0-2", "b": "3-5"})
    assert said(
        bench,
        """
        b joins
          b joins → MEMBER_ID_REQUIRED
        b joins
        a heartbeats
          a heartbeats → REBALANCE_IN_PROGRESS
        a joins
          a joins → generation 2 range leader a [a,b]
          b joins → generation 2 range leader a []
        b syncs
        a syncs
          a syncs → 0-2
          b syncs → 3-5
        """,
    )
    b.leave()
    a.heartbeat()
    a.join()
    a.learn().sync({"a": "0-5"})
    a.heartbeat()
    assert said(
        bench,
        """
        b leaves
          b leaves → ok
        a heartbeats
          a heartbeats → REBALANCE_IN_PROGRESS
        a joins
          a joins → generation 3 range leader a [a]
        a syncs
          a syncs → 0-5
        a heartbeats
          a heartbeats → ok
        """,
    )


def test_a_static_member_restarts_without_a_rebalance_and_its_old_self_is_fenced(bench, stable):
    a, b = stable(bench.client("a", instance="one"), bench.client("b", instance="two"))
    again = b.restarted("b2")
    again.join()
    again.learn().sync()
    b.heartbeat()
    b.commit(5)
    b.sync()
    b.join()
    a.heartbeat()
    assert said(
        bench,
        """
        b2 joins
          b2 joins → generation 2 range leader a []
        b2 syncs
          b2 syncs → b's share
        b heartbeats
          b heartbeats → FENCED_INSTANCE_ID
        b commits 5
          b commits 5 → FENCED_INSTANCE_ID
        b syncs
          b syncs → FENCED_INSTANCE_ID
        b joins
          b joins → FENCED_INSTANCE_ID
        a heartbeats
          a heartbeats → ok
        """,
    )


def test_a_static_leader_that_restarts_skips_the_assignment_and_an_old_client_is_told_it_does_not_lead(bench, stable):
    a, _ = stable(bench.client("a", instance="one"), bench.client("b", instance="two"))
    again = a.restarted("a2")
    again.join()
    again.learn().sync()
    old = again.restarted("a3")
    old.version = 8
    answer = old.join()
    old.learn().sync()
    assert said(
        bench,
        """
        a2 joins
          a2 joins → generation 2 range leader a2 [a2,b] skip
        a2 syncs
          a2 syncs → a's share
        a3 joins
          a3 joins → generation 2 range leader a2 []
        a3 syncs
          a3 syncs → a's share
        """,
    )
    assert answer.response.leader == again.member_id != old.member_id


def test_a_static_member_that_restarts_with_another_protocol_starts_a_rebalance(bench, stable):
    (a,) = stable(bench.client("a", instance="one", protocols=["range", "sticky"]))
    again = a.restarted("a2")
    again.protocols = ["sticky", "range"]
    again.join()
    assert bench.transcript[-1] == "  a2 joins → generation 2 sticky leader a2 [a2]"


def test_a_static_member_that_restarts_while_its_join_is_parked_fences_the_parked_call(bench, stable):
    stable("a")
    b = bench.client("b", instance="two")
    parked = b.join()
    again = b.restarted("b2")
    waiting = again.join()
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID
    assert waiting.response is None


def test_the_answer_to_a_static_restart_waits_for_its_record(bench, stable):
    (a,) = stable(bench.client("a", instance="one"))
    bench.held = True
    again = a.restarted("a2")
    answer = again.join()
    assert answer.response is None
    bench.durable()
    assert answer.error is ErrorCode.NONE
    bench.crash()
    again.learn()
    assert again.heartbeat().error is ErrorCode.NONE
    assert a.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


def test_when_the_leader_dies_its_followers_go_on(bench, stable):
    _, b = stable("a", "b")
    bench.advance(9)
    b.heartbeat()
    bench.advance(2)
    b.heartbeat()
    b.join()
    b.learn().sync({"b": "all"})
    assert said(
        bench,
        """
        9 s go by
        b heartbeats
          b heartbeats → ok
        2 s go by
        b heartbeats
          b heartbeats → REBALANCE_IN_PROGRESS
        b joins
          b joins → generation 3 range leader b [b]
        b syncs
          b syncs → all
        """,
    )


def test_when_the_leader_dies_before_it_assigns_those_who_wait_for_it_join_again(bench, stable):
    a, b = stable("a", "b")
    a.join()
    b.join()
    b.learn().sync()
    bench.advance(11)
    b.join()
    assert said(
        bench,
        """
        a joins
        b joins
          a joins → generation 3 range leader a [a,b]
          b joins → generation 3 range leader a []
        b syncs
        11 s go by
          b syncs → REBALANCE_IN_PROGRESS
        b joins
          b joins → generation 4 range leader b [b]
        """,
    )


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout_though_they_heartbeat(bench, stable):
    a, b = stable("a", "b")
    b.join()
    a.join()
    a.learn().sync({"a": "all"})
    b.learn()
    for _ in range(6):
        bench.advance(5)
        a.heartbeat()
        b.heartbeat()
    assert list(bench.state().members) == [a.member_id]


def test_a_rebalance_timeout_of_zero_leaves_a_member_its_session_timeout_to_sync(bench):
    a = bench.client("a", rebalance_ms=0, session_ms=10_000)
    a.enter()
    a.learn()
    bench.advance(9)
    assert a.sync({"a": "all"}).error is ErrorCode.NONE


def test_a_member_id_handed_out_holds_the_group_up_until_its_session_timeout_only(bench, stable):
    (a,) = stable("a")
    b = bench.client("b")
    b.join()
    bench.advance(3)
    a.join()
    bench.advance(7)
    b.learn().join()
    assert said(
        bench,
        """
        b joins
          b joins → MEMBER_ID_REQUIRED
        3 s go by
        a joins
        7 s go by
          a joins → generation 2 range leader a [a]
        b joins
          b joins → UNKNOWN_MEMBER_ID
        """,
    )


def test_cooperative_rebalancing_takes_two_generations_and_nobody_stops_in_between(bench, stable):
    a = bench.client("a", protocols=["cooperative-sticky"])
    b = bench.client("b", protocols=["cooperative-sticky"])
    stable(a)
    b.enter()
    a.commit(6)
    a.heartbeat()
    a.join()
    b.learn().sync()
    a.learn().sync({"a": "keeps 0-2", "b": ""})
    a.commit(7)
    a.join()
    b.heartbeat()
    b.join()
    a.learn().sync({"a": "0-2", "b": "3-5"})
    b.learn().sync()
    assert said(
        bench,
        """
        b joins
          b joins → MEMBER_ID_REQUIRED
        b joins
        a commits 6
          a commits 6 → ok
        a heartbeats
          a heartbeats → REBALANCE_IN_PROGRESS
        a joins
          a joins → generation 2 cooperative-sticky leader a [a,b]
          b joins → generation 2 cooperative-sticky leader a []
        b syncs
        a syncs
          a syncs → keeps 0-2
          b syncs → nothing
        a commits 7
          a commits 7 → ok
        a joins
        b heartbeats
          b heartbeats → REBALANCE_IN_PROGRESS
        b joins
          a joins → generation 3 cooperative-sticky leader a [a,b]
          b joins → generation 3 cooperative-sticky leader a []
        a syncs
          a syncs → 0-2
        b syncs
          b syncs → 3-5
        """,
    )


def test_the_first_generation_waits_for_others_and_longer_while_they_keep_coming(new_bench):
    bench = new_bench(initial_rebalance_delay_ms=3000)
    a, b, c = (bench.client(name, version=3) for name in "abc")
    a.join()
    bench.advance(2)
    b.join()
    bench.advance(3)
    c.join()
    bench.advance(3)
    assert [client.seen[0].response for client in (a, b, c)] == [None] * 3
    bench.advance(1)
    assert [client.learn().generation for client in (a, b, c)] == [1, 1, 1]


def test_the_wait_for_the_first_generation_ends_at_the_rebalance_timeout(new_bench):
    bench = new_bench(initial_rebalance_delay_ms=3000)
    first = bench.client("c0", version=3, rebalance_ms=10_000)
    first.join()
    for index in range(1, 10):
        bench.advance(1)
        bench.client(f"c{index}", version=3, rebalance_ms=10_000).join()
    assert first.seen[0].response is None
    bench.advance(1)
    assert first.learn().generation == 1
    assert len(bench.state().members) == 10


def test_a_follower_that_joins_unchanged_gets_its_generation_back_and_a_leader_gets_a_rebalance(bench, stable):
    a, b = stable("a", "b")
    b.join()
    assert bench.transcript[-1] == "  b joins → generation 2 range leader a []"
    a.join()
    a.heartbeat()
    assert bench.transcript[-1] == "  a heartbeats → REBALANCE_IN_PROGRESS"


def test_a_member_whose_join_answer_was_lost_gets_it_again(bench, stable):
    a, b = stable("a", "b")
    a.join()
    b.join()
    a.join()
    b.join()
    assert bench.transcript[-4:] == [
        "a joins",
        "  a joins → generation 3 range leader a [a,b]",
        "b joins",
        "  b joins → generation 3 range leader a []",
    ]


def test_the_protocol_with_most_votes_among_those_that_all_speak_is_chosen(bench):
    a = bench.client("a", version=3, protocols=["only-a", "range", "sticky"])
    b = bench.client("b", version=3, protocols=["sticky", "range"])
    c = bench.client("c", version=3, protocols=["sticky", "range"])
    a.join()
    b.join()
    a.learn().join()
    assert bench.state().protocol == "range"
    c.join()
    a.join()
    b.learn().join()
    assert bench.state().protocol == "sticky"


@pytest.mark.parametrize(
    "traits", [{"protocols": ["other"]}, {"protocol_type": "connect"}, {"protocols": []}], ids=["name", "type", "none"]
)
def test_a_member_that_shares_no_protocol_is_refused(bench, stable, traits):
    stable("a")
    assert bench.client("b", **traits).join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(bench, session_ms):
    assert bench.client("a", session_ms=session_ms).join().error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert bench.state() is None


def test_a_full_group_turns_further_members_away_and_keeps_those_it_has(new_bench):
    bench = new_bench(initial_rebalance_delay_ms=0, members_max=1)
    a = bench.client("a")
    a.enter()
    a.learn().sync({"a": "all"})
    assert bench.client("b").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    assert bench.transcript[-1] == "  a joins → generation 2 range leader a [a]"


def test_a_member_that_says_more_than_a_groups_record_can_hold_is_turned_away_alone(bench, stable, monkeypatch):
    monkeypatch.setattr(membership, "MEMBERS_BYTES_MAX", 1000)
    a, b = stable("a", "b")
    c = bench.client("c", topics=["x" * 1000])
    assert c.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [a.heartbeat().error, b.heartbeat().error] == [ErrorCode.NONE] * 2
    b.topics = ["x" * 1000]
    assert b.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    a.learn()
    assert a.sync({"a": "all"}).error is ErrorCode.NONE


def test_assignments_that_a_groups_record_cannot_hold_are_refused_before_they_are_written(bench, stable, monkeypatch):
    monkeypatch.setattr(membership, "ASSIGNMENTS_BYTES_MAX", 1000)
    (a,) = stable("a")
    a.join()
    a.learn()
    written = len(bench.log)
    assert a.sync({"a": "x" * 1000}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(bench.log) == written
    assert a.sync({"a": "all"}).error is ErrorCode.NONE


def test_only_the_current_generation_of_known_members_is_heard(bench, stable):
    a, _ = stable("a", "b")
    a.generation -= 1
    assert a.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    assert a.sync().error is ErrorCode.ILLEGAL_GENERATION
    assert a.commit(1).error is ErrorCode.ILLEGAL_GENERATION
    a.generation += 1
    a.member_id = "stranger"
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.sync().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.commit(1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.join().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.leave().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.client("x", group="").join().error is ErrorCode.INVALID_GROUP_ID


def test_sync_says_so_when_it_comes_for_another_protocol_or_too_late(bench, stable):
    a, b = stable("a", "b")
    assert a.sync(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE
    a.join()
    assert b.sync().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_nobody_hears_of_an_assignment_before_it_is_durable(bench):
    a = bench.client("a", version=3)
    a.join()
    bench.held = True
    first = a.learn().sync({"a": "first"})
    second = a.sync({"a": "second"})
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.response is None
    bench.release()
    assert second.response.assignment == b"first"
    bench.crash()
    assert a.sync().response.assignment == b"first"


def test_members_leave_together_by_id_or_by_instance_alone(bench, stable):
    a, b, c = stable("a", bench.client("b", instance="two"), bench.client("c", instance="three"))
    identities = [
        MemberIdentity(member_id=a.member_id),
        MemberIdentity(member_id="", group_instance_id="two"),
        MemberIdentity(member_id=b.member_id, group_instance_id="three"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id=""),
    ]
    answer = bench.call("tool", "removes", LeaveGroupRequest(group_id="g", members=identities), 5)
    assert [ErrorCode(member.error_code) for member in answer.response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(bench.state().members) == [c.member_id]


def test_leaving_with_an_old_client_answers_in_the_message_itself(bench, stable):
    (a,) = stable("a")
    request = LeaveGroupRequest(group_id="g", member_id=a.member_id)
    assert bench.call("a", "leaves", request, 1).error is ErrorCode.NONE
    assert bench.call("a", "leaves", request, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state().state.value == "Empty"


def test_dynamic_members_that_do_not_come_back_are_left_behind_and_static_ones_are_waited_for(bench, stable):
    a, _, c = stable("a", bench.client("b", session_ms=60_000), bench.client("c", instance="three", session_ms=60_000))
    a.join()
    bench.advance(29)
    assert a.seen[-1].response is None
    bench.advance(1)
    assert a.learn().generation == 4
    assert list(bench.state().members) == [a.member_id, c.member_id]


def test_a_group_outlives_the_node_with_members_and_assignment(bench, stable):
    a, b = stable("a", "b")
    bench.crash()
    assert a.heartbeat().error is ErrorCode.NONE
    assert b.sync().response.assignment == b"b's share"
    bench.advance(11)
    assert bench.state().state.value == "Empty"
    bench.crash()
    assert bench.state().generation == 3


def test_when_the_log_fails_everyone_is_told_and_the_group_is_what_was_durable(bench, stable):
    a, b = stable("a", "b")
    a.join()
    b.join()
    bench.held = True
    waiting = [b.learn().sync(), a.learn().sync({"a": "all"}), b.commit(9)]
    assert waiting[2].error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.fail(ErrorCode.NOT_COORDINATOR)
    assert [answer.error for answer in waiting[:2]] == [ErrorCode.NOT_COORDINATOR] * 2
    assert bench.state().state.value == "Stable"
    assert bench.state().generation == 2
    assert a.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
