"""A group on a cluster of brokers, driven by Hypothesis: members join and leave, coordinators die and move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from gnomon.broker.coordination.state_machine import StoredRecord
from gnomon.broker.groups.group_shard import GroupShard
from gnomon.broker.groups.records import CoordinatorRecord, OffsetRecord
from gnomon.runtime.world import Unreachable
from gnomon.testing.simulation.guided.machine_examples import check, found_by
from gnomon.testing.simulation.guided.state_machine import (
    DOWN_SECONDS,
    PAUSES,
    SimulatedStateMachine,
    Weather,
    weathers,
)
from gnomon.testing.simulation.machine import Machine
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.storms.kafka.broker_cluster import BrokerCluster
from gnomon.testing.storms.kafka.group_checker import CommitOutcome, GroupHistory
from gnomon.testing.storms.kafka.group_plan import assignments_of, plan_and_partitions
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

GROUP, TOPIC, PARTITIONS = "readers", "orders", 4
MEMBERS = ("member-1", "member-2", "member-3")
SESSION_MS, REBALANCE_MS = 6000, 4000
HEARTBEAT_SECONDS = 0.5
RETRY_SECONDS = 0.2
LIVENESS_SECONDS = 60.0
STEPS = 30
KAFKA = {
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
}
REFUSED = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
REACHED = [f"group/{what}" for what in ("joined", "rejoined", "committed", "commit refused", "left", "fetched")]
Identity = tuple[str, int]
"""Member id and generation."""

members = st.sampled_from(MEMBERS)


class Member:
    """A consumer without records: joins, keeps its membership, commits, and reports to the history."""

    def __init__(self, world: SimulatedWorld, name: str, machine: CoordinatorMachine, nursery: trio.Nursery) -> None:
        self.name = name
        self.history = machine.history
        self.nursery = nursery
        self.id, self.generation = "", -1
        self.partitions: tuple[int, ...] = ()
        self.stable = False
        self.consuming: trio.CancelScope | None = None
        self._cluster = WireCluster(world, machine.cluster.bootstrap, name)
        self._clock = world.clock
        self._machine = machine
        self._plans = 0

    def begin(self) -> None:
        """Starts to consume, unless it already does."""
        if self.consuming is None:
            self.consuming = trio.CancelScope()
            self.nursery.start_soon(self._consume, self.consuming)

    async def leave(self) -> None:
        """Stops to consume; leaves the group if it has a member id."""
        if self.consuming is not None:
            self.consuming.cancel()
        if self.id:
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.id)])
            self.id = ""
            await self._once(lambda connection: connection.request(request, 3, LeaveGroupResponse))
            self._machine.count("left")

    async def commit(self, identity: Identity, partitions: Sequence[int]) -> None:
        """Commits an offset of its own for each partition."""
        member_id, generation = identity
        offset = self._machine.next_offset()
        called = self._clock.monotonic()
        commits = [self.history.commits(partition, offset, called) for partition in partitions]
        parts = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset) for partition in partitions
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
        )
        answer = await self._once(lambda connection: connection.request(request, 8, OffsetCommitResponse))
        if answer is None:
            return
        for commit, part in zip(commits, answer.topics[0].partitions, strict=True):
            error = ErrorCode(part.error_code)
            if error is ErrorCode.NONE:
                commit.settle(CommitOutcome.DONE, self._clock.monotonic())
                if generation >= 0:
                    self.history.accepted(self.name, generation, called, "commit")
                self._machine.count("committed")
            elif error in REFUSED:
                commit.settle(CommitOutcome.REFUSED, self._clock.monotonic())
                self._machine.count("commit refused")

    async def fetch(self) -> bool:
        """Fetches the offsets; returns whether there was an answer."""
        called = self._clock.monotonic()
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics)
        answer = await self._once(lambda connection: connection.request(request, 7, OffsetFetchResponse))
        if answer is None or answer.error_code:
            return False
        for part in answer.topics[0].partitions:
            if not part.error_code:
                self.history.fetched(part.partition_index, part.committed_offset, called)
        self._machine.count("fetched")
        return True

    async def _once(self, ask: Callable[[WireConnection], Awaitable[object]]) -> object | None:
        """Asks the coordinator once; None if there is no answer."""
        connection: WireConnection | None = None
        try:
            connection = await self._cluster.coordinator(GROUP)
            return await ask(connection)
        except Unreachable:
            return None
        finally:
            if connection is not None:
                connection.close()

    # --- membership ---

    async def _consume(self, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                connection: WireConnection | None = None
                try:
                    connection = await self._cluster.coordinator(GROUP)
                    while True:
                        if not self.stable:
                            await self._join(connection)
                        await self._clock.sleep(HEARTBEAT_SECONDS)
                        await self._heartbeat(connection)
                except Unreachable:
                    await self._clock.sleep(RETRY_SECONDS)
                finally:
                    if connection is not None:
                        connection.close()
        self.consuming, self.stable, self.partitions = None, False, ()

    async def _join(self, connection: WireConnection) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await connection.request(request, 5, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = joined.member_id
            return
        self._expect(joined.error_code)
        self._machine.count("joined" if self.generation < 0 else "rejoined")
        self.id, self.generation = joined.member_id, joined.generation_id
        self._machine.identities.append((self.id, self.generation))
        await self._sync(connection, joined)

    async def _sync(self, connection: WireConnection, joined: JoinGroupResponse) -> None:
        self._plans += 1
        ids = [member.member_id for member in joined.members]
        assignments = assignments_of(f"{self.name}/{self._plans}", ids, PARTITIONS)
        called = self._clock.monotonic()
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.id, assignments=assignments
        )
        synced = await connection.request(request, 3, SyncGroupResponse)
        self._expect(synced.error_code)
        plan, self.partitions = plan_and_partitions(synced.assignment)
        self.stable = True
        now = self._clock.monotonic()
        self.history.synced(self.id, self.generation, called, now, plan, self.partitions)

    async def _heartbeat(self, connection: WireConnection) -> None:
        if not self.stable:
            return
        called = self._clock.monotonic()
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.id)
        answer = await connection.request(request, 3, HeartbeatResponse)
        if answer.error_code == ErrorCode.NONE:
            self.history.accepted(self.id, self.generation, called, "heartbeat")
        self._expect(answer.error_code)

    def _expect(self, code: int) -> None:
        """Raises `Unreachable` for an error, for a retry on another connection; a refusal also ends the membership."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            return
        if error in REFUSED:
            self.stable, self.partitions = False, ()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        assert error in REFUSED or error.retriable, f"{self.name}: {error.name}: {error.text}"
        raise Unreachable(error.name)


