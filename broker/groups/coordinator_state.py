"""One partition of `__consumer_offsets`: all its groups, as a state machine over the partition's log.

1. `replay` of every durable record, then `loaded`, gives the state that survives; nothing else does.
2. Appends become durable in order; what waits for one happens in `appended`, in the same order.
3. A shard whose append failed is thrown away (`failed`) and read again from the log: nothing is ever rolled back.
4. `snapshot_records` says the same as the whole log up to the last append handed out, whether durable yet or not.
5. A group without members, record and offsets is forgotten at once.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TypeAlias

from gnomon.broker.groups import membership, offsets, rebalance
from gnomon.broker.groups.call import Call, DeleteTopicOffsetsRequest, DeleteTopicOffsetsResponse, Reply, refusal
from gnomon.broker.groups.group import Group, GroupState
from gnomon.broker.groups.group_admin import describe, listed
from gnomon.broker.groups.offsets import GroupOffsets
from gnomon.broker.groups.records import (
    CoordinatorRecord,
    Encoded,
    GroupRecord,
    OffsetRecord,
    decode_record,
)
from gnomon.broker.groups.settings import GroupSettings
from gnomon.broker.groups.turn import Append, Effects, Turn
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from gnomon.wire.kafka.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gnomon.wire.kafka.messages.offsets import (
    FETCH_GROUPS_SINCE,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from gnomon.wire.kafka.messages.offsets_topic import GroupMetadataValue

Alive: TypeAlias = Mapping[str, tuple[int, Collection[str]]]
"""By group its generation, and the ids of the members that were not taken for dead."""
NOTHING_KNOWN: Alive = MappingProxyType({})


class GroupShard:
    """The groups of one partition.

    Args:
        settings: gives the settings as they are now.
        new_id: gives a text that no member id had before.

    `now` is monotonic seconds and `wall_ms` wall-clock milliseconds throughout. Multi-group requests must name groups
    of this partition only, and OffsetFetch one group at a time.
    """

    def __init__(self, settings: Callable[[], GroupSettings], new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._recorded: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._appends: deque[Append] = deque()
        self._wakes: list[tuple[float, str]] = []
        self._wake_of: dict[str, float] = {}
        self._next_expiry = math.inf

    # Loading

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Takes over one record of the log; in log order, before `loaded`.

        Raises:
            MalformedMessage: the record is damaged.
        """
        record = decode_record(key, value)
        if record is not None:
            self._apply(record)

    def loaded(self, now: float, wall_ms: int, alive: Alive = NOTHING_KNOWN) -> Effects:
        """The log has been read to its end: groups come to life, sessions begin.

        Args:
            now, wall_ms: as ever.
            alive: what the shard in whose place this one was read had to say; who was gone then has no session left.
                The log may know of later members where another broker had it in between: their generation is later.
        """
        turn = self._turn(now, wall_ms)
        for group_id, value in self._recorded.items():
            group = self._groups[group_id] = Group.from_record(group_id, value, turn)
            generation, members = alive.get(group_id, (-1, ()))
            if group.generation <= generation:
                group.end_sessions(members, turn)
            if len(group.members) > turn.settings.members_max:
                rebalance.rebalance(group, turn)
            self._settle(group)
        self._schedule_expiry(turn)
        return self._done(turn)

    def _apply(self, record: CoordinatorRecord) -> None:
        match record:
            case OffsetRecord():
                self._offsets.setdefault(record.group_id, GroupOffsets()).apply(record)
                self._forget_offsets_if_none(record.group_id)
            case GroupRecord(group_id, None):
                self._recorded.pop(group_id, None)
            case GroupRecord(group_id, value):
                assert value is not None
                self._recorded[group_id] = value

    # Events

    def handle(self, call: Call, now: float, wall_ms: int) -> Effects:
        """Handles one request; its answer is among the effects of this event or of a later one."""
        turn = self._turn(now, wall_ms)
        match call.request:
            case JoinGroupRequest():
                self._join(call, turn)
            case SyncGroupRequest():
                self._ask_group(call, membership.sync, turn)
            case HeartbeatRequest():
                self._ask_group(call, membership.heartbeat, turn)
            case LeaveGroupRequest():
                self._ask_group(call, membership.leave, turn)
            case OffsetCommitRequest():
                offsets.commit(self._groups.get(call.request.group_id), call, turn)
            case OffsetFetchRequest():
                request = call.request
                group_id = request.group_id
                if call.version >= FETCH_GROUPS_SINCE:
                    group_id = request.groups[0].group_id
                offsets.fetch(self._offsets_of(group_id), call, turn)
            case OffsetDeleteRequest():
                group_id = call.request.group_id
                offsets.delete(self._groups.get(group_id), self._offsets_of(group_id), call, turn)
            case _:
                self._administer(call, turn)
        return self._done(turn)

    def _administer(self, call: Call, turn: Turn) -> None:
        match call.request:
            case DescribeGroupsRequest():
                self._describe(call, turn)
            case ListGroupsRequest():
                found = [listed(group_id, self._groups.get(group_id), call.request) for group_id in self._group_ids()]
                turn.reply(call, ListGroupsResponse(groups=[item for item in found if item is not None]))
            case DeleteGroupsRequest():
                self._delete_groups(call, turn)
            case DeleteTopicOffsetsRequest():
                self._delete_topic_offsets(call, turn)
            case request:
                raise AssertionError(f"{type(request).__name__} is no request of a group coordinator")

    def tick(self, now: float, wall_ms: int) -> Effects:
        """Does what is due."""
        turn = self._turn(now, wall_ms)
        while self._wakes and self._wakes[0][0] <= now:
            wake, group_id = heapq.heappop(self._wakes)
            if self._wake_of.get(group_id) != wake:
                continue  # an earlier one was noted since, and has run
            del self._wake_of[group_id]
            group = self._groups.get(group_id)
            if group is not None:
                if group.wake <= now:
                    rebalance.tick(group, turn)
                self._settle(group)
        if self._next_expiry <= now:
            self._expire(turn)
            self._schedule_expiry(turn)
        return self._done(turn)

    def next_deadline(self) -> float:
        """When `tick` has something to do at the earliest, in monotonic seconds; infinite before `loaded`."""
        return min(self._next_expiry, self._wakes[0][0] if self._wakes else math.inf)

    def appended(self, now: float, wall_ms: int) -> Effects:
        """The oldest append that was handed out and not reported yet is durable."""
        append = self._appends.popleft()
        turn = self._turn(now, wall_ms)
        for record in append.records:
            if isinstance(record, OffsetRecord):
                self._offsets[record.group_id].finish(record)
                self._forget_offsets_if_none(record.group_id)
            else:
                self._apply(record)
        turn.effects.replies += append.replies
        if append.then is not None:
            append.then(turn)
            for record in append.records:
                if record.group_id in self._groups:
                    self._settle(self._groups[record.group_id])
        return self._done(turn)

    def alive(self, now: float) -> Alive:
        """The generation and the members of each group, for the shard that is read in the place of this one."""
        return {
            group_id: (group.generation, {name for name, member in group.members.items() if member.deadline > now})
            for group_id, group in self._groups.items()
        }

    def failed(self, error: ErrorCode) -> list[Reply]:
        """Gives the shard up: every call that waits is answered with `error`. It must not be used any more."""
        waiting = [reply.call for append in self._appends for reply in append.replies]
        for group in self._groups.values():
            for member in group.members.values():
                waiting += [call for call in (member.joining, member.syncing) if call is not None]
        self._appends.clear()
        self._groups.clear()
        return [Reply(call, refusal(call, error)) for call in waiting]

    def let_go(self, error: ErrorCode, now: float, wall_ms: int) -> Effects:
        """Answers every JoinGroup and SyncGroup that waits for other members with `error`; their groups stay as is."""
        turn = self._turn(now, wall_ms)
        for group in list(self._groups.values()):
            for member in [member for member in group.members.values() if member.parked]:
                rebalance.refuse_join(member, error, turn)
                rebalance.refuse_sync(group, member, error, turn)
                group.restart_session(member, turn)
            self._settle(group)
        return self._done(turn)

    def snapshot_records(self) -> list[Encoded]:
        """Records that stand for all of the log so far, once appended after all that was handed out."""
        live: dict[tuple[str, ...] | tuple[str, str, int], CoordinatorRecord] = {}
        for group_id, value in self._recorded.items():
            live[(group_id,)] = GroupRecord(group_id, value)
        for group_id, group_offsets in self._offsets.items():
            for topic, partitions in group_offsets.stored.items():
                for partition, stored in partitions.items():
                    live[group_id, topic, partition] = OffsetRecord(group_id, topic, partition, stored)
        for append in self._appends:
            for record in append.records:
                if isinstance(record, OffsetRecord):
                    live[record.group_id, record.topic, record.partition] = record
                else:
                    live[(record.group_id,)] = record
        return [encoded for encoded in (record.encoded() for record in live.values()) if encoded[1] is not None]

    # Groups

    def _join(self, call: Call, turn: Turn) -> None:
        request: JoinGroupRequest = call.request
        settings = turn.settings
        if not request.group_id:
            turn.refuse(call, ErrorCode.INVALID_GROUP_ID)
            return
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            turn.refuse(call, ErrorCode.INVALID_SESSION_TIMEOUT)
            return
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                turn.refuse(call, ErrorCode.UNKNOWN_MEMBER_ID)
                return
            group = self._groups[request.group_id] = Group(request.group_id)
        membership.join(group, call, turn)
        self._settle(group)

    def _ask_group(self, call: Call, rule: Callable[[Group, Call, Turn], None], turn: Turn) -> None:
        group = self._groups.get(call.request.group_id)
        if group is None:
            turn.refuse(call, ErrorCode.UNKNOWN_MEMBER_ID if call.request.group_id else ErrorCode.INVALID_GROUP_ID)
            return
        rule(group, call, turn)
        self._settle(group)

    def _describe(self, call: Call, turn: Turn) -> None:
        request: DescribeGroupsRequest = call.request
        described = [
            describe(
                group_id,
                self._groups.get(group_id),
                group_id in self._offsets,
                call.version,
                request.include_authorized_operations,
            )
            for group_id in request.groups
        ]
        turn.reply(call, DescribeGroupsResponse(groups=described))

    def _delete_groups(self, call: Call, turn: Turn) -> None:
        request: DeleteGroupsRequest = call.request
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in request.groups_names:
            group = self._groups.get(group_id)
            error = ErrorCode.NONE
            if group is None and group_id not in self._offsets:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif group is not None and group.state is not GroupState.EMPTY:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                places = self._offsets_of(group_id).places()
                records += [OffsetRecord(group_id, topic, partition, None) for topic, partition in places]
                records += self._remove(group_id, turn)
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        response = DeleteGroupsResponse(results=results)
        if records:
            turn.append(records, [Reply(call, response)])
        else:
            turn.reply(call, response)

    def _remove(self, group_id: str, turn: Turn) -> list[GroupRecord]:
        group = self._groups.pop(group_id, None)
        if group is None:
            return []
        group.enter(GroupState.DEAD, turn.wall_ms)
        return [GroupRecord(group_id, None)]

    # Offsets

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        return self._offsets.get(group_id) or GroupOffsets()

    def _forget_offsets_if_none(self, group_id: str) -> None:
        if self._offsets[group_id].empty():
            del self._offsets[group_id]

    def _group_ids(self) -> list[str]:
        return list(dict.fromkeys([*self._groups, *self._offsets]))

    def _delete_topic_offsets(self, call: Call, turn: Turn) -> None:
        gone = dict.fromkeys(call.request.topics)
        records = [
            OffsetRecord(group_id, topic, partition, None)
            for group_id, group_offsets in self._offsets.items()
            for topic, partition in group_offsets.places()
            if topic in gone
        ]
        if records:
            turn.append(records, [Reply(call, DeleteTopicOffsetsResponse())])
        else:
            turn.reply(call, DeleteTopicOffsetsResponse())

    def _expire(self, turn: Turn) -> None:
        records: list[CoordinatorRecord] = []
        for group_id in self._group_ids():
            group, group_offsets = self._groups.get(group_id), self._offsets_of(group_id)
            over = list(offsets.expired(group_id, group, group_offsets, turn))
            records += over
            if group is not None and group.vacant() and len(over) == len(group_offsets.places()):
                records += self._remove(group_id, turn)
        if records:
            turn.append(records)

    def _schedule_expiry(self, turn: Turn) -> None:
        self._next_expiry = turn.after_ms(turn.settings.offsets_retention_check_interval_ms)

    # Turns

    def _turn(self, now: float, wall_ms: int) -> Turn:
        return Turn(now, wall_ms, self._settings(), self._new_id)

    def _done(self, turn: Turn) -> Effects:
        for append in turn.effects.appends:
            self._appends.append(append)
            for record in append.records:
                if isinstance(record, OffsetRecord):
                    self._offsets.setdefault(record.group_id, GroupOffsets()).begin(record)
        return turn.effects

    def _settle(self, group: Group) -> None:
        """After a group changed: its wake-up is noted, or it is forgotten if nothing of it is left."""
        group_id = group.group_id
        if group.vacant() and group.generation == 0 and group_id not in self._recorded:
            self._groups.pop(group_id, None)
        elif group.wake < self._wake_of.get(group_id, math.inf):
            heapq.heappush(self._wakes, (group.wake, group_id))
            self._wake_of[group_id] = group.wake
