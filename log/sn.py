"""An SN names the last record of a partition: its place, its sequence id, and the last transaction id. Pure.

1. An SN names the last record, never the next one; `EMPTY` is the SN of a partition that no record was ever written to.
2. Sequence ids and DLSNs rise from record to record, and transaction ids never fall. So an expectation with a field
   below that of the present SN can never come true. One that is above it in all fields that differ may come true later,
   or be true already at another leader.
3. A field that is not known, or that a writer does not expect, is None; -1 is a value, that of `EMPTY`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from gnomon.log.dlsn import Dlsn

SN_MAX: Final = (1 << 63) - 1
"""The largest sequence id and transaction id."""


class SN(NamedTuple):
    """The last record of a partition; as an expectation, the fields that have to match."""

    dlsn: Dlsn | None = None
    """The place of the record, on the topic and on its shadows alike."""
    transaction_id: int | None = None
    """The last transaction id that a writer gave, with this record or before it; -1 if none did."""
    sequence_id: int | None = None
    """The record's offset."""

    def encode(self) -> list[Any]:
        """The form for msgpack."""
        return [None if self.dlsn is None else list(self.dlsn), self.transaction_id, self.sequence_id]

    @classmethod
    def decode(cls, stored: Any) -> SN:
        """Undoes `encode`, for an SN from a peer.

        Raises:
            ValueError: it is no SN; the text says why.
        """
        if type(stored) is not list or len(stored) != len(cls._fields):
            raise ValueError(f"an SN has a DLSN, a transaction id and a sequence id, not {stored!r:.100}")
        place, transaction_id, sequence_id = stored
        if transaction_id is not None:
            _check_id("transaction id", transaction_id)
        if sequence_id is not None:
            _check_id("sequence id", sequence_id)
        return cls(None if place is None else _decoded_dlsn(place), transaction_id, sequence_id)

    def __str__(self) -> str:
        """The fields that are set, such as `sequence id 17, DLSN 0:4:1`."""
        dlsn, transaction_id, sequence_id = self
        fields = []
        if sequence_id is not None:
            fields.append(f"sequence id {sequence_id}")
        if dlsn is not None:
            fields.append(f"DLSN {dlsn.segment}:{dlsn.entry}:{dlsn.slot}")
        if transaction_id is not None:
            fields.append(f"transaction id {transaction_id}")
        return ", ".join(fields)


EMPTY: Final = SN(Dlsn(0, 0, -1), -1, -1)
"""The SN of a partition that no record was ever written to."""


class Match(Enum):
    """The relation of an expectation to the present SN."""

    HOLDS = "holds"
    AHEAD = "ahead"
    """It may come true later (invariant 2)."""
    NEVER = "never"
    """It can never come true: the log is beyond it, or the place of its last record is not known."""


def match(expected: SN, current: SN) -> Match:
    """Compares the fields that are expected with those of the present SN."""
    dlsn, transaction_id, sequence_id = expected
    if (
        (sequence_id is None or sequence_id == current.sequence_id)
        and (dlsn is None or dlsn == current.dlsn)
        and (transaction_id is None or transaction_id == current.transaction_id)
    ):
        return Match.HOLDS
    wanted: Any
    present: Any
    for wanted, present in zip(expected, current, strict=True):
        if wanted is None or wanted == present:
            continue
        if present is None or wanted < present:
            return Match.NEVER
    return Match.AHEAD


def _check_id(name: str, number: Any) -> None:
    if type(number) is not int or not -1 <= number <= SN_MAX:
        raise ValueError(f"a {name} is a number from -1 to {SN_MAX}, not {number!r:.100}")


def _decoded_dlsn(stored: Any) -> Dlsn:
    if stored == list(EMPTY.dlsn or ()):
        return Dlsn(*stored)
    if type(stored) is not list:
        raise ValueError(f"a DLSN is three numbers from 0 on, not {stored!r:.100}")
    return Dlsn.decode(stored)
