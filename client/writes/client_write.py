"""One write to a partition: records that become a batch, or part of one, and its outcome. Pure.

1. A write has one outcome: the SN of its last record, or an error.
2. The terms of a write are judged by the partition's leader; PREVIOUS is the sequence id of the write before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from gnomon.log.sn import SN
from gnomon.wire.kafka.records import Header


class Previous(Enum):
    """The type of PREVIOUS."""

    PREVIOUS = "previous"


PREVIOUS: Final = Previous.PREVIOUS
"""Expects the record that the write before it in the same `Writer` gets."""
Expected: TypeAlias = SN | Literal[Previous.PREVIOUS] | None


class WriteRecord(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()


class ClientTerms(NamedTuple):
    """The terms of a write, as its caller gives them."""

    expected: Expected = None
    """The record that the log has to end with; None if any will do."""
    transaction_id: int | None = None
    """The transaction id of the records."""
    token: bytes | None = None
    """The fencing token that the partition has to have; None if any will do."""


NO_TERMS: Final = ClientTerms()


class ClientWrite:
    """A write until it has an outcome."""

    __slots__ = ("_done", "deadline", "error", "is_abandoned", "records", "size_bytes", "sn", "terms")

    def __init__(
        self, records: Sequence[WriteRecord], terms: ClientTerms, deadline: float, done: Callable[[], None]
    ) -> None:
        """A write without an outcome.

        Args:
            records: at least one.
            deadline: the monotonic second at which it is given up.
            done: called once, when the write has an outcome.
        """
        self.records = records
        self.terms = terms
        self.deadline = deadline
        self.size_bytes = sum(len(record.value or b"") + len(record.key or b"") for record in records)
        """The bytes of keys and values; those of headers are few."""
        self.sn: SN | None = None
        """The SN of its last record, once it is durable."""
        self.error: Exception | None = None
        self.is_abandoned = False
        """Whether nobody waits for the outcome any more."""
        self._done = done

    @property
    def over(self) -> bool:
        """Whether the write has an outcome."""
        return self.sn is not None or self.error is not None

    def written(self, sn: SN) -> None:
        """The records are durable."""
        if not self.over:
            self.sn = sn
            self._done()

    def failed(self, error: Exception) -> None:
        """The records are not in the log, or that is unknown: the error says which."""
        if not self.over:
            self.error = error
            self._done()

    def abandon(self) -> None:
        """Nobody waits for the outcome any more."""
        self.is_abandoned = True
