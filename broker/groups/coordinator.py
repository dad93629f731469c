"""The group coordinator of a broker: passes each request to the `__consumer_offsets` partition that holds its group.

Group ids are hashed as in Kafka, so that Kafka's tools find a group's records.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never, assert_never
from uuid import UUID

import trio

from gnomon.broker.coordination.hosted_machines import HostedMachines
from gnomon.broker.coordination.state_log import LogUnavailable, StateLogs
from gnomon.broker.coordination.state_machine import Refusal
from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.call import (
    DeleteTopicOffsetsRequest,
    DeletionUnfinished,
    GroupCall,
    GroupPage,
    GroupPageRequest,
    error_of,
    refused,
)
from gnomon.broker.groups.group_admin import states_asked_for
from gnomon.broker.groups.group_shard import GroupShard
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.groups.parts import OFFSETS_MAX, RequestPart, joined, parts_of, with_places
from gnomon.broker.groups.records import CoordinatorRecord
from gnomon.broker.groups.settings import GroupSettings
from gnomon.runtime.logs import Logger
from gnomon.runtime.loop.paced import PAUSE_SECONDS, paced
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.tasks import OwnTasks
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from gnomon.wire.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import OffsetFetchRequest
from gnomon.wire.kafka.schema import ProtocolMessage

WEIGHT_PER_TURN = OFFSETS_MAX
"""The weight of the parts of one request that the coordinator passes on in a turn of the event loop."""
SHARD_WEIGHT = OFFSETS_MAX // 10
"""The weight of a request for all groups of one partition."""
SENT_AWAY_SECONDS = 10.0
"""Longer than a member takes to find its coordinator by a heartbeat: clients send one every 3 s by default."""


_UTF_16 = codecs.lookup("utf-16-le")
"""Looked up at import: on first use there may be no file descriptor left to load it with."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that holds a group: the absolute value of Java's hash of its id."""
    hashed = 0
    units = memoryview(_UTF_16.encode(group_id)[0]).cast("H")
    for unit in units:
        hashed = (hashed * 31 + unit) & 0xFFFF_FFFF
    if hashed >= 1 << 31:
        hashed = 0 if hashed == 1 << 31 else (1 << 32) - hashed
    return hashed % partition_count


