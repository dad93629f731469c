"""The members of a group: joins, refusals, and requests of unknown members."""

from __future__ import annotations

import pytest

from gnomon.broker.coordination.state_machine import Refusal
from gnomon.broker.groups import membership
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import LeaveGroupRequest, MemberIdentity


@pytest.mark.parametrize(
    "traits", [{"protocols": ["other"]}, {"protocol_type": "connect"}, {"protocols": []}], ids=["name", "type", "none"]
)
def test_a_member_without_a_common_protocol_is_refused(bench, stable, traits):
    stable("a")
    assert bench.client("b", **traits).join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_with_more_protocols_than_can_be_compared_is_refused(bench):
    names = [f"protocol-{number}" for number in range(membership.PROTOCOLS_MAX + 1)]
    assert bench.client("a", protocols=names).join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.client("b", protocols=names[1:], version=3).join().error is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(bench, session_ms):
    assert bench.client("a", session_ms=session_ms).join().error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert bench.state() is None


def test_a_full_group_refuses_new_members_and_keeps_its_own(new_bench):
    bench = new_bench(initial_rebalance_delay_ms=0, members_max=1)
    a = bench.client("a")
    a.enter()
    a.learn().sync({"a": "all"})
    assert bench.client("b").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    assert bench.transcript[-1] == "  a joins → generation 2 range leader a [a]"


def test_a_member_whose_metadata_is_too_large_for_the_groups_record_is_refused_alone(bench, stable, monkeypatch):
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


def test_assignments_too_large_for_the_groups_record_are_refused_before_they_are_written(bench, stable, monkeypatch):
    monkeypatch.setattr(membership, "ASSIGNMENTS_BYTES_MAX", 1000)
    (a,) = stable("a")
    a.join()
    a.learn()
    written = len(bench.log)
    assert a.sync({"a": "x" * 1000}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(bench.log) == written
    assert a.sync({"a": "all"}).error is ErrorCode.NONE


def test_members_beyond_the_memory_for_all_groups_are_refused_until_others_leave(bench):
    """2 of `members_memory`."""
    bench.members_bytes_max = 20_000
    bench.load()
    a = bench.client("a", topics=["x" * 8_000])
    a.enter()
    a.learn().sync({"a": "all"})
    other = bench.client("b", group="h", topics=["y" * 10_000])
    assert other.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.state("h") is None
    assert a.heartbeat().error is ErrorCode.NONE
    a.topics = ["x" * 30_000]
    assert a.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.advance(60)
    assert bench.memory.bytes_used < 5_000
    assert other.join().error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


def test_an_assignment_beyond_the_memory_for_all_groups_is_refused(bench, stable):
    """2 of `members_memory`."""
    bench.members_bytes_max = 20_000
    bench.load()
    (a,) = stable("a")
    a.join()
    a.learn()
    assert a.sync({"a": "x" * 20_000}).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert a.sync({"a": "x" * 10_000}).error is ErrorCode.NONE
    assert bench.memory.bytes_used > 10_000


def test_requests_of_unknown_members_or_old_generations_are_refused(bench, stable):
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


def test_a_sync_for_another_protocol_or_too_late_is_refused(bench, stable):
    a, b = stable("a", "b")
    assert a.sync(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync(protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE
    a.join()
    assert b.sync().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_no_member_gets_an_assignment_before_it_is_durable(bench):
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


def test_the_answer_to_a_leave_of_an_old_client_has_its_error_at_the_top(bench, stable):
    (a,) = stable("a")
    request = LeaveGroupRequest(group_id="g", member_id=a.member_id)
    assert bench.call("a", "leaves", request, 1).error is ErrorCode.NONE
    assert bench.call("a", "leaves", request, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state().state.value == "Empty"


def test_a_group_survives_a_restart_with_members_and_assignment(bench, stable):
    a, b = stable("a", "b")
    bench.crash()
    assert a.heartbeat().error is ErrorCode.NONE
    assert b.sync().response.assignment == b"b's share"
    bench.advance(11)
    assert bench.state().state.value == "Empty"
    bench.crash()
    assert bench.state().generation == 3


def test_all_members_get_an_error_when_the_log_fails_and_the_group_returns_to_its_durable_state(bench, stable):
    a, b = stable("a", "b")
    a.join()
    b.join()
    bench.held = True
    waiting = [b.learn().sync(), a.learn().sync({"a": "all"}), b.commit(9)]
    assert waiting[2].error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.fail(Refusal.NOT_LEADER)
    assert [answer.error for answer in waiting[:2]] == [ErrorCode.NOT_COORDINATOR] * 2
    assert bench.state().state.value == "Stable"
    assert bench.state().generation == 2
    assert a.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
