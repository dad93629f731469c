"""A shard on a log in memory, clients that behave like consumers, and a transcript of their messages."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from gnomon.broker.coordination.state_machine import Refusal, StoredRecord
from gnomon.broker.groups.call import GroupCall, Reply, error_of, refused
from gnomon.broker.groups.group_shard import GroupShard
from gnomon.broker.groups.members_memory import BYTES_MAX, MembersMemory
from gnomon.broker.groups.settings import GroupSettings
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gnomon.wire.kafka.schema import decode, encode, encode_prefixed

# For the modules beside these tests and those of the runtime: test folders are no packages.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "coordination")]


class Answer:
    """The answer of a call, once there is one; `error` is its error code."""

    def __init__(self, who: str, what: str) -> None:
        self.who, self.what = who, what
        self.response: Any = None

    @property
    def error(self) -> ErrorCode:
        """The answer's error: its own, or that of its first item."""
        assert self.response is not None, f"{self.who} {self.what} is not answered yet"
        return _error_of(self.response)


def _error_of(response: Any) -> ErrorCode:
    if getattr(response, "error_code", 0):
        return ErrorCode(response.error_code)
    for items in ("topics", "partitions", "members", "groups", "results"):
        for item in getattr(response, items, None) or []:
            if getattr(item, "error_code", 0) or hasattr(item, "partitions"):
                return _error_of(item)
    return ErrorCode.NONE


class Bench:
    """A shard; appends become durable at once unless `held` is set."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.now = 100.0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.held = False
        self.under_way: deque[Any] = deque()
        self.transcript: list[str] = []
        self.names: dict[str, str] = {}
        self.ids = 0
        self.open_answers: list[Answer] = []
        self.members_bytes_max = BYTES_MAX
        self.shard = self.load()

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def load(self) -> GroupShard:
        """Makes the shard from the durable records."""
        self.memory = MembersMemory(self.members_bytes_max)
        shard = GroupShard(lambda: self.settings, self.memory, self.new_id)
        for key, value in self.log:
            shard.replay(shard.decode(StoredRecord(key, value, -1, -1, False)))
        self.shard = shard
        self.under_way.clear()
        self.carry_out(shard.loaded(self.now, self.wall_ms))
        return shard

    def crash(self) -> None:
        """The node dies and comes back: nothing is answered any more, appends under way are lost."""
        self.open_answers.clear()
        self.load()

    def fail(self, refusal: Refusal, kept: bool = False) -> None:
        """The oldest append fails; with `kept` all appends under way have reached the log nevertheless."""
        if kept:
            self.log += [record.encoded() for append in self.under_way for record in append.records]
        error = error_of(refusal)
        waiting = [reply for append in self.under_way for reply in append.replies]
        replies = [Reply(reply.call, refused(reply.call, error)) for reply in waiting] + self.shard.failed(refusal)
        assert self.memory.bytes_used == 0
        self.load()
        for reply in replies:
            self.deliver(reply)

    def carry_out(self, decision: Any) -> None:
        self.under_way.extend(decision.appends)
        for reply in decision.replies:
            self.deliver(reply)
        if not self.held:
            self.durable(len(self.under_way))

    def durable(self, count: int = 1) -> None:
        """The oldest appends under way become durable."""
        while count and self.under_way:
            count -= 1
            append = self.under_way.popleft()
            for record in append.records:
                self.log.append(record.encoded())
                self.shard.replay(record)
            decision = self.shard.applied(self.now, self.wall_ms)
            decision.replies[:0] = append.replies
            self.carry_out(decision)

    def release(self) -> None:
        """Everything under way becomes durable, now and from now on."""
        self.held = False
        self.durable(len(self.under_way))

    def deliver(self, reply: Any) -> None:
        answer: Answer = reply.call.token
        assert answer.response is None, f"{answer.who} {answer.what} is answered twice"
        # Through the codec: an answer must not have fields that its version cannot encode.
        version = reply.call.version
        if reply.response.VERSIONS[1]:
            encoded = encode(reply.response, version)
            answer.response = decode(type(reply.response), version, encoded)[0]
        else:
            answer.response = reply.response
        self.open_answers = [item for item in self.open_answers if item is not answer]
        member_id = getattr(answer.response, "member_id", "")
        if member_id:
            self.names[member_id] = answer.who
        self.transcript.append(f"  {answer.who} {answer.what} → {self.tell(answer.response)}")

    def call(self, who: str, what: str, request: Any, version: int) -> Answer:
        answer = Answer(who, what)
        self.open_answers.append(answer)
        self.transcript.append(f"{who} {what}")
        call = GroupCall(request, version, who, "/127.0.0.1", answer)
        self.carry_out(self.shard.handle(call, self.now, self.wall_ms))
        return answer

    def advance(self, seconds: float) -> None:
        """Advances the time; everything due meanwhile happens at its time."""
        end = self.now + seconds
        self.transcript.append(f"{seconds:g} s go by")
        while self.shard.next_deadline() <= end:
            self.now = max(self.now, self.shard.next_deadline())
            self.carry_out(self.shard.tick(self.now, self.wall_ms))
        self.now = end

    def state(self, group: str = "g") -> Any:
        """The group itself, None if there is none."""
        return self.shard._groups.get(group)

    def client(self, name: str, **traits: Any) -> Client:
        return Client(self, name, **traits)

    def commit(self, group: str, offset: int, **more: Any) -> Answer:
        """A commit from outside of the group, unless `more` says otherwise."""
        return self.call("tool", f"commits {offset}", commit_request(group, offset, **more), 8)

    def offset(self, group: str = "g", topic: str = "t", partition: int = 0) -> int:
        """The offset that OffsetFetch returns."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
        (found,) = self.call("tool", "fetches", request, 8).response.groups
        assert found.error_code == ErrorCode.NONE
        return found.topics[0].partitions[0].committed_offset

    def tell(self, response: Any) -> str:
        """A response in a few words."""
        if _error_of(response):
            return _error_of(response).name
        if hasattr(response, "generation_id"):
            members = ",".join(sorted(self.names.get(item.member_id, "?") for item in response.members))
            skip = " skip" if response.skip_assignment else ""
            leader = self.names.get(response.leader, response.leader)
            return f"generation {response.generation_id} {response.protocol_name} leader {leader} [{members}]{skip}"
        if hasattr(response, "assignment"):
            return response.assignment.decode() or "nothing"
        return "ok"


