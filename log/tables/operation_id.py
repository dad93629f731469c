"""The id of a numbered operation on a table, in a header of the first record that the operation wrote. Pure.

1. A client numbers its operations on a partition from 0 on. With each it says below which number it has all answers, so
   that the leader forgets those.
2. Only batches that the leader makes have ids: their base sequence is OWN_SEQUENCE, which producers must not send. A
   header of this name in another batch is an ordinary header.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from gnomon.wire.kafka.batch import BatchHeader

OPERATION: Final = "gnomon.operation"
EXPIRED: Final = "gnomon.expired"
"""The header of a deletion because the time to live was over; it counts only in a batch of the leader."""
OWN_SEQUENCE: Final = -2
WRITER_BYTES: Final = 16
NUMBER_MAX: Final = (1 << 62) - 1
_FORM: Final = Struct(f">{WRITER_BYTES}sQQB")


class OperationId(NamedTuple):
    """An operation of one client."""

    writer: bytes
    """The client's random id for this partition, WRITER_BYTES long."""
    number: int
    answered_below: int
    """The client has the answers of all operations with lower numbers."""
    succeeded: bool = True
    """Whether the operation's comparisons held."""

    def encode(self) -> bytes:
        """The value of the header."""
        return _FORM.pack(self.writer, self.number, self.answered_below, self.succeeded)

    @classmethod
    def decode(cls, value: bytes | None) -> OperationId:
        """Undoes `encode`.

        Raises:
            ValueError: it is no id.
        """
        if value is None or len(value) != _FORM.size:
            raise ValueError(f"the header {OPERATION} has {_FORM.size} bytes")
        writer, number, answered_below, succeeded = _FORM.unpack(value)
        return cls(writer, number, answered_below, bool(succeeded))


def is_own(batch: BatchHeader) -> bool:
    """Whether the leader made the batch."""
    return batch.producer_id < 0 and batch.base_sequence == OWN_SEQUENCE
