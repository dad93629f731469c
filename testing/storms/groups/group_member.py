"""A member of a group in a storm: joins, commits, leaves, vanishes, pauses, and comes back if it is a static one.

1. A member that vanished or paused for longer than its session may continue under its old identity.
2. A static member that came back also sends one commit and one heartbeat under its old id.
3. Each answer is reported to the truths of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.groups.generations_truth import GenerationsTruth, Life
from gnomon.testing.storms.groups.offsets_truth import OffsetsTruth, Place
from gnomon.testing.storms.kafka.group_checker import CommitOutcome
from gnomon.testing.storms.kafka.group_plan import assignments_of, plan_and_partitions
from gnomon.testing.storms.kafka.log_clients import RETRY_SECONDS, ProduceRefused
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
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
)
from gnomon.wire.kafka.schema import encode_prefixed

if TYPE_CHECKING:
    from random import Random

SESSION_MS, REBALANCE_MS = 3000, 4000
HEARTBEAT_SECONDS = 0.4
JOIN_VERSIONS = (5, 9)
"""Before and since the response can ask a leader to skip the assignment."""
SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 3, 3, 3
COMMIT_VERSION = 8
COMMIT_VERSION_WITH_RETENTION = 4
"""The last version in which a commit gives its own retention time."""
COMMIT_RATE = 0.5
EVENT_RATE = 0.08
"""The probability of an event in the life of a member, at each of its heartbeats."""
GONE_SECONDS_MAX = 2 * SESSION_MS / 1000
REFUSED = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
)
NO_LONGER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Errors after which a member joins under a new id."""


class MemberGroup(Protocol):
    """The parts of a group that its members use; see `StormGroup`."""

    name: str
    cluster: WireCluster
    stream: Random
    read: str
    unread: str
    partitions: int
    calm: bool
    commits_unread: bool
    heartbeats_count: bool
    offsets: OffsetsTruth
    generations: GenerationsTruth

    def next_offset(self) -> int:
        """An offset that no commit of the group had before."""

    def drawn_retention(self) -> float | None:
        """The retention time that the next commit gives itself, in seconds."""

    async def opened(self) -> bool:
        """Returns once members are wanted; False if they were wanted already."""

    def wanted(self) -> bool:
        """Whether members are wanted now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A member as the group knows it in one generation."""

    member_id: str
    generation: int
    life: Life | None = None


NOBODY = Identity("", -1)