def commit_request(
    group: str, offset: int, topic: str = "t", partition: int = 0, metadata: str | None = "", **more: Any
) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=3
    )
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])], **more)


class Client:
    """A consumer: remembers its member id, its generation, and the answers to its requests."""

    def __init__(self, bench: Bench, name: str, **traits: Any) -> None:
        self.bench, self.name = bench, name
        self.version = traits.pop("version", 9)
        self.group = traits.pop("group", "g")
        self.instance = traits.pop("instance", None)
        self.session_ms = traits.pop("session_ms", 10_000)
        self.rebalance_ms = traits.pop("rebalance_ms", 30_000)
        self.protocols = traits.pop("protocols", ["range"])
        self.protocol_type = traits.pop("protocol_type", "consumer")
        self.topics = traits.pop("topics", ["t"])
        assert not traits, traits
        self.member_id = ""
        self.generation = -1
        self.seen: list[Any] = []

    def metadata(self) -> bytes:
        return encode_prefixed(ConsumerProtocolSubscription(topics=list(self.topics)), 0)

    def join(self) -> Answer:
        """Sends one JoinGroup."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.metadata()) for name in self.protocols],
        )
        return self._ask("joins", request, self.version)

    def enter(self) -> Answer:
        """Joins as a new dynamic member does: asks for an id first."""
        assert self.join().error is ErrorCode.MEMBER_ID_REQUIRED
        self.learn()
        return self.join()

    def learn(self) -> Client:
        """Takes the member id and the generation from the answers to its joins."""
        for answer in self.seen:
            if answer.response is not None and answer.what == "joins":
                self.member_id = answer.response.member_id or self.member_id
                if not answer.response.error_code:
                    self.generation = answer.response.generation_id
        self.seen = [answer for answer in self.seen if answer.response is None]
        return self

    def sync(self, assignments: dict[str, str] | None = None, **more: Any) -> Answer:
        """Sends SyncGroup; the leader gives assignments by client name."""
        by_name = {name: member_id for member_id, name in self.bench.names.items()}
        given = [
            SyncGroupRequestAssignment(member_id=by_name[name], assignment=text.encode())
            for name, text in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=given,
            **more,
        )
        return self._ask("syncs", request, 5)

    def heartbeat(self) -> Answer:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return self._ask("heartbeats", request, 4)

    def leave(self) -> Answer:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        return self._ask("leaves", LeaveGroupRequest(group_id=self.group, members=[identity]), 5)

    def commit(self, offset: int, **more: Any) -> Answer:
        request = commit_request(
            self.group,
            offset,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            **more,
        )
        return self._ask(f"commits {offset}", request, 8)

    def restarted(self, name: str) -> Client:
        """The same static member in a new process: it knows no member id."""
        return Client(
            self.bench, name, version=self.version, instance=self.instance, protocols=self.protocols, topics=self.topics
        )

    def _ask(self, what: str, request: Any, version: int) -> Answer:
        answer = self.bench.call(self.name, what, request, version)
        self.seen.append(answer)
        return answer


@pytest.fixture(scope="session")
def new_bench() -> type[Bench]:
    """Makes benches; arguments are settings."""
    return Bench


@pytest.fixture
def bench() -> Bench:
    """A bench whose groups start without delay."""
    return Bench(initial_rebalance_delay_ms=0)


@pytest.fixture
def stable(bench: Bench) -> Any:
    """Makes a stable group of dynamic members a, b, ... (or of the clients given), leader first."""

    def make(*clients: Client | str) -> list[Client]:
        members = [bench.client(item) if isinstance(item, str) else item for item in clients]
        settle(bench, members)
        bench.transcript.clear()
        return members

    return make


def settle(bench: Bench, members: list[Client]) -> None:
    """Joins everyone one after the other and syncs, until the group is stable with all of them."""
    for index, member in enumerate(members):
        if member.instance is None:
            member.enter()
        else:
            member.join()
        for other in members[:index]:
            other.join()
        for other in members:
            other.learn()
    names = {member.name: f"{member.name}'s share" for member in members}
    for member in members:
        member.sync(names if bench.state().leader == member.member_id else None)
    assert bench.state().state.value == "Stable"
