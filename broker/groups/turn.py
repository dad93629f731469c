"""A turn: the handling of one event by the group coordinator, with its time and the decision.

1. A call is answered exactly once.
2. A response that depends on records is sent only after those records are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Never, TypeAlias

from gnomon.broker.coordination.state_machine import Append, Decision
from gnomon.broker.groups.call import GroupCall, Reply, refused
from gnomon.broker.groups.members_memory import MembersMemory
from gnomon.broker.groups.records import CoordinatorRecord
from gnomon.broker.groups.settings import GroupSettings
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.schema import ProtocolMessage

GroupDecision: TypeAlias = Decision[CoordinatorRecord, Never]
"""Groups have no effects on other brokers."""


class Turn:
    """The handling of one event.

    Args:
        now: monotonic seconds, for deadlines.
        wall_ms: wall-clock milliseconds, for records.
        settings: as they are now.
        memory: of the members of all groups of the broker.
        new_id: returns a text that no member id had before.
    """

    __slots__ = ("decision", "memory", "new_id", "now", "settings", "wall_ms")

    def __init__(
        self, now: float, wall_ms: int, settings: GroupSettings, memory: MembersMemory, new_id: Callable[[], str]
    ) -> None:
        self.now = now
        self.wall_ms = wall_ms
        self.settings = settings
        self.memory = memory
        self.new_id = new_id
        self.decision: GroupDecision = Decision()

    def after_ms(self, delay_ms: int) -> float:
        """The deadline `delay_ms` milliseconds from now."""
        return self.now + delay_ms / 1000

    def reply(self, call: GroupCall, response: ProtocolMessage) -> None:
        """Answers a call now."""
        self.decision.replies.append(Reply(call, response))

    def refuse(self, call: GroupCall, error: ErrorCode) -> None:
        """Answers a call with an error now."""
        self.reply(call, refused(call, error))

    def append(self, records: Sequence[CoordinatorRecord], replies: Sequence[Reply] = ()) -> None:
        """Appends records in one piece; `replies` are sent once all of them are durable."""
        self.decision.appends.append(Append(records, replies))
