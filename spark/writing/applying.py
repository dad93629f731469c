"""Applies the batches of one decision to one target partition, in their order and once.

Any driver may apply a decision, also several at the same time, and a driver does not know how far others came. The
partition's leader recognizes repeats by producer id, epoch and sequence.

1. A driver sends from the first batch of the decision on, in order, at most IN_FLIGHT_MAX at a time. The first batch is
   sent alone: a leader without state of the producer takes any sequence.
2. A batch is applied when the leader has appended it, or has it already. OUT_OF_ORDER_SEQUENCE_NUMBER means the latter
   only if every earlier batch is applied: after a batch that was refused, the leader answers so for batches that are in
   no log.
3. After a retriable error, or without an answer, the driver waits for the answers to all batches that it sent. Then it
   continues with the first batch that is not applied.
4. INVALID_PRODUCER_EPOCH means that all are applied: a later decision is being applied, and that begins after this one.
5. Any other error is final; the decision remains.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gnomon.wire.kafka.errors import ErrorCode

IN_FLIGHT_MAX: Final = 5
"""A leader recognizes the repeats of the last five batches of a producer."""


class PartitionApplication:
    """The batches of one decision and one target partition, by their number from 0 on."""

    def __init__(self, batches: int, applied: int = 0) -> None:
        """The first `applied` batches were found in the log; of the others nothing is known."""
        self._batches = batches
        self._next = applied
        self._in_flight: deque[int] = deque()
        self._resumes = False
        self._answered = False
        """Whether the leader knows the producer."""
        self.applied = applied
        """Batches that are applied, from the first on."""
        self.failure: ErrorCode | None = None
        """A final error of the leader."""

    @property
    def is_done(self) -> bool:
        """Whether all batches are applied."""
        return self.applied == self._batches

    def next(self) -> int | None:
        """The batch to send now, which is in flight from here on; None if there is none before the next answer."""
        if self._resumes and not self._in_flight:
            self._next, self._resumes = self.applied, False
        in_flight_max = IN_FLIGHT_MAX if self._answered else 1
        if self.failure or self._resumes or self._next >= self._batches or len(self._in_flight) >= in_flight_max:
            return None
        self._in_flight.append(self._next)
        self._next += 1
        return self._in_flight[-1]

    def answered(self, code: ErrorCode | None) -> None:
        """The answer to the oldest batch in flight; None if none will come."""
        batch = self._in_flight.popleft()
        if self.is_done:
            return
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            if batch == self.applied:
                self.applied += 1
                self._answered = True
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            self.applied = self._batches
        elif code is None or code.retriable:
            self._resumes = True
        else:
            self.failure = code