class StormMember:
    """One member.

    Args:
        name: of the member in reports.
        instance: the instance id of a static member.
    """

    def __init__(self, group: MemberGroup, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.stable = False
        """Whether the member has an assignment and knows of no rebalance."""
        self.identity = NOBODY
        self.partitions: tuple[int, ...] = ()
        self._group = group
        self._clock = group.cluster.world.clock
        self._stream = group.stream
        self._logger = group.cluster.world.logger
        self._id = ""
        self._old: Identity | None = None
        self._plans = 0

    async def run(self) -> None:
        """Is a member while the group wants members, until it is cancelled."""
        while True:
            connection: WireConnection | None = None
            try:
                connection = await self._group.cluster.coordinator(self._group.name)
                while True:
                    await self._step(connection)
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    def come_back(self) -> None:
        """Forgets the id, as a static member that starts again."""
        self._old = self.identity if self.stable else None
        self._id, self.stable = "", False

    async def _step(self, connection: WireConnection) -> None:
        if not self._group.wanted():
            await self._go(connection)
            await self._group.opened()
            raise Unreachable("the coordinator may be another one now")
        if not self.stable:
            await self._join(connection)
            return
        await self._heartbeat(connection, self.identity)
        if self._stream.random() < COMMIT_RATE:
            await self.commit(connection, self.identity, self.partitions)
        if not self._group.calm and self._stream.random() < EVENT_RATE:
            await self._event(connection)
        await self._clock.sleep(HEARTBEAT_SECONDS * self._stream.random() * 2)

    async def _event(self, connection: WireConnection) -> None:
        drawn = self._stream.random()
        if drawn < 0.3 or (self.instance is not None and drawn < 0.6):
            if self.instance is not None:
                self.come_back()
            else:
                await self._go(connection)
            return
        # Away for a while: under the old identity (a pause), or as one that starts again.
        if self._stream.random() < 0.5:
            self.come_back()
        await self._clock.sleep(GONE_SECONDS_MAX * self._stream.random())

    async def _go(self, connection: WireConnection) -> None:
        """Leaves the group, or vanishes from it."""
        given, self._id, self.stable = self._id, "", False
        if given and (self._group.calm or self._stream.random() < 0.7):
            identity = MemberIdentity(member_id="" if self.instance else given, group_instance_id=self.instance)
            request = LeaveGroupRequest(group_id=self._group.name, members=[identity])
            await connection.request(request, LEAVE_VERSION, LeaveGroupResponse)

    # Joining

    async def _join(self, connection: WireConnection) -> None:
        metadata = encode_prefixed(ConsumerProtocolSubscription(topics=[self._group.read]), 1)
        request = JoinGroupRequest(
            group_id=self._group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = await connection.request(request, self._stream.choice(JOIN_VERSIONS), JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            return
        self._expect(joined.error_code, "join")
        self._id = joined.member_id
        await self._sync(connection, joined)

    async def _sync(self, connection: WireConnection, joined: JoinGroupResponse) -> None:
        self._plans += 1
        ids = [] if joined.skip_assignment else [member.member_id for member in joined.members]
        called = self._clock.monotonic()
        request = SyncGroupRequest(
            group_id=self._group.name,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.instance,
            assignments=assignments_of(f"{self.name}/{self._plans}", ids, self._group.partitions),
        )
        synced = await connection.request(request, SYNC_VERSION, SyncGroupResponse)
        self._expect(synced.error_code, "sync")
        plan, self.partitions = plan_and_partitions(synced.assignment)
        now = self._clock.monotonic()
        name = self.name if self.instance else joined.member_id
        life = self._group.generations.synced(
            name, joined.member_id, joined.generation_id, called, now, plan, self.partitions
        )
        before, self.identity = self.identity, Identity(joined.member_id, joined.generation_id, life)
        self.stable = True
        if self.instance and before.generation == joined.generation_id and before.member_id != joined.member_id:
            self._logger.debug("static_member_came_back", name=self.name)
        old, self._old = self._old, None
        if self.instance and old is not None and old.member_id != joined.member_id:
            await self._heartbeat(connection, old, of_old=True)
            await self.commit(connection, old, self.partitions)

    async def _heartbeat(self, connection: WireConnection, identity: Identity, *, of_old: bool = False) -> None:
        called = self._clock.monotonic()
        request = HeartbeatRequest(
            group_id=self._group.name,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self.instance,
        )
        answer = await connection.request(request, HEARTBEAT_VERSION, HeartbeatResponse)
        if answer.error_code == ErrorCode.NONE and self._group.heartbeats_count:
            self._succeeded(identity, called, "heartbeat")
        if not of_old:
            self._expect(answer.error_code, "heartbeat")
        elif answer.error_code == ErrorCode.FENCED_INSTANCE_ID:
            self._logger.debug("old_id_fenced", name=self.name)

    # Commits

    async def commit(self, connection: WireConnection, identity: Identity, partitions: Sequence[int]) -> bool:
        """Commits an offset of its own for each partition, and one of a topic that nobody reads; True if it is done."""
        group = self._group
        places: list[Place] = [(group.read, partition) for partition in partitions]
        if group.commits_unread and self._stream.random() < 0.3:
            places.append((group.unread, 0))
        if not places:
            return True
        error, called = await send_commit(group, connection, places, identity, self.instance)
        if error is ErrorCode.NONE:
            self._succeeded(identity, called, "commit")
        elif identity is self.identity:
            self._expect(error, "commit")
        return error is ErrorCode.NONE

    def _succeeded(self, identity: Identity, called: float, what: str) -> None:
        assert identity.life is not None
        now = self._clock.monotonic()
        self._group.offsets.had_members(called, now)
        name = self.name if self.instance else identity.member_id
        self._group.generations.accepted(identity.life, name, identity.member_id, identity.generation, called, what)

    def _expect(self, code: int, what: str) -> None:
        """Raises `Unreachable` for an error that another try may settle; a refusal also ends the membership."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            return
        if error in REFUSED:
            self.stable = False
        if error in NO_LONGER:
            self._id = ""
        if error in REFUSED or error.retriable:
            raise Unreachable(f"{what}: {error.name}")
        raise ProduceRefused(f"{self.name}: {what}: {error.name}: {error.text}")


async def send_commit(
    group: MemberGroup,
    connection: WireConnection,
    places: Sequence[Place],
    identity: Identity = NOBODY,
    instance: str | None = None,
) -> tuple[ErrorCode, float]:
    """Commits one new offset to each place, and settles the commits; returns the error, and the time of the request."""
    clock = group.cluster.world.clock
    lasts, called, offset = group.drawn_retention(), clock.monotonic(), group.next_offset()
    commits = {place: group.offsets.commits(place, offset, called, lasts) for place in places}
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic, partition in places:
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group.name,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=None if lasts is not None else instance,
        retention_time_ms=-1 if lasts is None else round(lasts * 1000),
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    version = COMMIT_VERSION if lasts is None else COMMIT_VERSION_WITH_RETENTION
    answer = await connection.request(request, version, OffsetCommitResponse)
    first = ErrorCode.NONE
    for found in answer.topics:
        for result in found.partitions:
            error = ErrorCode(result.error_code)
            if error is ErrorCode.NONE or error in REFUSED:
                outcome = CommitOutcome.REFUSED if error else CommitOutcome.DONE
                commits[found.name, result.partition_index].settle(outcome, clock.monotonic())
            first = first or error
    return first, called
