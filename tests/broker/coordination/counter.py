"""Counters by name: the second tenant of the coordination runtime.

1. The totals are durable state: `replay` alone changes them.
2. Reads that wait for a total to change are soft state: a client whose read was refused reads again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gnomon.broker.coordination.state_machine import Append, Decision, Encoded, RecordDamaged, Refusal, StoredRecord

Answered: TypeAlias = Callable[[int, Refusal | None], None]
"""Gets a total (0 after an addition), or the refusal."""


@dataclass(frozen=True, eq=False)
class Add:
    """Adds to a counter; answered once the addition is durable."""

    name: str
    number: int
    answered: Answered


@dataclass(frozen=True, eq=False)
class Read:
    """Reads a counter; waits up to `seconds` for a total other than `seen`."""

    name: str
    answered: Answered
    seen: int = -1
    seconds: float = 0.0


@dataclass(frozen=True)
class Added:
    """The record of an addition; it counts as often as it is replayed."""

    name: str
    number: int

    def encoded(self) -> Encoded:
        return b"added/" + self.name.encode(), b"%d" % self.number


@dataclass(frozen=True)
class Total:
    """The record of a snapshot."""

    name: str
    number: int

    def encoded(self) -> Encoded:
        return b"total/" + self.name.encode(), b"%d" % self.number


@dataclass(frozen=True)
class Announce:
    """The effect: announces an addition to other brokers, and the whole total after a load."""

    name: str
    number: int


@dataclass(frozen=True, eq=False)
class Reply:
    answered: Answered
    total: int = 0
    refusal: Refusal | None = None

    def send(self) -> None:
        self.answered(self.total, self.refusal)

    def refuse(self, refusal: Refusal) -> None:
        self.answered(0, refusal)


Record: TypeAlias = Added | Total
CounterDecision: TypeAlias = Decision[Record, Announce]


class Counters:
    """The counters of one partition."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self._reads: list[tuple[float, Read]] = []

    def decode(self, stored: StoredRecord) -> Record | None:
        kind, _, name = stored.key.decode().partition("/")
        try:
            number = int(stored.value or b"")
        except ValueError as error:
            raise RecordDamaged(str(error)) from error
        return {"added": Added, "total": Total}[kind](name, number)

    def replay(self, record: Record) -> None:
        before = self.totals.get(record.name, 0) if isinstance(record, Added) else 0
        self.totals[record.name] = before + record.number

    def snapshot(self, pending: Callable[[], Iterable[Record]]) -> Iterator[list[Record]]:
        for name in dict.fromkeys([*self.totals, *(record.name for record in pending())]):
            number = self.totals.get(name, 0)
            for record in pending():
                if record.name == name:
                    number = number + record.number if isinstance(record, Added) else record.number
            yield [Total(name, number)]

    def loaded(self, now: float, wall_ms: int) -> CounterDecision:
        return Decision(effects=[Announce(name, number) for name, number in self.totals.items()])

    def handle(self, request: Add | Read, now: float, wall_ms: int) -> CounterDecision:
        if isinstance(request, Add):
            effects = [Announce(request.name, request.number)]
            return Decision(appends=[Append([Added(request.name, request.number)], [Reply(request.answered)], effects)])
        self._reads.append((now + request.seconds, request))
        return self._answer(now)

    def applied(self, now: float, wall_ms: int) -> CounterDecision:
        return self._answer(now)

    def tick(self, now: float, wall_ms: int) -> CounterDecision:
        return self._answer(now)

    def next_deadline(self) -> float:
        return min((deadline for deadline, _ in self._reads), default=math.inf)

    def let_go(self, refusal: Refusal, now: float, wall_ms: int) -> Sequence[Reply]:
        reads, self._reads = self._reads, []
        return [Reply(read.answered, 0, refusal) for _, read in reads]

    def failed(self, refusal: Refusal) -> Sequence[Reply]:
        return self.let_go(refusal, 0.0, 0)

    def successor(self, now: float) -> Callable[[], Counters]:
        return Counters

    def _answer(self, now: float) -> CounterDecision:
        ready = [one for one in self._reads if one[0] <= now or self.totals.get(one[1].name, 0) != one[1].seen]
        self._reads = [one for one in self._reads if one not in ready]
        return Decision(replies=[Reply(read.answered, self.totals.get(read.name, 0)) for _, read in ready])
