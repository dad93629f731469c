"""The group coordinator of a broker: takes each request to the partition of `__consumer_offsets` its group lives in.

Group ids are hashed as Kafka does it, so that the group's records lie where Kafka's tools look for them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.call import Call, DeleteTopicOffsetsRequest, refusal
from gnomon.broker.groups.coordinator_state import GroupShard
from gnomon.broker.groups.hosted_shard import HostedShard, wire_error
from gnomon.broker.groups.offsets_log import OffsetsLogs
from gnomon.broker.groups.settings import GroupSettings
from gnomon.broker.groups.turn import Effects
from gnomon.runtime.logs import Logger
from gnomon.runtime.outcome import outcome_of
from gnomon.runtime.timers import Timers
from gnomon.runtime.world import World
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import FETCH_GROUPS_SINCE, OffsetFetchRequest, OffsetFetchResponse
from gnomon.wire.kafka.schema import Message

Answer: TypeAlias = Callable[[Any], None]

PARTS_PER_TURN = 256
"""Of a request about more groups the rest waits, so that others have their turn: each takes some 30 us."""
SENT_AWAY_SECONDS = 10.0
"""Members hear by a heartbeat where their coordinator is: by default of all clients there is one every 3 s."""


_UTF_16 = codecs.lookup("utf-16-le")
"""Now: on first use there may be no file descriptor left to import it with."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that holds a group: Java's hash of its id, without sign."""
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
        partition_count: gives how many the topic has, or will have once it is there.
        settings: gives the settings as they are now.
        logger: of the node.
        leads: whether a partition's groups are this broker's, as far as it knows; who asks for others is sent away.
        lease_lives: whether nobody can have taken this broker for dead yet; else it coordinates nothing.
    """

    def __init__(
        self,
        world: World,
        timers: Timers,
        logs: OffsetsLogs,
        partition_count: Callable[[], int],
        settings: Callable[[], GroupSettings],
        logger: Logger,
        leads: Callable[[int], bool],
        lease_lives: Callable[[], bool],
    ) -> None:
        self._clock = world.clock
        self._random = world.random("groups")
        self._timers = timers
        self._logs = logs
        self._partition_count = partition_count
        self._settings = settings
        self._logger = logger
        self._leads = leads
        self._lease_lives = lease_lives
        self._shards: dict[int, HostedShard] = {}
        self._asked_in_vain: dict[int, float] = {}
        """Since when offsets are asked for here that another broker has, by partition."""
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until it is cancelled; start it (`nursery.start`) before the first request."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def handle(
        self, request: Message, version: int, client_id: str, client_host: str, reply: Callable[[Message], None]
    ) -> None:
        """Handles one request of a client.

        OffsetCommit and OffsetFetch go by topic names: in versions that send topic ids the caller fills the names in,
        and the ids of an answer about all topics.

        Args:
            request: decoded; any message of `messages.group` (but FindCoordinator), `group_admin` or `offsets`.
            version: its API version.
            client_id: how the client calls itself.
            client_host: its address as Kafka's tools show it.
            reply: gets the answer, once: now or later, perhaps after the client is gone.
        """
        call = Call(request, version, client_id, client_host, reply)
        match request:
            case ListGroupsRequest():
                self._start_soon(lambda: self._list(call))
            case DescribeGroupsRequest() | DeleteGroupsRequest():
                self._ask_each(call, *_split(call))
            case OffsetFetchRequest() if version >= FETCH_GROUPS_SINCE:
                self._ask_each(call, *_split(call))
            case _:
                self._ask(partition_for(call.request.group_id, self._partition_count()), call)

    def drain(self) -> None:
        """The broker ends and takes no more requests: see `HostedShard.drain`."""
        for shard in list(self._shards.values()):
            shard.drain()

    def release(self) -> None:
        """Leaders have changed: lets go of the groups that are another broker's now, and tells who waits."""
        self._asked_in_vain = {
            partition: since for partition, since in self._asked_in_vain.items() if not self._leads(partition)
        }
        for partition in [partition for partition in self._shards if not self._leads(partition)]:
            self._shards.pop(partition).release()

    async def delete_topic_offsets(self, topics: Sequence[str]) -> tuple[list[int], list[int]]:
        """Deletes the offsets of topics that were deleted from all groups that are certainly this broker's.

        Returns:
            The partitions that were seen to, and those in use that others see to, or may.

        Raises:
            KafkaError: some could not be deleted; whether others were is unknown. Trying again is safe.
        """
        request = DeleteTopicOffsetsRequest(topics=list(topics))
        used = await self._used()
        mine = [partition for partition in used if self._coordinates(partition)]
        parts = [(partition, request) for partition in mine]
        answers: list[Any] = await outcome_of(
            lambda done: self._gather(parts, Call(request, 0, "", "", None), lambda answers: done(answers, None))
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

    def _coordinates(self, partition: int) -> bool:
        return self._leads(partition) and self._lease_lives()

    def _start_soon(self, call: Callable[[], Any]) -> None:
        if self._nursery is not None:  # else it is stopping: what the last commits bring starts nothing new
            self._nursery.start_soon(call)

    def _shard(self, partition: int) -> HostedShard:
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = HostedShard(
                partition, self._logs, self._new_shard, self._clock, self._timers, self._start_soon, self._logger
            )
        return shard

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._settings, lambda: str(UUID(int=self._random.getrandbits(128), version=4)))

    def _ask(self, partition: int, call: Call) -> None:
        def run(shard: GroupShard, now: float, wall_ms: int) -> Effects:
            return shard.handle(call, now, wall_ms)

        def refuse(error: ErrorCode) -> None:
            asks_for_offsets = isinstance(call.request, OffsetFetchRequest)
            call.token(refusal(call, self._offsets_refusal(partition) if asks_for_offsets else error))

        if not self._coordinates(partition):
            refuse(ErrorCode.NOT_COORDINATOR)
        elif isinstance(call.request, OffsetFetchRequest | DeleteTopicOffsetsRequest):
            self._shard(partition).ask(run, refuse)
        else:
            self._shard(partition).submit(run, refuse)

    def _offsets_refusal(self, partition: int) -> ErrorCode:
        """What who asks for offsets is told where they cannot be told now: to ask again, before it is sent elsewhere.

        librdkafka (2.16) asks again after COORDINATOR_LOAD_IN_PROGRESS, and never after NOT_COORDINATOR or
        COORDINATOR_NOT_AVAILABLE (its issue 5586): a member that is told these after it joined holds its partitions,
        and reads nothing of them, for as long as nobody else joins or leaves. While it asks again its heartbeats tell
        it where the coordinator is. Who sends none is told so here, after SENT_AWAY_SECONDS.
        """
        if self._leads(partition):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        now = self._clock.monotonic()
        sent_away = now - self._asked_in_vain.setdefault(partition, now) >= SENT_AWAY_SECONDS
        return ErrorCode.NOT_COORDINATOR if sent_away else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _ask_each(
        self, call: Call, parts: Sequence[tuple[str, Message]], merge: Callable[[list[Any]], Message]
    ) -> None:
        count = self._partition_count()
        named: dict[str, Message] = {}
        for group_id, request in parts:
            named.setdefault(group_id, request)  # one that is named again is asked for once, as in Kafka
        placed = [(partition_for(group_id, count), request) for group_id, request in named.items()]
        self._gather(placed, call, lambda answers: call.token(merge(answers)))

    def _gather(self, parts: Collection[tuple[int, Message]], call: Call, done: Callable[[list[Any]], None]) -> None:
        """Asks shards for parts of a call; `done` gets their answers, in order, when the last one is there."""
        answers: list[Any] = [None] * len(parts)
        missing = len(parts)

        def answer_to(index: int) -> Answer:
            def answered(response: Any) -> None:
                nonlocal missing
                answers[index] = response
                missing -= 1
                if not missing:
                    done(answers)

            return answered

        def ask(index: int, partition: int, request: Message) -> None:
            self._ask(partition, Call(request, call.version, call.client_id, call.client_host, answer_to(index)))

        async def ask_in_turns() -> None:
            for index, part in enumerate(parts):
                ask(index, *part)
                if index % PARTS_PER_TURN == PARTS_PER_TURN - 1:
                    await trio.lowlevel.checkpoint()

        if len(parts) > PARTS_PER_TURN:
            self._start_soon(ask_in_turns)
            return
        for index, part in enumerate(parts):
            ask(index, *part)
        if not parts:
            done([])

    async def _used(self) -> list[int]:
        return sorted({*await self._logs.used(), *self._shards})

    async def _list(self, call: Call) -> None:
        try:
            partitions = [partition for partition in await self._used() if self._coordinates(partition)]
        except KafkaError as error:
            call.token(refusal(call, wire_error(error)))
            return

        def listed(answers: list[Any]) -> None:
            errors = [answer.error_code for answer in answers if answer.error_code]
            groups = [group for answer in answers for group in answer.groups]
            call.token(ListGroupsResponse(error_code=errors[0] if errors else ErrorCode.NONE, groups=groups))

        self._gather([(partition, call.request) for partition in partitions], call, listed)


def _split(call: Call) -> tuple[list[tuple[str, Message]], Callable[[list[Any]], Message]]:
    """The parts of a request about several groups, each with its group id, and how to join their answers."""
    request = call.request
    match request:
        case DescribeGroupsRequest():
            asked = request.include_authorized_operations
            return (
                [
                    (name, DescribeGroupsRequest(groups=[name], include_authorized_operations=asked))
                    for name in request.groups
                ],
                lambda answers: DescribeGroupsResponse(groups=[answer.groups[0] for answer in answers]),
            )
        case DeleteGroupsRequest():
            return (
                [(name, DeleteGroupsRequest(groups_names=[name])) for name in request.groups_names],
                lambda answers: DeleteGroupsResponse(results=[answer.results[0] for answer in answers]),
            )
        case _:
            return (
                [
                    (group.group_id, OffsetFetchRequest(groups=[group], require_stable=request.require_stable))
                    for group in request.groups
                ],
                lambda answers: OffsetFetchResponse(groups=[answer.groups[0] for answer in answers]),
            )
