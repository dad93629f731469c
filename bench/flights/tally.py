"""Compares the expected records of the topic with the records that were read.

1. A flight is identified by its whole document, so a changed record counts as foreign, and its flight as lost.
2. A carrier's count comes from the data set's own column on one side and from the record's key on the other.
3. Within a partition the flights of the data set appear in its order: one producer produced them in that order.
4. The tallies of several readers add up to the tally of one reader of everything, except for the order: each reader
   checks only the order of its own records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.flights.flight import Flight


class Census:
    """The data set's own counts, and each flight's place in it.

    Args:
        flights: all of them, each with a document of its own.

    Raises:
        ValueError: two flights have the same document, so that they could not be told apart.
    """

    def __init__(self, flights: Sequence[Flight]) -> None:
        self.carriers = [flight.carrier for flight in flights]
        self.by_carrier = Counter(self.carriers)
        self.place = {flight.document: place for place, flight in enumerate(flights)}
        if len(self.place) != len(flights):
            raise ValueError(f"{len(flights) - len(self.place)} flights equal others: they cannot be counted singly")


@dataclass(slots=True)
class Tally:
    """The count of a reader so far."""

    census: Census
    by_carrier: Counter[str] = field(default_factory=Counter)
    by_place: Counter[int] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    disordered: Counter[str] = field(default_factory=Counter)
    _last_place: dict[int, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return self.by_carrier.total()

    def add(self, partition: int, key: bytes | None, document: bytes | None) -> None:
        """Counts one record; the records of a partition come in the order of their offsets."""
        carrier = (key or b"").decode(errors="replace")
        self.by_carrier[carrier] += 1
        place = self.census.place.get(document or b"")
        if place is None:
            self.foreign[carrier] += 1
            return
        self.by_place[place] += 1
        if place < self._last_place.get(partition, -1):
            self.disordered[carrier] += 1
        self._last_place[partition] = place

    @classmethod
    def sum(cls, census: Census, tallies: Iterable[Tally]) -> Tally:
        whole = cls(census)
        for tally in tallies:
            whole.by_carrier.update(tally.by_carrier)
            whole.by_place.update(tally.by_place)
            whole.foreign.update(tally.foreign)
            whole.disordered.update(tally.disordered)
        return whole


@dataclass(frozen=True, slots=True)
class Difference:
    """A carrier whose flights did not all come back exactly once, unaltered and in order."""

    carrier: str
    expected: int
    counted: int
    lost: int
    repeated: int
    """Readings of a flight beyond its first."""
    foreign: int
    """Records that are not a flight of the data set."""
    disordered: int
    """Flights that came after one that follows them in the data set."""


def differences(census: Census, tally: Tally) -> list[Difference]:
    """Every carrier that differs, by name; empty when all flights were counted exactly once."""
    lost: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    for place, carrier in enumerate(census.carriers):
        times = tally.by_place[place]
        if times == 0:
            lost[carrier] += 1
        elif times > 1:
            repeated[carrier] += times - 1
    found = (
        Difference(
            carrier,
            census.by_carrier[carrier],
            tally.by_carrier[carrier],
            lost[carrier],
            repeated[carrier],
            tally.foreign[carrier],
            tally.disordered[carrier],
        )
        for carrier in sorted(census.by_carrier.keys() | tally.by_carrier.keys())
    )
    return [
        found_one
        for found_one in found
        if found_one.expected != found_one.counted
        or any((found_one.lost, found_one.repeated, found_one.foreign, found_one.disordered))
    ]
