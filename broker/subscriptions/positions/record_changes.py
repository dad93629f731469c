"""Changes of a subscription's record, and the resolution of conflicts with changes by other processes. Pure.

1. An advance to a position below the record's changes nothing.
2. An advance is valid for the life of the subscription that it was meant for, and until a reset. After a reset or a
   deletion it is refused, unless it would change nothing.
3. A record with a segment belongs to the segment's owner: no other process writes a position to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position, UnreadablePosition
from gnomon.log.dlsn import CommitPoint
from gnomon.metadata.client import KeyValue, Revision

_BEGINNING = Position()


class Held(NamedTuple):
    """A record as it was last read or written, without its name, so that equal records can share one object."""

    position: Position
    segment_id: int | None
    resets: int
    created: Revision
    modified: Revision

    @classmethod
    def of(cls, item: KeyValue) -> Held:
        """Decodes a metadata item.

        Raises:
            UnreadablePosition: the value is no record.
        """
        try:
            record = SubscriberRecord.decode(item.value)
        except (ValueError, TypeError) as error:
            raise UnreadablePosition(f"the metadata record {item.key}", error) from error
        return cls(*record[1:], item.create_revision, item.mod_revision)

    def record(self, subscriber: str) -> SubscriberRecord:
        """The record of a subscription with these values."""
        return SubscriberRecord(subscriber, self.position, self.segment_id, self.resets)

    @property
    def cursor_epoch(self) -> int:
        """See `SubscriptionsStore`: each creation and each reset of a record is a revision of its own."""
        return self.created + self.resets


class Conflict(Enum):
    """The resolution of a conflict: another process changed the record since this one read it."""

    JUDGE_AGAIN = auto()
    DONE = auto()
    """Nothing is left to do: the other process's record serves as well."""
    REFUSED = auto()


Judge: TypeAlias = Callable[[str, Held | None], SubscriberRecord | None]
"""Decides a change: takes a subscription's name and record, returns the record to put, or None for no change."""
Resolve: TypeAlias = Callable[[SubscriberRecord, Held | None, Held | None], Conflict]
"""Resolves a conflict: takes the record that was to be put, the one it was made from, and the one now stored."""


def advances(position: Position, before: Position) -> bool:
    """Whether a change from `before` to `position` is an advance: not backward, and not equal."""
    return position.point >= before.point and position != before


def beginning(points: Mapping[str, CommitPoint]) -> Judge:
    """Creates the subscriptions that do not exist."""
    return lambda name, held: SubscriberRecord(name, Position(points[name])) if held is None else None


def advance(positions: Mapping[str, Position]) -> Judge:
    """Advances subscriptions, and creates those that do not exist; `resolve_advance` resolves its conflicts."""

    def advanced(name: str, held: Held | None) -> SubscriberRecord | None:
        position = positions[name]
        if not advances(position, _BEGINNING if held is None else held.position):
            return None
        if held is None:
            return SubscriberRecord(name, position)
        return SubscriberRecord(name, position, held.segment_id, held.resets)

    return advanced


def reset(point: CommitPoint) -> Judge:
    """Moves a subscription to `point`, also backward, or creates it; `resolve_reset` resolves its conflicts."""
    return lambda name, held: SubscriberRecord(name, Position(point), None, next_resets(held))


def next_resets(held: Held | None) -> int:
    """The number of resets of a record after one more."""
    return 1 if held is None else held.resets + 1


def without_segment(name: str, held: Held | None) -> SubscriberRecord | None:
    """Removes the segment from a record, if it names one: the segment no longer exists."""
    return None if held is None or held.segment_id is None else held.record(name)._replace(segment_id=None)


def same_life(before: Held | None, after: Held | None) -> bool:
    """Whether the subscription was neither deleted nor reset between two reads; an absent record has no life yet."""
    if before is None or after is None:
        return before is None
    return (before.created, before.resets) == (after.created, after.resets)


def resolve_beginning(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """Judges the creation again: a record that another process created first stays."""
    return Conflict.JUDGE_AGAIN


def resolve_advance(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """Resolves the conflict of an advance by invariants 2 and 3."""
    if after is None:
        return Conflict.REFUSED
    if same_life(before, after) and after.segment_id is None:
        return Conflict.JUDGE_AGAIN
    return Conflict.DONE if wanted.position.point <= after.position.point else Conflict.REFUSED


def resolve_reset(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """Judges a reset again in the same life of the subscription, also after another reset, unless it has a segment."""
    if before is not None and (after is None or before.created != after.created):
        return Conflict.REFUSED
    return Conflict.REFUSED if after is not None and after.segment_id is not None else Conflict.JUDGE_AGAIN


def refuse_conflict(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """Refuses the change: another process's record stays."""
    return Conflict.REFUSED
