"""The changes of a batch that the watches of a table want, found by the prefixes that are watched. Pure.

1. Each key is looked up among the watched prefixes, once for each of their lengths. So the work depends on the batch
   and on the number of different lengths, however many watches there are.
2. Of each prefix the numbers of the first and of the last change with it are noted: what is noted is bounded by the
   number of prefixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from gnomon.broker.tables.table_state import AppliedBatch
from gnomon.log.tables.changes import CHANGE_BYTES

LOOKUPS_AT_ONCE: Final = 2_000
"""Look-ups between two looks at the clock: 0.5 ms."""

W = TypeVar("W")


class BatchSpan(NamedTuple):
    """A batch, and the numbers of changes in it: those of a watch are among these."""

    batch: AppliedBatch
    first: int
    end: int


class WatchedPrefixes(Generic[W]):
    """The watches of a table by the prefix of their keys."""

    def __init__(self) -> None:
        """Nothing is watched."""
        self._watches: dict[bytes, dict[W, None]] = {}
        self._lengths: Counter[int] = Counter()
        """The number of prefixes of each length."""

    def __contains__(self, prefix: bytes) -> bool:
        """Whether a prefix is watched."""
        return prefix in self._watches

    @property
    def lengths(self) -> list[int]:
        """The lengths of the prefixes, the shortest first."""
        return sorted(self._lengths)

    def add(self, prefix: bytes, watch: W) -> None:
        """A watch of a prefix begins."""
        if prefix not in self._watches:
            self._watches[prefix] = {}
            self._lengths[len(prefix)] += 1
        self._watches[prefix][watch] = None

    def remove(self, prefix: bytes, watch: W) -> None:
        """Undoes `add`."""
        watches = self._watches[prefix]
        del watches[watch]
        if not watches:
            del self._watches[prefix]
            self._lengths[len(prefix)] -= 1
            self._lengths += Counter()  # without those that are zero

    def of(self, prefix: bytes) -> Iterable[W]:
        """The watches of a prefix."""
        return self._watches.get(prefix, ())


class WatchedBatch:
    """A batch that was applied, and its changes by watched prefix, as far as `look_up` has come."""

    def __init__(self, batch: AppliedBatch) -> None:
        """Nothing is looked up."""
        self.batch = batch
        self.spans: dict[bytes, tuple[int, int]] = {}
        """The numbers of the first and of the last change with each prefix that was watched and has one."""
        self.bytes_used = 0
        """About the memory of the changes."""

    def look_up(self, prefixes: WatchedPrefixes[W]) -> Iterator[None]:
        """Finds the changes of all prefixes that are watched now, a part before each step."""
        lengths = prefixes.lengths
        at_once = max(1, LOOKUPS_AT_ONCE // max(1, len(lengths)))
        for first in range(0, len(self.batch.changes), at_once):
            if first:
                yield
            self._look_up_some(prefixes, lengths, first, first + at_once)

    def _look_up_some(self, prefixes: WatchedPrefixes[W], lengths: list[int], first: int, end: int) -> None:
        spans = self.spans
        for number, (key, value, _, _, _) in enumerate(self.batch.changes[first:end], first):
            self.bytes_used += CHANGE_BYTES + len(key) + len(value or b"")
            for length in lengths:
                if length > len(key):
                    break
                prefix = key[:length]
                if prefix in prefixes:
                    spans[prefix] = (spans[prefix][0] if prefix in spans else number, number)
