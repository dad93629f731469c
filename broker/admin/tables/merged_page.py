"""One page of a scan, merged from the answers of all partitions. Pure.

1. A page holds all keys of the table from its start to `after`, in their order; `after` is None if there are no more.
2. It has at most `limit` entries, and `bytes_max` bytes of keys and entries beside its last one: parts that are added
   later displace the highest keys. So the memory of a page does not depend on the number of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple

FOUND_KEY_BYTES: Final = 150
"""The memory of a found key beside its bytes and those of its entry."""


class FoundKey(NamedTuple):
    """One key of a page."""

    key: bytes
    packed: bytes
    """Its stored entry; empty if only keys were asked for."""
    partition: int


class MergedPage:
    """The entries of a page."""

    def __init__(self, limit: int, bytes_max: int) -> None:
        """A page without entries."""
        self._limit = limit
        self._bytes_max = bytes_max
        self._reach: bytes | None = None
        """The page has all keys up to this one; None for all keys."""
        self.entries: list[FoundKey] = []
        self.revisions: dict[int, int] = {}
        """By partition, the revision that the page shows."""
        self.ages_ms: dict[int, int] = {}
        """By partition, the age of a stale page in milliseconds."""

    def add(self, partition: int, revision: int, listed: Sequence[bytes], *, more: bool, keys_only: bool) -> None:
        """Adds the part of one partition, from the start of the page.

        Args:
            listed: keys and stored entries in turn, in the order of the keys; only the keys if `keys_only`.
            more: whether the partition has keys after these.
        """
        self.revisions[partition] = revision
        keys = listed if keys_only else listed[::2]
        stored = repeat(b"", len(keys)) if keys_only else listed[1::2]
        if more:
            self._reach = keys[-1] if self._reach is None else min(self._reach, keys[-1])
        self.entries += map(FoundKey, keys, stored, repeat(partition))
        self.entries.sort(key=itemgetter(0))
        self._cut()

    def _cut(self) -> None:
        size_bytes = 0
        for number, entry in enumerate(self.entries):
            if self._reach is not None and entry.key > self._reach:
                del self.entries[number:]
                return
            if number == self._limit or (number and size_bytes >= self._bytes_max):
                self._reach = self.entries[number - 1].key
                del self.entries[number:]
                return
            size_bytes += len(entry.key) + len(entry.packed)

    @property
    def after(self) -> bytes | None:
        """The next page begins after this key; None for the last page."""
        return self._reach

    @property
    def size_bytes(self) -> int:
        """About its memory."""
        return sum(FOUND_KEY_BYTES + len(entry.key) + len(entry.packed) for entry in self.entries)
