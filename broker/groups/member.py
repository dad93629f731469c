"""A member of a classic group."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gnomon.broker.groups.call import GroupCall
from gnomon.wire.kafka.messages.group import JoinGroupRequestProtocol, JoinGroupResponseMember
from gnomon.wire.kafka.messages.group_admin import DescribedGroupMember
from gnomon.wire.kafka.messages.offsets_topic import MemberMetadata

MEMBER_BYTES = 64
"""Size of a member without texts and metadata."""


@dataclass(slots=True, eq=False)
class Member:
    """One member: its protocols, its assignment, and its parked calls.

    `protocols` are (name, metadata) in the member's order of preference. `joining` and `syncing` are its parked calls.
    `deadline` (monotonic seconds) is the end of its session; infinite while one of its calls is parked, unless the
    member is `new`: no client knows its id before the parked call is answered, so it must not stay for ever.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    joining: GroupCall | None = None
    syncing: GroupCall | None = None
    new: bool = False
    deadline: float = math.inf
    said_bytes: int = field(init=False)
    """About how many bytes the member takes in memory and in its group's record, except for its assignment."""
    _metadata: dict[str, bytes] = field(init=False, repr=False)
    """The metadata of each protocol."""

    def __post_init__(self) -> None:
        self.speak(self.protocols)

    def speak(self, protocols: list[tuple[str, bytes]]) -> None:
        """Sets the protocols that the member speaks."""
        self.protocols = protocols
        self._metadata = dict(reversed(protocols))  # the first one of a name counts
        texts = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        self.said_bytes = MEMBER_BYTES + texts + sum(len(name) + len(metadata) for name, metadata in protocols)

    @property
    def held_bytes(self) -> int:
        """About how many bytes the member takes in memory."""
        return self.said_bytes + len(self.assignment)

    @property
    def parked(self) -> bool:
        """Whether a call of the member waits for its answer."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty if it does not speak it."""
        return b"" if protocol is None else self._metadata.get(protocol, b"")

    def speaks(self, protocol: str) -> bool:
        """Whether the member supports a protocol."""
        return protocol in self._metadata

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that it prefers among `candidates`, all of which it speaks."""
        return next(name for name, _ in self.protocols if name in candidates)

    def says_the_same(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether a JoinGroup repeats the member's protocols."""
        return self.protocols == [(item.name, item.metadata) for item in protocols]

    def listed(self, protocol: str | None) -> JoinGroupResponseMember:
        """The member as a JoinGroup response lists it for the leader."""
        return JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.metadata(protocol)
        )

    def described(self, protocol: str | None, stable: bool) -> DescribedGroupMember:
        """The member as DescribeGroups shows it: subscription and assignment only in a stable group."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.metadata(protocol) if stable else b"",
            member_assignment=self.assignment if stable else b"",
        )

    def recorded(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """The member as its group's record holds it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_record(cls, stored: MemberMetadata, protocol: str | None) -> Member:
        """The member of a record; it speaks only the protocol that was chosen."""
        return cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            # Records of version 0 have no rebalance timeout: the session timeout served for both.
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            protocols=[(protocol or "", stored.subscription)],
            assignment=stored.assignment,
        )
