"""Static members: restarts without a rebalance, and the fencing of the earlier instance."""

from __future__ import annotations

from transcript import said

from gnomon.wire.kafka.errors import ErrorCode


def test_a_static_member_restarts_without_a_rebalance_and_its_predecessor_is_fenced(bench, stable):
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


def test_a_restarted_static_leader_skips_the_assignment_and_with_an_old_client_follows(bench, stable):
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
