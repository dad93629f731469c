"""The applied entries of one partition's table, in memory and in the order of their keys. Pure.

1. The entries lie in SHARDS dictionaries: one that grows copies its slots, and one of all entries would take 100 ms for
   that at a million. Their order is a list of the keys.
2. `bytes_used` counts keys, values and the memory around them.
3. The keys that will expire are known by the time of their expiry, the earliest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedList

from gnomon.broker.tables.tables_memory import TablesMemory
from gnomon.log.tables.key_entry import NEVER, numbers_of

SHARDS: Final = 256
ENTRY_BYTES: Final = 180
"""The memory of an entry besides its key and its value: two objects, a slot in a dictionary and one in the list."""


class MemoryEngine:
    """A sorted map from keys to stored entries (`key_entry`)."""

    def __init__(self, memory: TablesMemory) -> None:
        """No key has an entry; `memory` counts those of all tables."""
        self._memory = memory
        self._shards: list[dict[bytes, bytes]] = [{} for _ in range(SHARDS)]
        self._keys: SortedList = SortedList()
        self._expiries: SortedList = SortedList()
        """Pairs of expiry and key."""
        self.bytes_used = 0

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def get(self, key: bytes) -> bytes | None:
        """The stored entry of a key; None if it has none."""
        return self._shards[hash(key) % SHARDS].get(key)

    def put(self, key: bytes, packed: bytes) -> None:
        """Stores the entry of a key."""
        shard = self._shards[hash(key) % SHARDS]
        before = shard.get(key)
        if before is None:
            self._keys.add(key)
            self._count(len(packed) + len(key) + ENTRY_BYTES)
        else:
            self._forget_expiry(key, before)
            self._count(len(packed) - len(before))
        shard[key] = packed
        expires_ms = numbers_of(packed)[3]
        if expires_ms != NEVER:
            self._expiries.add((expires_ms, key))

    def delete(self, key: bytes) -> None:
        """Removes the entry of a key, if it has one."""
        before = self._shards[hash(key) % SHARDS].pop(key, None)
        if before is not None:
            self._keys.remove(key)
            self._forget_expiry(key, before)
            self._count(-len(before) - len(key) - ENTRY_BYTES)

    def clear(self) -> None:
        """Removes all entries."""
        self._count(-self.bytes_used)
        for shard in self._shards:
            shard.clear()
        self._keys.clear()
        self._expiries.clear()

    def _count(self, more_bytes: int) -> None:
        self.bytes_used += more_bytes
        self._memory.bytes_used += more_bytes

    def _forget_expiry(self, key: bytes, packed: bytes) -> None:
        expires_ms = numbers_of(packed)[3]
        if expires_ms != NEVER:
            self._expiries.remove((expires_ms, key))

    def expiring(self, until_ms: int, count: int) -> list[bytes]:
        """At most `count` keys whose values expire at `until_ms` or before, the earliest first."""
        found: list[bytes] = []
        for expires_ms, key in self._expiries:
            if expires_ms > until_ms or len(found) == count:
                break
            found.append(key)
        return found

    @property
    def next_expiry_ms(self) -> int | None:
        """The earliest expiry; None if no key will expire."""
        expires_ms: int | None = self._expiries[0][0] if self._expiries else None
        return expires_ms

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `first` to below `end` with their entries, in order; the map must not change meanwhile.

        Args:
            end: None for all keys from `first` on.
        """
        for key in self._keys.irange(first, end, (True, False)):
            yield key, self._shards[hash(key) % SHARDS][key]

    def count(self, first: bytes, end: bytes | None) -> int:
        """The number of keys from `first` to below `end`."""
        start: int = self._keys.bisect_left(first)
        stop: int = len(self._keys) if end is None else self._keys.bisect_left(end)
        return stop - start


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
