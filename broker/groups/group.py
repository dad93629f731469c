"""A classic consumer group: its members, its generation and the protocol that they agreed on.

1. A group without members is Empty, Dead or, for a while, in PreparingRebalance; a group with members is never Empty
   or Dead.
2. A generation number only grows; in CompletingRebalance and Stable every member belongs to the current generation.
3. As long as a JoinGroup is parked (its member waits for the response), the group is in PreparingRebalance; as long as
   a SyncGroup is parked, the group is in CompletingRebalance. The JoinGroup of a static member that comes back to a
   stable group is not parked: its response waits only for the group's record to be durable.
4. An instance id belongs to one member; a request that names another member id with it is fenced (KIP-345).
5. The leader is a member; the protocol of a generation is one that every member speaks.
6. `wake`, the time of the group's next `tick`, is never later than the earliest deadline of the group.
7. The whole object is soft state, which a reload loses: the reload makes the group from its last record
   (`from_record`), and all sessions begin again. A generation that no record has was never stable, so its members join
   again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from gnomon.broker.groups.member import Member
from gnomon.broker.groups.records import GroupRecord
from gnomon.broker.groups.turn import Turn
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.consumer_protocol import subscribed_topics
from gnomon.wire.kafka.messages.group import JoinGroupRequestProtocol
from gnomon.wire.kafka.messages.offsets_topic import GroupMetadataValue
from gnomon.wire.kafka.schema import MalformedMessage

CONSUMER_PROTOCOL = "consumer"
GROUP_BYTES = 2_000
"""Size of a group without members."""
PENDING_BYTES = 200
"""Size of the id of a member that is expected to join, without its text."""


class GroupState(Enum):
    """The states, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {GroupState.EMPTY},
}
"""From which states a state is entered."""


