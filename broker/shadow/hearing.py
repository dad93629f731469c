"""What a shadow's broker makes of what a source's tells it.

1. Whatever is told, an answer says for each shadow that did not take it why; nothing that is told stops the broker.
2. A shadow's partition that nobody reads is not opened for it, and takes nothing: the answer says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from gnomon.bookie.ids import EntryId, Session
from gnomon.broker.native.arguments import NUMBER_MAX
from gnomon.broker.partition.entry import Offset
from gnomon.broker.shadow.image import RefusedEntry, ToldEntry
from gnomon.broker.shadow.outbox import RUNS_MAX, Run

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


class Why(Enum):
    """Why a shadow did not take what it was told."""

    MOVED = "moved"
    """This broker does not lead it, or has not heard of it."""
    IDLE = "idle"
    """Nobody reads it here, so that it need not be told entries."""
    REFUSED = "refused"
    """It cannot be."""


class Told(NamedTuple):
    """What some shadows of one source are told of one partition."""

    shadows: list[bytes]
    """The ids of their topics."""
    partition: int
    runs: Sequence[Run]
    """In the order of the log."""
    entries: Sequence[bytes | None]
    """The last ones of all of these, as they are stored; None where one is to be read from storage."""

    def packed(self) -> list[Any]:
        """What is sent of it: an id is segment, session, first and last entry, offset, next offset, size and LAC."""
        runs = [
            [run.segment, run.session, run.first, run.last, run.offset, run.next_offset, run.size_bytes, run.last]
            for run in self.runs
        ]
        return [self.shadows, self.partition, runs, list(self.entries)]


class NotTold(Exception):
    """What was received is nothing that a broker tells; the text says why."""


class Answer(NamedTuple):
    """One shadow did not take something."""

    shadow: bytes
    partition: int
    why: Why
    text: str

    def packed(self) -> list[Any]:
        """What is sent of it."""
        return [self.shadow, self.partition, self.why.value, self.text]

    @classmethod
    def unpacked(cls, item: Sequence[Any]) -> Answer:
        """Undoes `packed`."""
        shadow, index, why, text = item
        return cls(shadow, index, Why(why), text)


def unpacked(item: Any) -> tuple[Sequence[bytes], int, list[ToldEntry]]:
    """The shadows, the partition and what they are told.

    Raises:
        NotTold: it is something else.
    """
    shadows, index, runs, entries = _list(item, 4)
    if len(_list(runs)) > RUNS_MAX:
        raise NotTold(f"at most {RUNS_MAX} ids are told at a time")
    if not all(type(shadow) is bytes and len(shadow) == 16 for shadow in _list(shadows)):
        raise NotTold("shadows are named by their ids")
    if not all(entry is None or type(entry) is bytes for entry in _list(entries)):
        raise NotTold("entries are bytes")
    if type(index) is not int or not 0 <= index < NUMBER_MAX:
        raise NotTold("a partition has a number")
    told = []
    for run in _list(runs):
        numbers = _list(run, 8)
        if not all(type(number) is int and -1 <= number < NUMBER_MAX for number in numbers):
            raise NotTold("an id is eight numbers")
        segment, session, first, last, offset, next_offset, _, confirmed = numbers
        if first > last or offset > next_offset:
            raise NotTold("an id goes forward")
        told.append(
            ToldEntry(
                Offset(segment), Session(session), EntryId(last), EntryId(confirmed), next_offset=Offset(next_offset)
            )
        )
    if entries and told:
        *earlier, stored = entries
        told[-1] = told[-1]._replace(stored=stored, earlier=tuple(earlier))
    return list(dict.fromkeys(shadows)), index, told


def hear(broker: Broker, shadows: Sequence[bytes], index: int, told: Sequence[ToldEntry]) -> Iterator[Answer]:
    """Tells the shadows' partitions that are led here; gives what they did not take."""
    for shadow in shadows:
        topic = broker.image.get_by_id(uuid.UUID(bytes=shadow))
        if topic is None or topic.source is None or index >= topic.partitions:
            yield Answer(shadow, index, Why.MOVED, "this broker has not heard of this shadow")
        elif not broker.leads(topic, index) or not broker.lease_lives():
            yield Answer(shadow, index, Why.MOVED, f"broker {broker.node_id} does not lead it")
        else:
            partition = broker.partitions.open_shadow(topic.id, index)
            if partition is None:
                yield Answer(shadow, index, Why.IDLE, "")
                continue
            for one in told:
                try:
                    partition.told(one)
                except RefusedEntry as error:
                    yield Answer(shadow, index, Why.REFUSED, str(error))


def _list(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise NotTold(f"a list of {length or 'some'} was expected")
    return value
