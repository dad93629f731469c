"""One partition of `__consumer_offsets`: all its groups, as a state machine on the partition's log.

It is a tenant of the coordination runtime (`coordination.state_machine`), whose invariants hold here.

1. Durable state is the last record of each group and the committed offsets (`StoredGroups`): only `replay` changes it.
2. All other state is soft: a reload loses it. `_groups` holds members, sessions, parked calls, and the generation that
   is being formed; a reload takes each group back to its last record. No client was promised more: a generation is
   stable once its record is durable, and a member that the record does not name gets an error and joins again. Commits
   under way and deadlines are soft too: a reload begins after the outcomes of all appends are reported, and sets new
   deadlines.
3. The shard that replaces one whose append failed knows the members whose sessions had ended, and does not wait for
   them again.
4. A group is forgotten at once when it has no members, no outstanding member ids, no record and no offsets.
5. Work on many offsets is divided: a turn deletes at most OFFSETS_MAX of them, and examines about as many for expiry.
   A listing has pages of GROUPS_LISTED_MAX groups; a group that appears or ends between two pages may be missing.
   A group whose deletion has begun takes neither members nor commits until it is gone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeAlias

from gnomon.broker.coordination.state_machine import HeldReply, RecordDamaged, Refusal, StoredRecord
from gnomon.broker.groups import membership, offsets, rebalance
from gnomon.broker.groups.call import (
    DeleteTopicOffsetsRequest,
    DeleteTopicOffsetsResponse,
    DeletionUnfinished,
    GroupCall,
    GroupPage,
    GroupPageRequest,
    Reply,
    error_of,
    refused,
)
from gnomon.broker.groups.expiry import ExpirySearch
from gnomon.broker.groups.group import Group, GroupState
from gnomon.broker.groups.group_admin import describe, listed
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.groups.parts import OFFSETS_MAX
from gnomon.broker.groups.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
)
from gnomon.broker.groups.settings import GroupSettings
from gnomon.broker.groups.stored_groups import StoredGroups, place_of
from gnomon.broker.groups.turn import GroupDecision, Turn
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
)
from gnomon.wire.kafka.messages.offsets import (
    FETCH_GROUPS_SINCE,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from gnomon.wire.kafka.schema import MalformedMessage

Alive: TypeAlias = Mapping[str, tuple[int, Collection[str]]]
"""The generation of each group, and the ids of the members whose sessions had not ended."""
SNAPSHOT_PART_RECORDS = 500
"""Records of a part of a snapshot: encoding and appending as many takes some 4 ms."""
GROUPS_EXAMINED_MAX = 1_000
"""Groups that a turn examines for offsets of deleted topics: as many take some 3 ms."""
GROUPS_LISTED_MAX = 100
"""Groups of a page: ten shards may be asked for one in one turn, and listing 1,000 groups takes some 2 ms."""
EXPIRY_PAUSE_SECONDS = 0.001
"""Between two turns of one search for expired offsets."""
NOTHING_KNOWN: Alive = MappingProxyType({})


class GroupShard:
    """The groups of one partition.

    Args:
        settings: gives the settings as they are now.
        new_id: returns a text that no member id had before.
        alive: the living members of the shard that this one replaces; the sessions of its other members have ended. The
            log may have later members if another broker served it in between: their generation is higher.

    `now` is monotonic seconds and `wall_ms` wall-clock milliseconds throughout. Multi-group requests must name groups
    of this partition only, and OffsetFetch one group at a time.
    """

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        memory: MembersMemory,
        new_id: Callable[[], str],
        alive: Alive = NOTHING_KNOWN,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._new_id = new_id
        self._alive = alive
        self._groups: dict[str, Group] = {}
        self._stored = StoredGroups()
        self._assigned: list[Group] = []
        """Groups whose assignment was replayed and that are not stable yet."""
        self._wakes: list[tuple[float, str]] = []
        self._wake_of: dict[str, float] = {}
        self._next_expiry = math.inf
        self._search = ExpirySearch(self._groups, self._stored.offsets)
        self._deleting: set[str] = set()
        """Groups some of whose offsets are deleted, and the others are about to be."""

    # Records

    def decode(self, stored: StoredRecord) -> CoordinatorRecord | None:
        """See `StateMachine.decode`; markers of transactions have no meaning here, as no offset is part of one."""
        if stored.control:
            return None
        try:
            return decode_record(stored.key, stored.value)
        except MalformedMessage as error:
            raise RecordDamaged(str(error)) from error

    def replay(self, record: CoordinatorRecord) -> None:
        """See `StateMachine.replay`."""
        self._stored.replay(record)
        if isinstance(record, GroupRecord) and not record.is_tombstone:
            group = self._groups.get(record.group_id)
            if group is not None and group.assigning is record:
                self._assigned.append(group)

    def snapshot(self, pending: Callable[[], Iterable[CoordinatorRecord]]) -> Iterator[list[CoordinatorRecord]]:
        """See `StateMachine.snapshot`: the last record of each group and of each offset."""
        known = chain(self._stored.places(), [place_of(record) for record in pending()])
        while places := list(islice(known, SNAPSHOT_PART_RECORDS)):
            latest = {place_of(record): record for record in pending()}
            records = (latest.get(place) or self._stored.current(place) for place in places)
            part = [record for record in records if record is not None and not record.is_tombstone]
            if part:
                yield part

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of every durable commit; records may be replayed meanwhile."""
        return self._stored.committed()

    # Events

    def loaded(self, now: float, wall_ms: int) -> GroupDecision:
        """See `StateMachine.loaded`: groups are made from their records, sessions begin."""
        turn = self._turn(now, wall_ms)
        alive, self._alive = self._alive, NOTHING_KNOWN
        for group_id, value in self._stored.recorded.items():
            group = self._groups[group_id] = Group.from_record(group_id, value, turn)
            generation, members = alive.get(group_id, (-1, ()))
            if group.generation <= generation:
                group.end_sessions(members, turn)
            if len(group.members) > turn.settings.members_max:
                rebalance.rebalance(group, turn)
            self._settle(group)
        self._schedule_expiry(turn)
        return self._done(turn)

    def handle(self, call: GroupCall, now: float, wall_ms: int) -> GroupDecision:
        """See `StateMachine.handle`."""
        turn = self._turn(now, wall_ms)
        match call.request:
            case JoinGroupRequest(group_id=group_id) | OffsetCommitRequest(group_id=group_id) if (
                group_id in self._deleting
            ):
                turn.refuse(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
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
                offsets.fetch(self._stored.offsets_of(group_id), call, turn)
            case OffsetDeleteRequest():
                group_id = call.request.group_id
                offsets.delete(self._groups.get(group_id), self._stored.offsets_of(group_id), call, turn)
            case _:
                self._administer(call, turn)
        return self._done(turn)

    def _administer(self, call: GroupCall, turn: Turn) -> None:
        match call.request:
            case DescribeGroupsRequest():
                self._describe(call, turn)
            case GroupPageRequest():
                self._list_page(call, turn)
            case DeleteGroupsRequest():
                self._delete_groups(call, turn)
            case DeleteTopicOffsetsRequest():
                self._delete_topic_offsets(call, turn)
            case request:
                raise AssertionError(f"{type(request).__name__} is no request of a group coordinator")

    def applied(self, now: float, wall_ms: int) -> GroupDecision:
        """See `StateMachine.applied`: groups whose assignment is durable become stable."""
        turn = self._turn(now, wall_ms)
        assigned, self._assigned = self._assigned, []
        for group in assigned:
            rebalance.become_stable(group, turn)
            self._settle(group)
        return self._done(turn)

    def tick(self, now: float, wall_ms: int) -> GroupDecision:
        """See `StateMachine.tick`: sessions, phases of a rebalance, and offsets may end."""
        turn = self._turn(now, wall_ms)
        while self._wakes and self._wakes[0][0] <= now:
            wake, group_id = heapq.heappop(self._wakes)
            if self._wake_of.get(group_id) != wake:
                continue  # an earlier deadline was noted since, and was handled
            del self._wake_of[group_id]
            group = self._groups.get(group_id)
            if group is not None:
                if group.wake <= now:
                    rebalance.tick(group, turn)
                self._settle(group)
        if self._next_expiry <= now:
            self._expire(turn)
        return self._done(turn)

    def next_deadline(self) -> float:
        """See `StateMachine.next_deadline`."""
        return min(self._next_expiry, self._wakes[0][0] if self._wakes else math.inf)

    def successor(self, now: float) -> Callable[[], GroupShard]:
        """See `StateMachine.successor`: a successor knows which members were alive."""
        alive = {
            group_id: (group.generation, {name for name, member in group.members.items() if member.deadline > now})
            for group_id, group in self._groups.items()
        }
        return partial(GroupShard, self._settings, self._memory, self._new_id, alive)

    def failed(self, refusal: Refusal) -> list[Reply]:
        """See `StateMachine.failed`."""
        error = error_of(refusal)
        members = [member for group in self._groups.values() for member in group.members.values()]
        for group_id in list(self._groups):
            self._forget(group_id)
        parked = [call for member in members for call in (member.joining, member.syncing) if call is not None]
        return [Reply(call, refused(call, error)) for call in parked]

    def let_go(self, refusal: Refusal, now: float, wall_ms: int) -> list[HeldReply]:
        """See `StateMachine.let_go`: refuses every parked JoinGroup and SyncGroup; their groups stay as they are."""
        turn, error = self._turn(now, wall_ms), error_of(refusal)
        for group in list(self._groups.values()):
            for member in [member for member in group.members.values() if member.parked]:
                rebalance.refuse_join(member, error, turn)
                rebalance.refuse_sync(group, member, error, turn)
                group.restart_session(member, turn)
            self._settle(group)
        return turn.decision.replies

    # Groups

    def _join(self, call: GroupCall, turn: Turn) -> None:
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

    def _ask_group(self, call: GroupCall, rule: Callable[[Group, GroupCall, Turn], None], turn: Turn) -> None:
        group = self._groups.get(call.request.group_id)
        if group is None:
            turn.refuse(call, ErrorCode.UNKNOWN_MEMBER_ID if call.request.group_id else ErrorCode.INVALID_GROUP_ID)
            return
        rule(group, call, turn)
        self._settle(group)

    def _describe(self, call: GroupCall, turn: Turn) -> None:
        request: DescribeGroupsRequest = call.request
        described = [
            describe(
                group_id,
                self._groups.get(group_id),
                group_id in self._stored.offsets,
                call.version,
                request.include_authorized_operations,
            )
            for group_id in request.groups
        ]
        turn.reply(call, DescribeGroupsResponse(groups=described))

    def _list_page(self, call: GroupCall, turn: Turn) -> None:
        request: GroupPageRequest = call.request
        states = frozenset(request.states)
        group_ids = self._group_ids() if request.group_ids is None else request.group_ids
        end = min(request.position + GROUPS_LISTED_MAX, len(group_ids))
        page = [
            listed(group_id, self._groups.get(group_id))
            for group_id in group_ids[request.position : end]
            if group_id in self._groups or group_id in self._stored.offsets
        ]
        found = [each for each in page if each.group_state in states]
        turn.reply(call, GroupPage(groups=found, group_ids=group_ids, position=end))

    def _delete_groups(self, call: GroupCall, turn: Turn) -> None:
        request: DeleteGroupsRequest = call.request
        errors = {group_id: self._deletion_error(group_id) for group_id in request.groups_names}
        doomed = [group_id for group_id, error in errors.items() if not error]
        for group_id in doomed:
            places = self._stored.offsets_of(group_id).places(OFFSETS_MAX + 1)
            if len(places) > OFFSETS_MAX:
                self._deleting.add(group_id)
                turn.append(_tombstones(group_id, places[:OFFSETS_MAX]), [Reply(call, DeletionUnfinished())])
                return
        records: list[CoordinatorRecord] = []
        for group_id in doomed:
            records += _tombstones(group_id, self._stored.offsets_of(group_id).places())
            records += self._remove(group_id, turn)
            self._deleting.discard(group_id)
        results = [DeletableGroupResult(group_id=name, error_code=errors[name]) for name in request.groups_names]
        response = DeleteGroupsResponse(results=results)
        if records:
            turn.append(records, [Reply(call, response)])
        else:
            turn.reply(call, response)

    def _deletion_error(self, group_id: str) -> ErrorCode:
        if group_id in self._deleting:
            return ErrorCode.NONE
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if group_id in self._stored.offsets else ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def _remove(self, group_id: str, turn: Turn) -> list[GroupRecord]:
        group = self._forget(group_id)
        if group is None:
            return []
        group.enter(GroupState.DEAD, turn.wall_ms)
        return [GroupRecord(group_id, None)]

    # Offsets

    def _group_ids(self) -> list[str]:
        return list(dict.fromkeys([*self._groups, *self._stored.offsets]))

    def _delete_topic_offsets(self, call: GroupCall, turn: Turn) -> None:
        request: DeleteTopicOffsetsRequest = call.request
        topics = dict.fromkeys(request.topics)
        group_ids = list(self._stored.offsets) if request.group_ids is None else request.group_ids
        records: list[CoordinatorRecord] = []
        examined = 0
        for group_id in group_ids[:GROUPS_EXAMINED_MAX]:
            room = OFFSETS_MAX - len(records)
            places = self._stored.offsets_of(group_id).places_of(topics, room + 1)
            records += _tombstones(group_id, places[:room])
            if len(places) > room:
                break
            examined += 1
        rest = group_ids[examined:]
        response = DeletionUnfinished(group_ids=rest) if rest else DeleteTopicOffsetsResponse()
        if records:
            turn.append(records, [Reply(call, response)])
        else:
            turn.reply(call, response)

    def _expire(self, turn: Turn) -> None:
        part = self._search.part(turn)
        records: list[CoordinatorRecord] = [*part.tombstones]
        for group_id in part.groups_over:
            records += self._remove(group_id, turn)
        if records:
            turn.append(records)
        if part.last:
            self._schedule_expiry(turn)
        else:
            self._next_expiry = turn.now + EXPIRY_PAUSE_SECONDS

    def _schedule_expiry(self, turn: Turn) -> None:
        self._search = ExpirySearch(self._groups, self._stored.offsets)
        self._next_expiry = turn.after_ms(turn.settings.offsets_retention_check_interval_ms)

    # Turns

    def _turn(self, now: float, wall_ms: int) -> Turn:
        return Turn(now, wall_ms, self._settings(), self._memory, self._new_id)

    def _done(self, turn: Turn) -> GroupDecision:
        for append in turn.decision.appends:
            for record in append.records:
                if isinstance(record, OffsetRecord):
                    self._stored.begin(record)
        return turn.decision

    def _settle(self, group: Group) -> None:
        """Notes the next deadline of a group that changed, or forgets the group if nothing of it is left."""
        group_id = group.group_id
        if group.vacant() and group.generation == 0 and group_id not in self._stored.recorded:
            self._forget(group_id)
            return
        self._memory.grew(group.held_bytes - group.counted_bytes)
        group.counted_bytes = group.held_bytes
        if group.wake < self._wake_of.get(group_id, math.inf):
            heapq.heappush(self._wakes, (group.wake, group_id))
            self._wake_of[group_id] = group.wake

    def _forget(self, group_id: str) -> Group | None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            self._memory.grew(-group.counted_bytes)
            group.counted_bytes = 0
        return group


def _tombstones(group_id: str, places: Iterable[tuple[str, int]]) -> list[OffsetRecord]:
    return [OffsetRecord(group_id, topic, partition, None) for topic, partition in places]
