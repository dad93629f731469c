"""One event at the coordinator: when it is handled, and what comes of it.

1. A call is answered exactly once.
2. An answer that depends on records leaves only after those records are durable; `then` runs at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gnomon.broker.groups.call import Call, Reply, refusal
from gnomon.broker.groups.records import CoordinatorRecord
from gnomon.broker.groups.settings import GroupSettings
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.schema import Message


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """Records to append as one batch, and what waits for them."""

    records: Sequence[CoordinatorRecord]
    replies: Sequence[Reply]
    then: Callable[[Turn], None] | None


@dataclass(slots=True)
class Effects:
    """What the driver has to do: append these in order, send those now."""

    appends: list[Append] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)


class Turn:
    """The handling of one event.

    Args:
        now: monotonic seconds, for deadlines.
        wall_ms: wall-clock milliseconds, for records.
        settings: as they are now.
        new_id: gives a text that no member id had before.
    """

    __slots__ = ("effects", "new_id", "now", "settings", "wall_ms")

    def __init__(self, now: float, wall_ms: int, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.now = now
        self.wall_ms = wall_ms
        self.settings = settings
        self.new_id = new_id
        self.effects = Effects()

    def after_ms(self, delay_ms: int) -> float:
        """The deadline `delay_ms` milliseconds from now."""
        return self.now + delay_ms / 1000

    def reply(self, call: Call, response: Message) -> None:
        """Answers a call now."""
        self.effects.replies.append(Reply(call, response))

    def refuse(self, call: Call, error: ErrorCode) -> None:
        """Answers a call with an error now."""
        self.reply(call, refusal(call, error))

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        replies: Sequence[Reply] = (),
        then: Callable[[Turn], None] | None = None,
    ) -> None:
        """Appends a batch; sends `replies` and runs `then` once it is durable."""
        self.effects.appends.append(Append(records, replies, then))