class Group:
    """The state of one group; the rules that change it are in `rebalance` and `membership`.

    Attributes:
        state_since_ms: wall-clock milliseconds when the state was entered; -1 if an old record does not have it.
        pending: member ids handed out by MEMBER_ID_REQUIRED that did not join yet, with their deadlines.
        unsynced: members of this generation that did not send SyncGroup yet (an ordered set).
        join_deadline: when the joining phase ends, even if members are missing; infinite outside of it.
        sync_deadline: when members that did not sync are dropped; infinite when all did.
        gathering: whether the joining phase is the first one after Empty, which waits for more members.
        gather_left_ms: by how much the gathering may still be extended.
        grew: whether a member was added since the gathering was extended last.
        assigning: the record of the leader's assignment while it is not durable.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = -1
        self.protocol_type = ""
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        self.unsynced: dict[str, None] = {}
        self.join_deadline = math.inf
        self.sync_deadline = math.inf
        self.gathering = False
        self.gather_left_ms = 0
        self.grew = False
        self.assigning: GroupRecord | None = None
        self.wake = math.inf
        self.held_bytes = GROUP_BYTES + len(group_id)
        """About how many bytes the group takes in memory."""
        self.counted_bytes = 0
        """The bytes that its shard has counted for it."""

    # Membership

    def expect(self, member_id: str, deadline: float) -> None:
        """A member with this id will join, before `deadline`."""
        self.pending[member_id] = deadline
        self.held_bytes += PENDING_BYTES + len(member_id)
        self.note_deadline(deadline)

    def expect_no_more(self, member_id: str) -> bool:
        """Undoes `expect`; returns whether the member was expected."""
        expected = self.pending.pop(member_id, None) is not None
        if expected:
            self.held_bytes -= PENDING_BYTES + len(member_id)
        return expected

    def speaks_now(self, member: Member, protocols: list[tuple[str, bytes]]) -> None:
        """A member has other protocols."""
        self.held_bytes -= member.held_bytes
        member.speak(protocols)
        self.held_bytes += member.held_bytes

    def assigned(self, member: Member, assignment: bytes) -> None:
        """A member has another assignment."""
        self.held_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def add(self, member: Member) -> None:
        """Adds a member; the first one leads."""
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            assert self.leader is None
            self.leader = member.member_id
        self.expect_no_more(member.member_id)
        self.members[member.member_id] = member
        self.held_bytes += member.held_bytes
        if member.instance_id is not None:
            assert member.instance_id not in self.static, member.instance_id
            self.static[member.instance_id] = member.member_id
        self.note_deadline(member.deadline)

    def remove(self, member: Member) -> None:
        """Removes a member, whose calls have been answered; another one leads if it led."""
        assert not member.parked, member
        del self.members[member.member_id]
        self.held_bytes -= member.held_bytes
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self.unsynced.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, old: Member, member_id: str) -> Member:
        """Replaces the id of a static member that came back; its calls have been answered."""
        assert old.instance_id is not None
        assert not old.parked, old
        led = self.leader == old.member_id
        self.remove(old)
        member = Member(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocols,
            assignment=old.assignment,
        )
        self.add(member)
        if led:
            self.leader = member_id
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request names a member of the group: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if current == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def all_joined(self) -> bool:
        """Whether every member has joined, and no handed-out member id is outstanding."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def joined_count(self) -> int:
        """Members with a parked JoinGroup."""
        return sum(member.joining is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Chooses a leader that has joined, the current leader if possible; returns False if no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def supports(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these protocols can be one of the group."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            all(member.speaks(item.name) for member in self.members.values()) for item in protocols
        )

    def chosen_protocol(self) -> str:
        """The protocol that most members prefer among those that all speak; the first voted for wins a tie."""
        members = list(self.members.values())
        candidates = {name for name, _ in members[0].protocols if all(member.speaks(name) for member in members)}
        votes: dict[str, int] = {}
        for member in members:
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def topics_read(self) -> Callable[[str], bool]:
        """A function: whether a member reads a topic. True for all topics if a subscription is malformed, as in Kafka.

        All subscriptions are decoded once, for any number of topics.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return lambda _topic: False
        read: set[str] = set()
        for member in self.members.values():
            topics = self._topics(member)
            if topics is None:
                return lambda _topic: True
            read.update(topics)
        return read.__contains__

    def _topics(self, member: Member) -> list[str] | None:
        spoken = self.protocol if self.protocol is not None and member.speaks(self.protocol) else member.protocols[0][0]
        try:
            return subscribed_topics(member.metadata(spoken))
        except MalformedMessage:
            return None

    # States and deadlines

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Moves to a state, which the present one must allow."""
        assert self.state in _BEFORE[state], f"group {self.group_id!r} cannot go from {self.state} to {state}"
        self.state = state
        self.state_since_ms = wall_ms

    def note_deadline(self, deadline: float) -> None:
        """Notes a deadline of the group (monotonic seconds)."""
        self.wake = min(self.wake, deadline)

    def set_member_deadline(self, member: Member, deadline: float) -> None:
        """Sets when the member's session ends unless a request of it arrives."""
        member.deadline = deadline
        self.note_deadline(deadline)

    def restart_session(self, member: Member, turn: Turn) -> None:
        """Begins the member's session again; does nothing while one of its calls is parked."""
        if not member.parked:
            self.set_member_deadline(member, turn.after_ms(member.session_timeout_ms))

    def end_sessions(self, but: Collection[str], turn: Turn) -> None:
        """Ends the sessions of all dynamic members except those in `but`."""
        for member in self.members.values():
            if member.instance_id is None and member.member_id not in but:
                self.set_member_deadline(member, turn.now)

    def set_join_deadline(self, deadline: float) -> None:
        """Sets when the joining phase ends."""
        self.join_deadline = deadline
        self.note_deadline(deadline)

    def set_sync_deadline(self, deadline: float) -> None:
        """Sets when members that did not sync are dropped."""
        self.sync_deadline = deadline
        self.note_deadline(deadline)

    def settle_wake(self) -> None:
        """Makes `wake` exact again, after everything due was done."""
        deadlines = [self.join_deadline, self.sync_deadline, *self.pending.values()]
        deadlines += [member.deadline for member in self.members.values()]
        self.wake = min(deadlines)

    def vacant(self) -> bool:
        """Whether the group has no members and expects none: all it may hold is its name and generation."""
        return self.state is GroupState.EMPTY and not self.pending

    # Records

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """The group as a record, with `assignments` or, without them, those that its members have."""
        members = [
            member.recorded(
                self.protocol, member.assignment if assignments is None else assignments.get(member.member_id, b"")
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=members,
        )
        return GroupRecord(self.group_id, value)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue, turn: Turn) -> Group:
        """The group of a last record: Stable with the record's members, whose sessions begin now, or Empty."""
        group = cls(group_id)
        group.protocol_type = value.protocol_type
        group.generation = value.generation
        for stored in value.members:
            member = Member.from_record(stored, value.protocol)
            group.add(member)
            group.restart_session(member, turn)
        group.protocol = value.protocol
        group.leader = value.leader if value.members else None
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.state_since_ms = value.current_state_timestamp
        return group
