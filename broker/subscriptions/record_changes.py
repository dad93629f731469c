"""What may be done to a subscription's record, and what if another has changed it meanwhile. Pure.

1. An advance to before where the record stands changes nothing.
2. An advance holds for the life of the subscription that it was meant for, and until somebody resets it: after that it
   is refused, unless it would change nothing.
3. A record with a segment is its owner's: nobody else puts a position into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.store import Position, UnreadablePosition
from gnomon.metadata.client import KeyValue, Revision

_BEGINNING = Position()


class Held(NamedTuple):
    """A record as it was read or written last, without its name: those that stand alike are one object."""

    position: Position
    segment_id: int | None
    resets: int
    created: Revision
    modified: Revision

    @classmethod
    def of(cls, item: KeyValue) -> Held:
        """What the metadata holds.

        Raises:
            UnreadablePosition: it is no record.
        """
        try:
            record = SubscriberRecord.decode(item.value)
        except (ValueError, TypeError) as error:
            raise UnreadablePosition(f"the metadata record {item.key}", error) from error
        return cls(*record[1:], item.create_revision, item.mod_revision)

    def record(self, subscriber: str) -> SubscriberRecord:
        """The record of a subscription that stands so."""
        return SubscriberRecord(subscriber, self.position, self.segment_id, self.resets)

    @property
    def cursor_epoch(self) -> int:
        """See `SubscriptionsStore`: whatever makes or resets a record is a revision of its own."""
        return self.created + self.resets


class Conflict(Enum):
    """What to do about a record that another has changed meanwhile."""

    JUDGE_AGAIN = auto()
    DONE = auto()
    """There is nothing left to do: theirs will do."""
    REFUSED = auto()


Judge: TypeAlias = Callable[[str, Held | None], SubscriberRecord | None]
"""What to put for a subscription, given its record; None for nothing."""
Meet: TypeAlias = Callable[[SubscriberRecord, Held | None, Held | None], Conflict]
"""Given what was to be put, the record that it was made from, and the one that stands there instead."""


def advances(position: Position, before: Position) -> bool:
    """Whether `position` is news after `before`."""
    return position.dlsn >= before.dlsn and position != before


def beginning(positions: Mapping[str, Dlsn]) -> Judge:
    """Makes those subscriptions that do not exist."""
    return lambda name, held: SubscriberRecord(name, Position(positions[name])) if held is None else None


def advance(positions: Mapping[str, Position]) -> Judge:
    """Moves subscriptions on, and makes those that do not exist; meets others as `meet_advance`."""

    def advanced(name: str, held: Held | None) -> SubscriberRecord | None:
        position = positions[name]
        if not advances(position, _BEGINNING if held is None else held.position):
            return None
        if held is None:
            return SubscriberRecord(name, position)
        return SubscriberRecord(name, position, held.segment_id, held.resets)

    return advanced


def reset(dlsn: Dlsn) -> Judge:
    """Moves a subscription to `dlsn` wherever it stands, or makes it; meets others as `meet_reset`."""
    return lambda name, held: SubscriberRecord(name, Position(dlsn), None, next_resets(held))


def next_resets(held: Held | None) -> int:
    """How many there were, with one more."""
    return 1 if held is None else held.resets + 1


def without_segment(name: str, held: Held | None) -> SubscriberRecord | None:
    """Forgets a segment that is gone."""
    return None if held is None or held.segment_id is None else held.record(name)._replace(segment_id=None)


def same_life(before: Held | None, after: Held | None) -> bool:
    """Whether nobody has deleted or reset the subscription between; what was not there has had no life."""
    if before is None or after is None:
        return before is None
    return (before.created, before.resets) == (after.created, after.resets)


def meet_beginning(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """The one that was there first stays."""
    return Conflict.JUDGE_AGAIN


def meet_advance(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """See invariants 2 and 3."""
    if after is None:
        return Conflict.REFUSED
    if same_life(before, after) and after.segment_id is None:
        return Conflict.JUDGE_AGAIN
    return Conflict.DONE if wanted.position.dlsn <= after.position.dlsn else Conflict.REFUSED


def meet_reset(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """A reset holds for the life of the subscription that it was meant for, whoever else has reset it."""
    if before is not None and (after is None or before.created != after.created):
        return Conflict.REFUSED
    return Conflict.REFUSED if after is not None and after.segment_id is not None else Conflict.JUDGE_AGAIN


def meet_nobody(wanted: SubscriberRecord, before: Held | None, after: Held | None) -> Conflict:
    """What another has changed is left alone."""
    return Conflict.REFUSED
