"""Random lives of one group against a small model of the views that consumers may have."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gnomon.broker.coordination.state_machine import Refusal
from gnomon.broker.groups.group import GROUP_BYTES, PENDING_BYTES, GroupState
from gnomon.broker.groups.group_shard import GroupShard
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.groups.records import GroupRecord, OffsetRecord, decode_record
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import DeleteGroupsRequest

REBALANCE_SECONDS = 30
SESSION_SECONDS = 10
CLIENTS = 4
MEMBERSHIP_ERRORS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.NONE,
}
clients = st.integers(0, CLIENTS - 1)


class GroupMachine(RuleBasedStateMachine):
    """Two dynamic and two static clients; the log may lag, fail or be loaded again at any time."""

    def __init__(self, new_bench, delay_ms):
        super().__init__()
        self.bench = new_bench(initial_rebalance_delay_ms=delay_ms)
        self.lives = 0
        self.clients = [self.bench.client(f"c{i}", instance=f"i{i}" if i >= 2 else None) for i in range(CLIENTS)]
        self.parked_since = {}
        self.assigned = {}
        self.fenced = set()
        self.nonce = 0
        self.commits = []
        self.visible = {-1}

    # Actions of consumers

    @rule(who=clients)
    def join(self, who):
        client = self.clients[who]
        answer = client.join()
        if answer.response is not None:
            self.hear(client, answer)

    @rule(who=clients)
    def sync(self, who):
        client = self.learn(who)
        self.nonce += 1
        known = self.bench.state()
        names = [self.bench.names[m] for m in known.members if m in self.bench.names] if known else []
        client.sync(dict.fromkeys(names, f"{client.generation}/{self.nonce}"))

    @rule(order=st.permutations(range(CLIENTS)), present=st.sets(clients, min_size=1))
    def some_rebalance_together(self, order, present):
        for step in (self.join, self.join, self.sync):
            for who in order:
                if who in present:
                    self.learn(who)
                    step(who)

    @rule(who=clients)
    def heartbeat(self, who):
        client = self.clients[who]
        member_id, generation = self.learn(who).member_id, client.generation
        error = client.heartbeat().error
        assert error in MEMBERSHIP_ERRORS
        if error is ErrorCode.NONE:
            assert member_id not in self.fenced
            assert generation == self.bench.state().generation

    @rule(who=clients)
    def leave(self, who):
        client = self.learn(who)
        if client.leave().error is ErrorCode.NONE:
            client.member_id, client.generation = "", -1

    @rule(who=st.integers(2, CLIENTS - 1))
    def restart_static_member(self, who):
        old = self.learn(who)
        self.lives += 1
        self.clients[who] = old.restarted(f"c{who}-{self.lives}")

    @rule(who=clients)
    def forget_the_member_id(self, who):
        client = self.learn(who)
        client.member_id, client.generation = "", -1

    @rule(who=clients, offset=st.integers(0, 1000))
    def commit(self, who, offset):
        self.commits.append((self.learn(who).commit(offset), offset))

    @rule(offset=st.integers(0, 1000))
    def commit_from_outside(self, offset):
        self.commits.append((self.bench.commit("g", offset), offset))

    @rule()
    def delete_the_group(self):
        request = DeleteGroupsRequest(groups_names=["g"])
        was_free = not self.bench.held
        answer = self.bench.call("tool", "deletes", request, 2)
        if was_free and answer.error is ErrorCode.NONE:
            self.visible = {-1}
        elif not was_free and answer.response is None:
            # The deletion removes every commit before it; this step releases a log that was held.
            self.bench.release()
            self.settle_commits()
            self.visible = {-1} if answer.error is ErrorCode.NONE else self.visible

    # Events of the world

    @rule(seconds=st.sampled_from([0.5, 2, 5, 9, 12, 31]))
    def time_goes_by(self, seconds):
        self.bench.advance(seconds)

    @rule()
    def the_log_lags(self):
        self.bench.held = True

    @rule(count=st.integers(1, 3))
    def some_appends_are_durable(self, count):
        self.bench.durable(count)

    @rule()
    def the_log_catches_up(self):
        self.bench.release()

    @rule()
    def the_node_crashes(self):
        self.settle_commits()
        self.commits.clear()
        self.bench.crash()
        self.forget_what_was_not_durable()

    @precondition(lambda self: self.bench.under_way)
    @rule(kept=st.booleans())
    def an_append_fails(self, kept):
        self.settle_commits()
        open_commits = [(answer, offset) for answer, offset in self.commits if answer.response is None]
        self.bench.fail(Refusal.UNAVAILABLE, kept)
        for answer, offset in open_commits:
            assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            if kept:
                self.visible = {offset}
        self.commits.clear()
        self.forget_what_was_not_durable()

    @rule()
    def the_coordinator_lets_go(self):
        parked = [answer for answer in self.bench.open_answers if answer.what == "joins"]
        bench = self.bench
        for reply in bench.shard.let_go(Refusal.NOT_LEADER, bench.now, bench.wall_ms):
            bench.deliver(reply)
        members = bench.state().members.values() if bench.state() else []
        assert not any(member.parked for member in members)
        assert all(answer.response is not None for answer in parked) or bench.under_way

    def forget_what_was_not_durable(self):
        self.parked_since.clear()
        self.fenced.clear()

    # Invariants

    def learn(self, who):
        client = self.clients[who]
        self.judge_assignments(client)
        return client.learn()

    def judge_assignments(self, client):
        """Judges each answer once: an answer from an earlier life of the group says nothing about the current one."""
        answered = [answer for answer in client.seen if answer.what == "syncs" and answer.response is not None]
        client.seen = [answer for answer in client.seen if answer not in answered]
        for answer in answered:
            if answer.response.assignment:
                generation, nonce = answer.response.assignment.decode().split("/")
                assert self.assigned.setdefault((self.group_lives(), generation), nonce) == nonce

    def group_lives(self):
        """How often the group was forgotten: deleted, or without members and offsets when offsets expired.

        Kafka does both to an empty group only; a later group of the same name begins with generation 1.
        """
        lives, members, offsets = 0, [], set()
        for key, value in self.bench.log:
            match decode_record(key, value):
                case OffsetRecord(topic=topic, partition=partition, stored=stored):
                    (offsets.discard if stored is None else offsets.add)((topic, partition))
                case GroupRecord(value=None):
                    assert not members
                    assert not offsets
                    lives += 1
                case GroupRecord(value=known):
                    members = known.members
        return lives

    def hear(self, client, answer):
        if answer.error is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced.add(client.member_id)

    def settle_commits(self):
        """Commits become visible in the order in which they became durable."""
        left = []
        for answer, offset in self.commits:
            if answer.response is None:
                left.append((answer, offset))
            elif answer.error is ErrorCode.NONE:
                self.visible = {offset}
        self.commits = left

    @invariant()
    def offsets_visible_are_those_committed_durably_last(self):
        self.settle_commits()
        assert self.bench.offset() in self.visible

    @invariant()
    def a_parked_join_is_answered_within_the_rebalance_timeout(self):
        now = self.bench.now
        parked = [answer for answer in self.bench.open_answers if answer.what == "joins"]
        held = self.bench.held and self.bench.under_way
        since = {answer: self.parked_since.get(answer, now) for answer in parked}
        if held:
            since = dict.fromkeys(parked, now)
        self.parked_since = since
        assert all(now - start <= REBALANCE_SECONDS for start in since.values())

    @invariant()
    def a_generation_has_one_assignment(self):
        self.group_lives()
        for client in self.clients:
            self.judge_assignments(client)

    @invariant()
    def the_group_keeps_its_own_rules(self):
        group = self.bench.state()
        if group is None:
            return
        members = list(group.members.values())
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not members
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.leader in group.members
            assert all(member.speaks(group.protocol) for member in members)
            assert all(member.joining is None for member in members)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert all(member.syncing is None for member in members)
        assert {member.instance_id: member.member_id for member in members if member.instance_id} == group.static
        deadlines = [member.deadline for member in members] + list(group.pending.values())
        assert group.wake <= min([*deadlines, group.join_deadline, group.sync_deadline])
        assert self.bench.shard.next_deadline() <= group.wake

    @invariant()
    def the_memory_is_that_of_the_members(self):
        """1 of `members_memory`."""
        expected = 0
        for group_id, group in self.bench.shard._groups.items():
            expected += GROUP_BYTES + len(group_id)
            expected += sum(member.said_bytes + len(member.assignment) for member in group.members.values())
            expected += sum(PENDING_BYTES + len(member_id) for member_id in group.pending)
        assert self.bench.memory.bytes_used == expected

    @invariant()
    def the_log_says_what_the_shard_says(self):
        replayed = GroupShard(lambda: self.bench.settings, MembersMemory(), self.bench.new_id)
        pending = [record for append in self.bench.under_way for record in append.records]
        for key, value in [*self.bench.log, *(record.encoded() for record in pending)]:
            replayed.replay(decode_record(key, value))
        assert live_records(replayed, []) == live_records(self.bench.shard, pending)

    @invariant()
    def a_stable_group_is_as_its_record_says(self):
        group = self.bench.state()
        if group is None or group.state is not GroupState.STABLE or self.bench.under_way:
            return
        recorded, live = self.bench.shard._stored.recorded["g"], group.record().value
        assert (recorded.generation, recorded.protocol, recorded.leader) == (
            live.generation,
            live.protocol,
            live.leader,
        )
        assert recorded.members == live.members

    @invariant()
    def keep_the_transcript_short(self):
        del self.bench.transcript[:-50]


def live_records(shard, pending):
    return sorted({record.encoded() for part in shard.snapshot(lambda: pending) for record in part})


def test_a_group_keeps_its_guarantees_under_any_events_of_members_and_log(new_bench):
    run_state_machine_as_test(
        lambda: GroupMachine(new_bench, 0), settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def test_a_group_with_an_initial_rebalance_delay_keeps_its_guarantees(new_bench):
    run_state_machine_as_test(
        lambda: GroupMachine(new_bench, 3000),
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None),
    )


@pytest.mark.parametrize("end", ["deleted", "expired"])
def test_a_forgotten_group_starts_again_with_other_assignments(new_bench, end):
    machine = GroupMachine(new_bench, 0)
    machine.some_rebalance_together(order=range(CLIENTS), present={0})
    machine.a_generation_has_one_assignment()
    machine.time_goes_by(seconds=SESSION_SECONDS + 2)
    assert machine.bench.state().state is GroupState.EMPTY
    if end == "deleted":
        machine.delete_the_group()
    else:
        machine.time_goes_by(seconds=machine.bench.settings.offsets_retention_check_interval_ms / 1000)
    assert machine.bench.state() is None
    machine.some_rebalance_together(order=range(CLIENTS), present={1})
    assert machine.bench.state().generation == 1
    machine.a_generation_has_one_assignment()
    assert machine.assigned == {(0, "1"): "1", (1, "1"): "2"}
