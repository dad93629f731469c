"""A finding of a judge of the state at rest, and the number of things that explain state there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from gnomon.bookie.ids import LedgerId
from gnomon.bookie.record import LEDGERS, LedgerRecord, decode_record
from gnomon.log.topic import TOPICS_PREFIX, Topic
from gnomon.metadata.state import State


class StateFinding(NamedTuple):
    """A finding; its `place` stays the same from look to look, and its `text` may have numbers."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The topics, ledgers and machines that exist at rest."""

    topics: Mapping[UUID, Topic]
    ledgers: Mapping[LedgerId, LedgerRecord]
    names: Mapping[LedgerId, str]
    """The names of the ledgers."""
    brokers: int
    bookies: int

    @property
    def partitions(self) -> int:
        """The partitions of all topics."""
        return sum(topic.partitions for topic in self.topics.values())

    @classmethod
    def of(cls, state: State, brokers: int, bookies: int) -> Facts:
        """The facts of a state of the metadata, with the numbers of machines."""
        topics = {topic.id: topic for topic in map(Topic.decode, state.range(TOPICS_PREFIX).items)}
        items = state.range(LEDGERS).items
        ledgers = {LedgerId(item.create_revision): decode_record(item.value) for item in items}
        names = {LedgerId(item.create_revision): item.key.removeprefix(LEDGERS) for item in items}
        return cls(topics, ledgers, names, brokers, bookies)