class CoordinatorMachine(SimulatedStateMachine):
    """One generation at a time, one owner of each partition, and offsets that never go back."""

    @initialize(weather=weathers, brokers=st.integers(1, 3), present=st.integers(0, len(MEMBERS)))
    def begin(self, weather: Weather, brokers: int, present: int) -> None:
        self.start_simulation(weather)
        self.history = GroupHistory()
        self.identities: list[Identity] = []
        self.running: dict[str, Member] = {}
        self._offset = -1
        self.cluster = BrokerCluster(self.simulation, brokers, bookies=3, kafka=KAFKA)
        self.guided.run(self.cluster.start)
        self.clients = [self.simulation.machine(name) for name in MEMBERS]
        for machine in self.clients:
            machine.start(self.node(machine))
        self.guided.run(self.commit_first)
        self.join(list(MEMBERS[:present]), 2.0)
        ledgers = self.cluster.ledgers
        self.brokers = list(self.cluster.brokers.values())
        self.expose([*self.brokers, *self.brokers, *self.clients, ledgers.metadata, *ledgers.bookies.values()])

    async def commit_first(self) -> None:
        """Commits first offsets: a group with offsets is never forgotten."""

        async def work(cluster: WireCluster) -> None:
            while True:
                try:
                    (await cluster.leader(TOPIC, PARTITIONS - 1)).close()
                    return
                except Unreachable:
                    await self.simulation.sleep(RETRY_SECONDS)

        await self.cluster.run_client("starter", work)
        member = self.running[MEMBERS[0]]
        while not self.reached("committed"):
            await member.commit(("", -1), range(PARTITIONS))
            await self.simulation.sleep(RETRY_SECONDS)

    def node(self, machine: Machine) -> Callable[[SimulatedWorld], Awaitable[None]]:
        async def live(world: SimulatedWorld) -> None:
            async with trio.open_nursery() as nursery:
                self.running[machine.name] = mine = Member(world, machine.name, self, nursery)
                try:
                    await trio.sleep_forever()
                finally:
                    if self.running[machine.name] is mine:  # else it has been started again
                        del self.running[machine.name]

        return live

    def next_offset(self) -> int:
        self._offset += 1
        return self._offset

    def count(self, what: str) -> None:
        self.simulation.coverage.count(f"group/{what}")

    def reached(self, what: str) -> int:
        return self.simulation.coverage.counts[f"group/{what}"]

    def tell(self, who: str, pause: float, work: Callable[[Member], Awaitable[object]]) -> None:
        member = self.running.get(who)
        if member is not None:
            member.nursery.start_soon(work, member)
        self.guided.sleep(pause)

    @rule(present=st.lists(members, min_size=1, max_size=3, unique=True), pause=PAUSES)
    def join(self, present: list[str], pause: float) -> None:
        for who in present:
            if who in self.running:
                self.running[who].begin()
        self.guided.sleep(pause)

    @rule(who=members, pause=PAUSES)
    def leave(self, who: str, pause: float) -> None:
        self.tell(who, pause, Member.leave)

    @rule(present=st.lists(members, min_size=1, max_size=3, unique=True), pause=PAUSES)
    def commit(self, present: list[str], pause: float) -> None:
        for who in present:
            if who in self.running and self.running[who].partitions:
                member = self.running[who]
                identity, owned = (member.id, member.generation), member.partitions
                member.nursery.start_soon(member.commit, identity, owned)
        self.guided.sleep(pause)

    @rule(who=members, back=st.integers(0, 5), partition=st.integers(0, PARTITIONS - 1), pause=PAUSES)
    def commit_as_somebody_did(self, who: str, back: int, partition: int, pause: float) -> None:
        """Commits with an earlier identity, as a member that does not know that it was removed."""
        if self.identities:
            identity = self.identities[-1 - back % len(self.identities)]
            self.tell(who, pause, lambda member: member.commit(identity, [partition]))

    @rule(who=members, pause=PAUSES)
    def fetch(self, who: str, pause: float) -> None:
        self.tell(who, pause, Member.fetch)

    @rule(which=st.integers(0, 2), down=DOWN_SECONDS, pause=PAUSES)
    def drain(self, which: int, down: float, pause: float) -> None:
        """Stops a broker gracefully, and starts it again `down` seconds after its end."""
        machine = self.brokers[which % len(self.brokers)]
        process = machine.process
        if process is not None:
            machine.terminate()

            async def again() -> None:
                await process.ended.wait()
                await self.simulation.sleep(down)
                self.start(machine)

            self.guided.start_soon(again)
        self.guided.sleep(pause)

    @invariant()
    def nothing_contradicts_so_far(self) -> None:
        assert not self.history.wrong, "; ".join(self.history.wrong)

    def judge(self) -> None:
        self.guided.run(self.finish)
        assert not self.history.wrong, "; ".join(self.history.wrong)

    async def finish(self) -> None:
        with trio.move_on_after(LIVENESS_SECONDS):
            while not self.all_settled():
                for member in self.running.values():
                    member.begin()
                await self.simulation.sleep(RETRY_SECONDS)
            for member in self.running.values():
                before = self.reached("committed")
                while self.reached("committed") < before + len(member.partitions):
                    await member.commit((member.id, member.generation), member.partitions)
                    await self.simulation.sleep(RETRY_SECONDS)
            while not await self.running[MEMBERS[0]].fetch():
                await self.simulation.sleep(RETRY_SECONDS)
            return
        self.history.wrong.append(f"{LIVENESS_SECONDS} virtual seconds after the faults: {self.standing()}")

    def all_settled(self) -> bool:
        """Whether all are members of one generation, and each partition has its owner."""
        all_ = [self.running[name] for name in MEMBERS if name in self.running]
        owned = sorted(partition for member in all_ for partition in member.partitions)
        same = len({member.generation for member in all_}) == 1
        return len(all_) == len(MEMBERS) and same and owned == list(range(PARTITIONS))

    def standing(self) -> str:
        return "; ".join(f"{member.name}: {member.generation} {member.partitions}" for member in self.running.values())


def test_a_group_keeps_its_guarantees_while_its_coordinator_dies_and_moves() -> None:
    check(CoordinatorMachine, max_examples=25, steps=STEPS).assert_all_counted(REACHED)


def test_a_coordinator_that_accepts_commits_of_old_generations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.broker.groups.offsets._check_commit", lambda group, request: ErrorCode.NONE)
    assert "a commit of" in found_by(CoordinatorMachine, 100, STEPS)


def test_a_coordinator_that_forgets_the_offsets_of_its_predecessor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = GroupShard.decode

    def forgetting(shard: GroupShard, stored: StoredRecord) -> CoordinatorRecord | None:
        record = decode(shard, stored)
        return None if isinstance(record, OffsetRecord) else record

    monkeypatch.setattr(GroupShard, "decode", forgetting)
    assert "went back to offset -1" in found_by(CoordinatorMachine, 100, STEPS)
