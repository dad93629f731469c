"""Judges a consumer that seeks: compares the records that it receives with those that it asked for. Pure.

1. The first record after a seek is the requested one.
2. No record is skipped: each comes after its predecessor has come at least once. The rule is suspended for a new
   consumer of a shared subscription if the broker may still hold records for the previous consumer. A seek detaches the
   previous consumer, and the rule applies again.
3. A redelivered record has the same value.
4. In the end every record has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count


class SeekTruth:
    """The history of one consumer of one partition, from the start of the log."""

    def __init__(self) -> None:
        """Begins with no records."""
        self.values: dict[int, bytes] = {}
        """The values of the received records, by offset."""
        self.seeks = 0
        self._asked_for: int | None = 0
        self._alone = True

    @property
    def first_missing(self) -> int:
        """The first offset whose record has not come."""
        return next(offset for offset in count() if offset not in self.values)

    def shares(self) -> None:
        """A new consumer has subscribed, and the broker may still hold records for the previous one."""
        self._asked_for = None
        self._alone = False

    def sought(self, offset: int) -> None:
        """A seek to a record has returned."""
        self.seeks += 1
        self._asked_for = offset
        self._alone = True

    def got(self, offset: int, value: bytes) -> None:
        """A record came.

        Raises:
            AssertionError: one of the rules does not hold.
        """
        if self._asked_for is not None:
            assert offset == self._asked_for, f"after seek {self.seeks}, to offset {self._asked_for}, {offset} came"
        if self._alone:
            assert offset == 0 or offset - 1 in self.values, f"offset {offset} came, and the one before it never did"
        assert self.values.setdefault(offset, value) == value, f"offset {offset}: {value!r} and {self.values[offset]!r}"
        self._asked_for = None

    def check_whole(self, written: Mapping[int, bytes]) -> None:
        """Compares the received records with those that were written, by offset; raises as `got`."""
        missing = sorted(written.keys() - self.values.keys())
        assert not missing, f"{len(missing)} of {len(written)} records never came: {missing[:5]}"
        assert self.values == written, "records came that were not written"
