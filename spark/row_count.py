"""Compares the number of rows of a range with the headers of its batches. Pure.

1. A batch announces the records that its header declares; one that the range cuts announces those with an offset
   inside. A batch has at most one record for each offset, so their number is known exactly if it has as many.
2. A control batch announces none.
3. `check` refuses a number of rows outside of the sum of these bounds.
"""

from __future__ import annotations

from gnomon.spark.columns import Range
from gnomon.wire.kafka.batch import parse_batch


class WrongRowCount(Exception):
    """A range has more or fewer rows than its batches announce; the text names the partition and the offsets."""


class RowCount:
    """The numbers of one range."""

    def __init__(self, wanted: Range) -> None:
        """Begins without a batch."""
        self._range = wanted
        self._least = self._most = self._rows = 0

    def batch(self, batch: memoryview) -> None:
        """Adds a batch of the range.

        Raises:
            MalformedBatch: it is none.
        """
        header = parse_batch(batch)
        if header.is_control:
            return
        start, stop = max(header.base_offset, self._range.start), min(header.next_offset, self._range.stop)
        inside = max(stop - start, 0)
        outside = header.next_offset - header.base_offset - inside
        self._least += max(header.records_count - outside, 0)
        self._most += min(header.records_count, inside)

    def rows(self, count: int) -> None:
        """Adds rows."""
        self._rows += count

    def check(self) -> None:
        """Compares the rows with the batches, at the end of the range.

        Raises:
            WrongRowCount: see invariant 3.
        """
        if not self._least <= self._rows <= self._most:
            announced = self._most if self._least == self._most else f"{self._least} to {self._most}"
            raise WrongRowCount(
                f"topic {self._range.topic!r}, partition {self._range.partition}, offsets {self._range.start} to"
                f" {self._range.stop - 1}: {self._rows} rows were decoded, the headers of the batches announce"
                f" {announced}"
            )
