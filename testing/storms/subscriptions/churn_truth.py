"""Judges a subscription with concurrent seeks, deletions and creations, over a topic that grows. Pure.

1. A record has one value.
2. After concurrent seeks every record from the highest of their places on is delivered again.
3. With one consumer, the first record after concurrent seeks is at one of their places.
4. After a deletion every record is delivered again: a new subscription begins at the log's start.
5. In the end every record of every partition was delivered.

A seek or deletion of unknown outcome may take effect at any later time: rules 2 to 4 take that into account.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count


class Seek:
    """A seek that has begun; `done` once it has returned."""

    def __init__(self, partition: int, offset: int, owed: Collection[int]) -> None:
        self.partition, self.offset = partition, offset
        self.done = False
        self.owed = frozenset(owed)
        """The records that had to come again before the seek."""


class PartitionChurn:
    """One partition: the records that came, and those that still have to."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.owed: set[int] = set()
        """Records that have to come again, after a seek or a deletion."""
        self.seeks: list[Seek] = []
        """Seeks under way or of unknown outcome, and those that overlapped one of these."""
        self.first: set[int] | None = None
        """With one consumer: where the next record has to be; None if it may be anywhere."""

    @property
    def first_missing(self) -> int:
        """The first offset whose record has not come, or has to come again."""
        return next(offset for offset in count() if offset not in self.values or offset in self.owed)


class ChurnTruth:
    """The history of one subscription.

    Args:
        alone: whether it has one consumer at a time.
    """

    def __init__(self, *, alone: bool) -> None:
        self.partitions: dict[int, PartitionChurn] = {}
        self._alone = alone
        self._deleting: list[dict[int, set[int]]] = []

    def partition(self, number: int) -> PartitionChurn:
        """The history of a partition."""
        return self.partitions.setdefault(number, PartitionChurn())

    def got(self, number: int, offset: int, value: bytes) -> None:
        """A record came.

        Raises:
            AssertionError: rule 1 or 3 does not hold.
        """
        each = self.partition(number)
        before = each.values.setdefault(offset, value)
        assert before == value, f"offset {offset} of partition {number} is {value!r}, and it was {before!r}"
        if each.first is not None:
            assert offset in each.first, f"partition {number}: {offset} came first after seeks to {sorted(each.first)}"
            each.first = None
        each.owed.discard(offset)
        for since in self._deleting:
            since.setdefault(number, set()).add(offset)

    def seeks(self, number: int, offset: int) -> Seek:
        """A seek begins; the records below `offset` have all come."""
        each = self.partition(number)
        seek = Seek(number, offset, each.owed)
        each.seeks.append(seek)
        each.first = None
        floor = max(each.offset for each in each.seeks)
        each.owed = {at for at in {*each.owed, *range(offset, max(each.values, default=-1) + 1)} if at >= floor}
        return seek

    def sought(self, seek: Seek) -> None:
        """A seek has returned."""
        each = self.partition(seek.partition)
        seek.done = True
        if all(other.done for other in each.seeks):
            places = {other.offset for other in each.seeks}
            each.seeks.clear()
            each.first = places if self._alone else None

    def not_sought(self, seek: Seek) -> None:
        """A seek has failed; it may take effect at any later time."""
        self.partition(seek.partition).owed &= seek.owed

    def interrupted(self) -> None:
        """A consumer ended: the next one begins with a record that was not acknowledged."""
        for each in self.partitions.values():
            each.first = None

    def deletes(self) -> dict[int, set[int]]:
        """A deletion begins; give the result to `deleted`, if it succeeds, or to `not_deleted`."""
        since: dict[int, set[int]] = {}
        self._deleting.append(since)
        for each in self.partitions.values():
            each.first = None
        return since

    def deleted(self, since: Mapping[int, set[int]]) -> None:
        """The subscription was deleted."""
        self._deleting = [other for other in self._deleting if other is not since]
        for number, each in self.partitions.items():
            each.owed = set(each.values) - since.get(number, set())

    def not_deleted(self, since: Mapping[int, set[int]], *, unknown: bool) -> None:
        """A deletion was refused, or its outcome is unknown."""
        self._alone = self._alone and not unknown
        self._deleting = [other for other in self._deleting if other is not since]

    def missing(self, written: Mapping[int, Mapping[int, bytes]]) -> str:
        """The records that have not come, or not again, of those that were written by partition; empty if all have."""
        texts = []
        for number, records in written.items():
            each = self.partition(number)
            never = sorted(records.keys() - each.values.keys())
            again = sorted(each.owed & records.keys())
            if never:
                texts.append(f"{len(never)} of {len(records)} records of partition {number} never came: {never[:5]}")
            if again:
                texts.append(f"{len(again)} records of partition {number} did not come again: {again[:5]}")
        return "; ".join(texts)