class GroupCoordinator:
    """All groups of a broker.

    Args:
        world: gives the clock, and the randomness of member ids.
        timers: of the node, running.
        logs: the partitions of `__consumer_offsets`.
        partition_count: returns the number of partitions that the topic has, or will have once it is created.
        settings: gives the settings as they are now.
        logger: of the node.
        leads: whether this broker leads a partition, as far as it knows; requests for other groups are refused.
        lease_lives: whether this broker's lease certainly lives; otherwise it coordinates nothing.
    """

    def __init__(
        self,
        world: World,
        timers: Timers,
        logs: StateLogs,
        partition_count: Callable[[], int],
        settings: Callable[[], GroupSettings],
        logger: Logger,
        leads: Callable[[int], bool],
        lease_lives: Callable[[], bool],
    ) -> None:
        self._clock = world.clock
        self._random = world.random("groups")
        self._partition_count = partition_count
        self._settings = settings
        self.memory = MembersMemory()
        self._leads = leads
        self._machines: HostedMachines[GroupCall, CoordinatorRecord, Never] = HostedMachines(
            logs,
            self._new_shard,
            _no_effect,
            leads,
            lease_lives,
            world.clock,
            timers,
            logger.bind(machine="groups"),
        )
        self._asked_in_vain: dict[int, float] = {}
        """By partition that another broker leads: when OffsetFetch requests for it began to be refused here."""
        self._tasks = OwnTasks()
        self._one_listing = trio.Lock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until it is cancelled; start it (`nursery.start`) before the first request."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tasks.run)
            await nursery.start(self._machines.run)
            task_status.started()

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of every durable commit of the groups that are loaded here."""
        for machine in self._machines.loaded():
            assert isinstance(machine, GroupShard), "groups are in shards"
            yield from machine.committed()

    def handle(
        self,
        request: ProtocolMessage,
        version: int,
        client_id: str,
        client_host: str,
        reply: Callable[[ProtocolMessage], None],
    ) -> None:
        """Handles one request of a client.

        OffsetCommit and OffsetFetch use topic names. In versions that send topic ids, the caller fills in the names,
        and the ids of an answer about all topics.

        Args:
            request: decoded; any message of `messages.group` (except FindCoordinator), `group_admin` or `offsets`.
            version: its API version.
            client_id: the name that the client gives itself.
            client_host: its address as Kafka's tools show it.
            reply: called with the response, once: now or later, perhaps after the client is gone.
        """
        call = GroupCall(request, version, client_id, client_host, reply)
        match request:
            case ListGroupsRequest():
                self._tasks.start_soon(self._list, call)
            case JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest():
                self._ask(partition_for(call.request.group_id, self._partition_count()), call)
            case _:
                self._ask_parts(call)

    def drain(self) -> None:
        """The broker is about to stop: members that wait for other members are sent to find their coordinator again.

        Kafka's coordinator does the same when a partition of it moves. Members that come back in time are known.
        """
        self._machines.drain()

    def release(self) -> None:
        """Leaders have changed: gives up the groups that other brokers coordinate now, and refuses waiting requests."""
        self._asked_in_vain = {
            partition: since for partition, since in self._asked_in_vain.items() if not self._leads(partition)
        }
        self._machines.leaders_changed()

    async def delete_topic_offsets(self, topics: Sequence[str]) -> tuple[list[int], list[int]]:
        """Deletes the offsets of deleted topics in all groups that this broker certainly coordinates.

        Returns:
            The partitions that were served here, and the partitions in use that other brokers serve, or may serve.

        Raises:
            KafkaError: not all could be deleted, and it is unknown which ones were. A retry is safe.
        """
        request = DeleteTopicOffsetsRequest(topics=list(topics), group_ids=None)
        try:
            used = await self._machines.used()
        except LogUnavailable as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        mine = [partition for partition in used if self._machines.serves(partition)]
        parts = ((partition, RequestPart("", request, SHARD_WEIGHT)) for partition in mine)
        answers: list[Any] = await outcome_of(
            lambda done: self._gather(parts, GroupCall(request, 0, "", "", None), lambda answers: done(answers, None))
        )
        seen_to = []
        for partition, answer in zip(mine, answers, strict=True):
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                seen_to.append(partition)
            elif code is not ErrorCode.NOT_COORDINATOR:
                raise KafkaError(code, f"offsets of deleted topics could not be deleted: {code.text}; try again")
        return seen_to, [partition for partition in used if partition not in seen_to]

    # Asking shards

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._settings, self.memory, lambda: str(UUID(int=self._random.getrandbits(128), version=4)))

    def _ask(self, partition: int, call: GroupCall) -> None:
        def refuse(refusal: Refusal) -> None:
            asks_for_offsets = isinstance(call.request, OffsetFetchRequest)
            error = self._offsets_refusal(partition) if asks_for_offsets else error_of(refusal)
            call.token(refused(call, error))

        match call.request:
            case OffsetFetchRequest():
                self._machines.submit_confirmed(partition, call, refuse)
            case DeleteTopicOffsetsRequest():
                again = replace(call, token=lambda response: self._deleted(partition, call, response))
                self._machines.submit_confirmed(partition, again, refuse)
            case DeleteGroupsRequest():
                again = replace(call, token=lambda response: self._deleted(partition, call, response))
                self._machines.submit(partition, again, refuse)
            case GroupPageRequest(group_ids=None):
                self._ask_pages(partition, call, refuse)
            case _:
                self._machines.submit(partition, call, refuse)

    def _deleted(self, partition: int, call: GroupCall, response: ProtocolMessage) -> None:
        """Answers a deletion of offsets, or asks the shard again until it has finished."""
        if not isinstance(response, DeletionUnfinished):
            call.token(response)
            return
        request = call.request
        if isinstance(request, DeleteTopicOffsetsRequest):
            request = DeleteTopicOffsetsRequest(topics=request.topics, group_ids=response.group_ids)

        async def ask_again() -> None:
            await self._clock.sleep(PAUSE_SECONDS)
            self._ask(partition, replace(call, request=request))

        self._tasks.start_soon(ask_again)

    def _ask_pages(self, partition: int, call: GroupCall, refuse: Callable[[Refusal], None]) -> None:
        """Asks a shard for the pages of its groups, one after the other, and answers with one page of all."""
        groups: list[ListedGroup] = []

        def answered(page: GroupPage) -> None:
            groups.extend(page.groups)
            if page.error_code or page.position == len(page.group_ids):
                call.token(GroupPage(error_code=page.error_code, groups=groups))
                return
            rest = GroupPageRequest(states=call.request.states, group_ids=page.group_ids, position=page.position)

            async def ask_again() -> None:
                await self._clock.sleep(PAUSE_SECONDS)
                self._ask(partition, replace(call, request=rest, token=answered))

            self._tasks.start_soon(ask_again)

        self._machines.submit(partition, replace(call, token=answered), refuse)

    def _offsets_refusal(self, partition: int) -> ErrorCode:
        """The error of an OffsetFetch that is refused: first to ask again, and only later to ask another broker.

        librdkafka (2.16) asks again after COORDINATOR_LOAD_IN_PROGRESS, and never after NOT_COORDINATOR or
        COORDINATOR_NOT_AVAILABLE (its issue 5586): a member that gets one of these after it joined holds its
        partitions and reads nothing of them, until another member joins or leaves. While it asks again, its heartbeats
        find the coordinator. A client without heartbeats gets NOT_COORDINATOR after SENT_AWAY_SECONDS.
        """
        if self._leads(partition):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        now = self._clock.monotonic()
        sent_away = now - self._asked_in_vain.setdefault(partition, now) >= SENT_AWAY_SECONDS
        return ErrorCode.NOT_COORDINATOR if sent_away else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _ask_parts(self, call: GroupCall) -> None:
        asked = list[RequestPart]()

        def placed() -> Iterator[tuple[int, RequestPart]]:
            count = self._partition_count()
            for part in parts_of(call):
                asked.append(part)
                yield partition_for(part.group_id, count), part

        def answered(answers: list[Any]) -> None:
            again = with_places(call, asked, answers)
            if again is None:
                call.token(joined(call, answers))
            else:
                self._ask_parts(replace(call, request=again))

        self._gather(placed(), call, answered)

    def _gather(
        self, parts: Iterator[tuple[int, RequestPart]], call: GroupCall, done: Callable[[list[Any]], None]
    ) -> None:
        """Asks shards for parts of a call, given with their partitions; as many in a turn as WEIGHT_PER_TURN allows.

        Args:
            done: gets the answers, in order, after the last one arrived.
        """
        gathering = _Gathering(
            lambda partition, part, answered: self._ask(partition, replace(call, request=part.request, token=answered)),
            done,
        )

        async def ask_rest() -> None:
            async for partition, part in paced(parts, WEIGHT_PER_TURN, self._clock, lambda each: each[1].weight):
                await gathering.room()
                gathering.ask(partition, part)
            gathering.end()

        room = WEIGHT_PER_TURN
        for partition, part in parts:
            gathering.ask(partition, part)
            room -= part.weight
            if room <= 0:
                self._tasks.start_soon(ask_rest)
                return
        gathering.end()

    async def _list(self, call: GroupCall) -> None:
        """Answers with the groups of all shards. One listing is made at a time: its groups are all in memory."""
        async with self._one_listing:
            call.token(await self._listing(call))

    async def _listing(self, call: GroupCall) -> ProtocolMessage:
        try:
            used = await self._machines.used()
        except LogUnavailable:
            return refused(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        request = GroupPageRequest(states=states_asked_for(call.request), group_ids=None)
        part = RequestPart("", request, SHARD_WEIGHT)
        parts = ((partition, part) for partition in used if self._machines.serves(partition))
        pages: list[Any] = await outcome_of(
            lambda done: self._gather(parts, replace(call, request=request), lambda answers: done(answers, None))
        )
        errors = [page.error_code for page in pages if page.error_code]
        groups = [group for page in pages for group in page.groups]
        return ListGroupsResponse(error_code=errors[0] if errors else ErrorCode.NONE, groups=groups)


def _no_effect(effect: Never) -> None:
    assert_never(effect)


class _Gathering:
    """The answers to the parts of one call, some of which are still to come."""

    def __init__(
        self,
        ask: Callable[[int, RequestPart, Callable[[ProtocolMessage], None]], None],
        done: Callable[[list[Any]], None],
    ) -> None:
        """`done` gets the answers, in order, once `end` was called and all of them have come."""
        self._ask = ask
        self._done = done
        self._answers: list[Any] = []
        self._missing = 1  # the end
        self._waiting_weight = 0
        self._answered = trio.Event()

    def ask(self, partition: int, part: RequestPart) -> None:
        """Asks the shard of a partition for one more part."""
        index = len(self._answers)
        self._answers.append(None)
        self._missing += 1
        self._waiting_weight += part.weight
        self._ask(partition, part, partial(self._take, index, part.weight))

    def _take(self, index: int, weight: int, response: ProtocolMessage) -> None:
        self._answers[index] = response
        self._waiting_weight -= weight
        self._answered.set()
        self._came()

    def end(self) -> None:
        """No more parts follow."""
        self._came()

    def _came(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done(self._answers)

    async def room(self) -> None:
        """Waits for answers while many are missing: otherwise they would all come in the turn that confirms the log."""
        while self._waiting_weight >= WEIGHT_PER_TURN:
            self._answered = trio.Event()
            await self._answered.wait()
