"""A storm client: a whole group, with static and dynamic members, whose offsets expire and are deleted.

    scenario = LogScenario(..., beside={"group": partial(keep_group, retention_seconds=4.0)})

`offsets_truth` and `generations_truth` have the rules during the storm. After it these are added:

1. All members come into one generation, in which each partition has an owner.
2. A static member that comes back changes neither the generation nor any assignment.
3. An offset of a topic that no member reads expires while the group is stable.
4. After the last member left, the offsets expire and the group is forgotten, or DeleteGroups removes both.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import trio

from gnomon.runtime.world import Unreachable
from gnomon.testing.storms.groups.generations_truth import GenerationsTruth
from gnomon.testing.storms.groups.group_member import StormMember, send_commit
from gnomon.testing.storms.groups.offsets_truth import OffsetsTruth, Place
from gnomon.testing.storms.kafka.group_checker import NO_OFFSET, CommitOutcome
from gnomon.testing.storms.kafka.log_clients import RETRY_SECONDS, ProduceRefused
from gnomon.testing.storms.kafka.storm_clients import (
    OFFSET_FETCH_VERSION,
    ask_until,
    create_topic,
    delete_offset,
    expect,
)
from gnomon.testing.storms.kafka.wire_client import WireCluster, WireConnection
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

PARTITIONS = 3
RENEWED = 5
"""Offsets of a group without members that are committed again when they are about to expire."""
DESCRIBE_VERSION, LIST_VERSION, DELETE_VERSION = 6, 5, 2
RETENTION_CHECK_SECONDS = 0.5
"""The interval at which coordinators look for old offsets in these scenarios."""
LATE_SECONDS = 3.0
"""An expiry comes this long after it is due, at most, once the faults are over."""
OWN_RETENTION_SECONDS = 2.0
SHORT_SECONDS = 60.0
"""A client waits for an expiry if offsets are kept for less than this."""
ALONE_RATE = 0.25
"""The share of groups without members: only tools commit to them."""
OPEN_SECONDS_MEAN, CLOSED_SECONDS_MEAN = 6.0, 3.0
FETCH_SECONDS_MEAN = 0.4
ADMIN_SECONDS_MEAN = 1.0
SETTLE_SECONDS = 20.0
"""Time after a storm in which the last pause and cut end, leases too, and brokers and bookies come back."""
QUIET_SECONDS = 2.0
Shown: TypeAlias = dict[Place, int]


async def keep_group(
    cluster: WireCluster,
    seconds: float,
    *,
    retention_seconds: float = 4.0,
    name: str = "group",
    several: bool = False,
) -> None:
    """Runs a group through a storm of `seconds`, and to its end.

    Args:
        retention_seconds: the retention time of offsets, as the brokers have it.
        several: whether there may be several brokers: then one that was replaced may still answer heartbeats.

    Raises:
        ProduceRefused: a rule does not hold.
    """
    await StormGroup(cluster, name, retention_seconds, several).run(seconds)


class StormGroup:
    """One group, its members and its administrators."""

    def __init__(self, cluster: WireCluster, name: str, retention_seconds: float, several: bool) -> None:
        self.cluster, self.name = cluster, name
        self.read, self.unread = f"{name}-read", f"{name}-unread"
        self.partitions = PARTITIONS
        self.calm = False
        self.commits_unread = True
        self.heartbeats_count = not several
        self.stream = cluster.world.random(f"group/{name}")
        has_members = self.stream.random() > ALONE_RATE
        static, dynamic = (self.stream.randint(0, 2), self.stream.randint(1, 2)) if has_members else (0, 0)
        self._deletes, self._own_retention = self.stream.random() < 0.5, self.stream.random() < 0.3
        self._retention_seconds = retention_seconds
        self._short = retention_seconds < SHORT_SECONDS
        self._expiry_seconds = retention_seconds + RETENTION_CHECK_SECONDS + LATE_SECONDS
        self.offsets = OffsetsTruth(
            retention_seconds, has_members=static + dynamic > 0, unread=frozenset([self.unread])
        )
        self.generations = GenerationsTruth(self.offsets.may_have_ended)
        names = [f"{name}-{number}" for number in range(static + dynamic)]
        self.members = [StormMember(self, each, each if at < static else None) for at, each in enumerate(names)]
        self._places = [(self.read, number) for number in range(PARTITIONS)] + [(self.unread, 0)]
        self._renewed = [(self.unread, number) for number in range(1, 1 + RENEWED)]
        self._offset = 0
        self._open = trio.Event()
        self._clock = cluster.world.clock
        self._logger = cluster.world.logger

    # For the members

    def next_offset(self) -> int:
        """See `MemberGroup`."""
        self._offset += 1
        return self._offset

    def drawn_retention(self) -> float | None:
        """See `MemberGroup`."""
        own = self._own_retention and not self.calm and self.stream.random() < 0.3
        return OWN_RETENTION_SECONDS if own else None

    async def opened(self) -> bool:
        """See `MemberGroup`."""
        waited = not self._open.is_set()
        await self._open.wait()
        return waited

    def wanted(self) -> bool:
        """See `MemberGroup`."""
        return self._open.is_set()

    # The storm

    async def run(self, seconds: float) -> None:
        """Runs the group; raises as `keep_group`."""
        await create_topic(self.cluster, self.read, {}, PARTITIONS)
        await create_topic(self.cluster, self.unread, {}, 1 + RENEWED)
        end = self._clock.monotonic() + seconds
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.run)
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as disturbing:
                    disturbing.start_soon(self._open_and_close)
                    disturbing.start_soon(self._watch)
                    disturbing.start_soon(self._administer)
                    if self._short and not self.members:
                        for place in self._renewed:
                            disturbing.start_soon(self._renew, place)
            await self._clock.sleep(max(0.0, end - self._clock.monotonic()))
            await self._finish()
            nursery.cancel_scope.cancel()

    async def _open_and_close(self) -> None:
        while True:
            self._open.set()
            await self._clock.sleep(self.stream.expovariate(1 / OPEN_SECONDS_MEAN))
            self._open = trio.Event()
            await self._clock.sleep(self.stream.expovariate(1 / CLOSED_SECONDS_MEAN))

    async def _watch(self) -> None:
        while True:
            connection: WireConnection | None = None
            try:
                connection = await self.cluster.coordinator(self.name)
                while self.stream.random() > 0.05:
                    await self._fetch(connection)
                    await self._clock.sleep(self.stream.expovariate(1 / FETCH_SECONDS_MEAN))
            except Unreachable:
                await self._clock.sleep(RETRY_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    async def _administer(self) -> None:
        """Deletes the group and offsets at times, and commits as a tool that is no member."""
        while True:
            connection: WireConnection | None = None
            await self._clock.sleep(self.stream.expovariate(1 / ADMIN_SECONDS_MEAN))
            try:
                connection = await self.cluster.coordinator(self.name)
                drawn = self.stream.random()
                if self._deletes and drawn < 0.3:
                    await self._delete_group(connection)
                elif self._deletes and drawn < 0.5:
                    await self._delete_offset(connection, self.stream.choice(self._places))
                else:
                    places = self.stream.sample(self._places, self.stream.randint(1, len(self._places)))
                    await send_commit(self, connection, places)
            except Unreachable:
                pass
            finally:
                if connection is not None:
                    connection.close()

    async def _renew(self, place: Place) -> None:
        """Commits when the offset committed before is about to expire, so that the commit is under way meanwhile."""
        while True:
            error, _ = await ask_until(
                self.cluster,
                lambda connection: send_commit(self, connection, [place]),
                partial(self.cluster.coordinator, self.name),
            )
            self._logger.debug("offset_renewed", error=error)
            late = RETENTION_CHECK_SECONDS * self.stream.random() ** 3
            await self._clock.sleep(self._retention_seconds + late)

    # Requests

    async def _fetch(self, connection: WireConnection) -> Shown:
        """Fetches all offsets, by name or as all that there are; judges them."""
        called = self._clock.monotonic()
        topics = None
        if self.stream.random() < 0.7:
            by_topic = {self.read: list(range(PARTITIONS)), self.unread: list(range(1 + RENEWED))}
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in by_topic.items()]
        request = OffsetFetchRequest(group_id=self.name, topics=topics)
        answer = await connection.request(request, OFFSET_FETCH_VERSION, OffsetFetchResponse)
        expect(answer.error_code, "fetch of offsets")
        shown = dict.fromkeys([*self._places, *self._renewed], NO_OFFSET)
        for topic in answer.topics:
            for part in topic.partitions:
                expect(part.error_code, "fetch of an offset")
                shown[topic.name, part.partition_index] = part.committed_offset
        self._judge(shown, called)
        return shown

    def _judge(self, shown: Shown, called: float) -> None:
        gone = self.offsets.gone
        for place, offset in shown.items():
            self.offsets.fetched(place, offset, called, self._clock.monotonic())
        if self.offsets.gone > gone:
            self._logger.debug("offsets_gone", places=self.offsets.gone - gone)
        self._check()

    def _check(self) -> None:
        wrong = [*self.offsets.wrong, *self.generations.wrong]
        if wrong:
            raise ProduceRefused(f"{self.name}: " + "; ".join(wrong))

    async def _delete_group(self, connection: WireConnection) -> ErrorCode:
        called = self._clock.monotonic()
        deletion = self.offsets.deletes(None, called)
        request = DeleteGroupsRequest(groups_names=[self.name])
        answer = await connection.request(request, DELETE_VERSION, DeleteGroupsResponse)
        allowed = (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
        error = expect(answer.results[0].error_code, "deletion of the group", *allowed)
        deletion.settle(CommitOutcome.REFUSED if error else CommitOutcome.DONE, self._clock.monotonic())
        self._logger.debug("group_deletion_refused" if error else "group_deleted")
        if error is ErrorCode.GROUP_ID_NOT_FOUND and self.heartbeats_count:
            self._judge(dict.fromkeys(self._places, NO_OFFSET), called)
        return error

    async def _delete_offset(self, connection: WireConnection, place: Place) -> None:
        topic, partition = place
        deletion = self.offsets.deletes(place, self._clock.monotonic())
        error = await delete_offset(connection, self.name, topic, partition)
        deletion.settle(CommitOutcome.REFUSED if error else CommitOutcome.DONE, self._clock.monotonic())
        self._logger.debug("offset_deletion_refused" if error else "offset_deleted")

    async def _state(self, connection: WireConnection) -> str:
        request = DescribeGroupsRequest(groups=[self.name])
        answer = (await connection.request(request, DESCRIBE_VERSION, DescribeGroupsResponse)).groups[0]
        expect(answer.error_code, "description of the group", ErrorCode.GROUP_ID_NOT_FOUND)
        return answer.group_state

    async def _is_listed(self, connection: WireConnection) -> bool:
        answer = await connection.request(ListGroupsRequest(), LIST_VERSION, ListGroupsResponse)
        expect(answer.error_code, "list of groups")
        return self.name in [group.group_id for group in answer.groups]

    # After the storm

    async def _finish(self) -> None:
        self.calm = True
        self._open.set()
        await self._clock.sleep(SETTLE_SECONDS)
        find = partial(self.cluster.coordinator, self.name)
        if self.members:
            await self._settled()
            await self._come_back_one_by_one()
            if self._short:
                await self._expire_unread()
            self._open = trio.Event()
            while (state := (await ask_until(self.cluster, self._state, find))[0]) not in ("Empty", "Dead"):
                self._logger.debug("group_not_empty", state=state)
                await self._clock.sleep(RETRY_SECONDS)
        await ask_until(self.cluster, self._fetch, find)
        left_at = self._clock.monotonic()
        while not self._short:
            error, _ = await ask_until(self.cluster, self._delete_group, find)
            if error is not ErrorCode.NON_EMPTY_GROUP:
                break
        while (shown := (await ask_until(self.cluster, self._fetch, find))[0]) and any(
            offset != NO_OFFSET for offset in shown.values()
        ):
            self._in_time(left_at, f"offsets {shown} are left of the group")
            await self._clock.sleep(RETRY_SECONDS)
        while (state := (await ask_until(self.cluster, self._state, find))[0]) != "Dead":
            self._in_time(left_at, f"the group is {state}")
            await self._clock.sleep(RETRY_SECONDS)
        if (await ask_until(self.cluster, self._is_listed, find))[0]:
            raise ProduceRefused(f"{self.name} is listed after it was deleted")
        self._check()

    def _in_time(self, since: float, what: str) -> None:
        if self._clock.monotonic() > since + self._expiry_seconds:
            raise ProduceRefused(f"{self.name}: {what} {self._clock.monotonic() - since:.1f} s after its last member")

    async def _settled(self) -> None:
        """Waits until the members were in one generation for a while, and each partition has an owner."""
        since, generation = self._clock.monotonic(), -1
        while self._clock.monotonic() < since + QUIET_SECONDS or not self._whole():
            found = {member.identity.generation for member in self.members if member.stable}
            if not self._whole() or found != {generation}:
                since, generation = self._clock.monotonic(), max(found, default=-1)
            await self._clock.sleep(RETRY_SECONDS)
            self._check()

    def _whole(self) -> bool:
        owned = sorted(number for member in self.members for number in member.partitions)
        generations = {member.identity.generation for member in self.members}
        together = all(member.stable for member in self.members) and len(generations) == 1
        return together and owned == list(range(PARTITIONS))

    async def _come_back_one_by_one(self) -> None:
        for member in self.members:
            if member.instance is None:
                continue
            before = {each.name: (each.identity.generation, each.partitions) for each in self.members}
            member.come_back()
            while not member.stable:
                await self._clock.sleep(RETRY_SECONDS)
            await self._settled()
            after = {each.name: (each.identity.generation, each.partitions) for each in self.members}
            if before != after:
                raise ProduceRefused(f"{self.name}: {member.name} came back, and {before} became {after}")

    async def _expire_unread(self) -> None:
        """Waits until an offset of the unread topic, which the members commit no more, is gone."""
        find = partial(self.cluster.coordinator, self.name)
        self.commits_unread = False
        since = self._clock.monotonic()
        while (await ask_until(self.cluster, self._fetch, find))[0][self.unread, 0] != NO_OFFSET:
            self._in_time(since, "an offset of a topic that no member reads is left")
            await self._clock.sleep(RETRY_SECONDS)
