"""Rebalances: the members that they wait for, their time limits, and their generations."""

from __future__ import annotations

from transcript import said

from gnomon.wire.kafka.errors import ErrorCode


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


def test_followers_continue_after_their_leader_dies(bench, stable):
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


def test_followers_join_again_after_their_leader_dies_without_an_assignment(bench, stable):
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


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout_in_spite_of_heartbeats(bench, stable):
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


def test_an_assigned_member_id_delays_the_group_until_its_session_timeout_only(bench, stable):
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


def test_a_cooperative_rebalance_takes_two_generations_and_no_member_stops_in_between(bench, stable):
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


def test_the_first_generation_waits_for_members_and_longer_while_they_keep_joining(new_bench):
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


def test_a_member_that_lost_its_join_answer_gets_it_again(bench, stable):
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


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen(bench):
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


def test_a_rebalance_removes_missing_dynamic_members_and_waits_for_static_ones(bench, stable):
    a, _, c = stable("a", bench.client("b", session_ms=60_000), bench.client("c", instance="three", session_ms=60_000))
    a.join()
    bench.advance(29)
    assert a.seen[-1].response is None
    bench.advance(1)
    assert a.learn().generation == 4
    assert list(bench.state().members) == [a.member_id, c.member_id]
