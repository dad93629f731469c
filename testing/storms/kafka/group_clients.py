"""A storm client: the only member of a group subscribes in every format while its offsets are deleted.

    scenario = LogScenario(..., beside={"members": read_and_leave_topics})

1. The offset of a topic that the member reads is never lost: OffsetDelete refuses it while the group has the member.
2. The offset of a topic that nobody reads can be deleted in every format of the member's subscription.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from gnomon.testing.storms.kafka.log_clients import ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import (
    OFFSET_COMMIT_VERSION,
    OffsetsHistory,
    ask_until,
    create_topic,
    delete_offset,
    expect,
    fetch_offset,
)
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from gnomon.wire.kafka.schema import encode_prefixed

T = TypeVar("T")

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 5, 3, 3
SESSION_MS, REBALANCE_MS = 6000, 4000
ROUNDS_A_SECOND = 1.0
NO_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
UNREADABLE = (b"", b"\0", b"\0\1\0\0\0\1")


def subscriptions(topic: str) -> tuple[bytes, ...]:
    """Subscriptions to a topic in every version, each with all its fields, and cut after `user_data`."""
    said = ConsumerProtocolSubscription(topics=[topic])
    short = encode_prefixed(said, 0)[2:]
    versions = range(ConsumerProtocolSubscription.VERSIONS[1] + 1)
    return tuple(encode_prefixed(said, one) for one in versions) + tuple(bytes((0, one)) + short for one in versions)


class MembershipLost(Exception):
    """The group removed the member, or the member has to rejoin."""


async def read_and_leave_topics(cluster: WireCluster, seconds: float, *, group: str = "subscribers") -> None:
    """Joins repeatedly, commits offsets of a topic that the member reads and of one that it left, and deletes them."""
    clock, stream = cluster.world.clock, cluster.world.random(group)
    member = _OneMember(cluster, group)
    for topic in (member.read, member.left):
        await create_topic(cluster, topic, {})
    end, rounds = clock.monotonic() + seconds, 0
    while clock.monotonic() < end or not rounds:
        readable = stream.random() < 0.8
        metadata = stream.choice(subscriptions(member.read) if readable else UNREADABLE)
        try:
            await member.join(metadata)
            await member.commit_and_delete(readable)
            rounds += 1
        except MembershipLost:
            pass
        await clock.sleep(stream.expovariate(ROUNDS_A_SECOND))


class _OneMember:
    """The member, and the possible offsets of the topic that it reads."""

    def __init__(self, cluster: WireCluster, group: str) -> None:
        self.read, self.left = f"{group}-read", f"{group}-left"
        self._cluster = cluster
        self._group = group
        self._id, self._generation = "", -1
        self._history = OffsetsHistory()
        self._late_deletion = False
        """Whether a deletion of the read topic's offset may still be in flight, and reach a group without members."""

    async def join(self, metadata: bytes) -> None:
        """Joins a new generation with this subscription."""
        while True:
            protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = await self._ask(partial(_join, request))
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._id = joined.member_id
                continue
            self._expect(joined.error_code, "join")
            self._id, self._generation = joined.member_id, joined.generation_id
            break
        assignments = [SyncGroupRequestAssignment(member_id=self._id, assignment=b"all")]
        sync = SyncGroupRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._id, assignments=assignments
        )
        synced = await self._ask(lambda one: one.request(sync, SYNC_VERSION, SyncGroupResponse))
        self._expect(synced.error_code, "sync")

    async def commit_and_delete(self, readable: bool) -> None:
        """One round: commits an offset of both topics, then asks OffsetDelete to delete both."""
        await self._commit()
        left = await self._delete(self.left)
        if readable and left is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            raise ProduceRefused(f"{self.left}: {left.name}, although the only member reads {self.read} alone")
        if await self._delete(self.read) is not ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            await self._expect_lost()
            self._history = OffsetsHistory()
            return
        floor, seen = self._history.floor, await self._fetch()
        if seen != -1 or not self._late_deletion:
            self._history.check(seen, floor)

    async def _commit(self) -> None:
        history = self._history
        history.highest = offset = history.highest + 1
        history.doubtful.add(offset)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[part]) for name in (self.read, self.left)],
        )
        answer = await self._ask(lambda one: one.request(request, OFFSET_COMMIT_VERSION, OffsetCommitResponse))
        for topic in answer.topics:
            self._expect(topic.partitions[0].error_code, f"commit of {topic.name}")
        history.doubtful.discard(offset)
        history.floor = offset

    async def _delete(self, topic: str) -> ErrorCode:
        delete = partial(delete_offset, group=self._group, topic=topic, partition=0)
        find = partial(self._cluster.coordinator, self._group)
        error, doubtful = await ask_until(self._cluster, delete, find)
        self._late_deletion |= doubtful and topic == self.read
        return error

    async def _expect_lost(self) -> None:
        """Checks by a heartbeat that the group has removed the member: the offset of its topic was deleted."""
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._id)

        async def beat(connection: WireConnection) -> ErrorCode:
            answer = await connection.request(request, HEARTBEAT_VERSION, HeartbeatResponse)
            return expect(answer.error_code, "heartbeat", *NO_MEMBER)

        error = await self._ask(beat)
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise ProduceRefused(
                f"the offset of {self.read} was deleted, although its reader is still a member ({error.name})"
            )
        self._id = ""

    async def _fetch(self) -> int:
        return await self._ask(partial(fetch_offset, group=self._group, topic=self.read))

    async def _ask(self, ask: Callable[[WireConnection], Awaitable[T]]) -> T:
        return (await ask_until(self._cluster, ask, partial(self._cluster.coordinator, self._group)))[0]

    def _expect(self, code: int, what: str) -> None:
        error = ErrorCode(code)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        if error in NO_MEMBER or error.retriable:
            raise MembershipLost(f"{what}: {error.name}")
        expect(code, what)


async def _join(request: JoinGroupRequest, connection: WireConnection) -> JoinGroupResponse:
    return await connection.request(request, JOIN_VERSION, JoinGroupResponse)
