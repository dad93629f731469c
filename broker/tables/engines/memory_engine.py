"""The applied entries of one partition's table, in memory and in the order of their keys. Pure.

1. The entries lie in SHARDS dictionaries: one that grows copies its slots, and one of all entries would take 100 ms for
   that at a million. Their order is a list of the keys.
2. `bytes_used` counts keys, values and the memory around them.
3. The keys that will expire are known by the time of their expiry, the earliest first.
4. Entries that are kept for an image count as used: a table that is full cannot grow while it is being copied.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from sortedcontainers import SortedList

from gnomon.broker.tables.engines.layers import Layer
from gnomon.broker.tables.engines.table_image import NotedEntries, TableImage
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.log.tables.key_entry import expires, numbers_of

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
        self._image: TableImage | None = None
        self._noted = NotedEntries()
        self.bytes_used = 0

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._keys)

    def get(self, key: bytes) -> bytes | None:
        """The stored entry of a key; None if it has none."""
        return self._shards[hash(key) % SHARDS].get(key)

    def looking_up(self) -> AbstractContextManager[object]:
        """See `TableEngine`."""
        return nullcontext()

    def put(self, key: bytes, packed: bytes, before: bytes | None) -> None:
        """See `TableEngine`."""
        self._note(key, before)
        if before is None:
            self._keys.add(key)
            self._count(len(packed) + len(key) + ENTRY_BYTES)
        else:
            self._forget_expiry(key, before)
            self._count(len(packed) - len(before))
        self._shards[hash(key) % SHARDS][key] = packed
        if expires(packed):
            self._expiries.add((numbers_of(packed)[3], key))

    def delete(self, key: bytes, before: bytes | None) -> None:
        """See `TableEngine`."""
        if before is not None:
            del self._shards[hash(key) % SHARDS][key]
            self._note(key, before)
            self._keys.remove(key)
            self._forget_expiry(key, before)
            self._count(-len(before) - len(key) - ENTRY_BYTES)

    def _note(self, key: bytes, before: bytes | None) -> None:
        if self._image is not None and self._image.wants(key):
            noted_bytes = self._noted.bytes_used
            self._noted.note(key, before)
            self._memory.bytes_used += self._noted.bytes_used - noted_bytes

    def close(self) -> Iterator[None]:
        """See `TableEngine`: freeing a million entries at once takes 100 ms."""
        if self._image is not None:
            self._image.close()
        self._count(-self.bytes_used)
        return self._taken_apart()

    def _taken_apart(self) -> Iterator[None]:
        for shard in filter(None, self._shards):
            shard.clear()
            yield

    def end_expiry(self, key: bytes) -> None:
        """The entry of a key, if it has one, is not among those that expire any more."""
        packed = self.get(key)
        if packed is not None:
            self._forget_expiry(key, packed)

    def _count(self, more_bytes: int) -> None:
        self.bytes_used += more_bytes
        self._memory.bytes_used += more_bytes

    def _forget_expiry(self, key: bytes, packed: bytes) -> None:
        if expires(packed):
            self._expiries.discard((numbers_of(packed)[3], key))

    def expiring(self, until_ms: int, count: int) -> list[bytes]:
        """See `TableEngine`."""
        return [key for expires_ms, key in self.earliest_expiries(count) if expires_ms <= until_ms]

    def earliest_expiries(self, count: int) -> list[tuple[int, bytes]]:
        """At most `count` pairs of expiry and key, the earliest first."""
        return list(self._expiries.islice(0, count))

    @property
    def next_expiry_ms(self) -> int | None:
        """The earliest expiry; None if no key will expire."""
        expires_ms: int | None = self._expiries[0][0] if self._expiries else None
        return expires_ms

    def scan(self, first: bytes, end: bytes | None) -> Generator[tuple[bytes, bytes]]:
        """See `TableEngine`."""
        for key in self._keys.irange(first, end, (True, False)):
            yield key, self._shards[hash(key) % SHARDS][key]

    def count(self, first: bytes, end: bytes | None) -> tuple[int, bytes | None]:
        """See `TableEngine`: all are counted in one turn."""
        start: int = self._keys.bisect_left(first)
        stop: int = len(self._keys) if end is None else self._keys.bisect_left(end)
        return stop - start, None

    def refusal(self, more_bytes: int) -> str | None:
        """See `TableEngine`."""
        return self._memory.refusal(more_bytes)

    async def prepare_image(self) -> None:
        """See `TableEngine`: nothing is to be done."""

    def begin_image(self) -> TableImage:
        """See `TableEngine`."""
        assert self._image is None, "there is one image at a time"
        self._image = TableImage(self._image_layers, self._forget_noted, self._end_image)
        return self._image

    def _image_layers(self, first: bytes) -> Sequence[Layer]:
        return self._noted.scan(first), self._present(first)

    def _present(self, first: bytes) -> Layer:
        yield from self.scan(first, None)

    def _forget_noted(self, first: bytes) -> None:
        noted_bytes = self._noted.bytes_used
        self._noted.forget_below(first)
        self._memory.bytes_used += self._noted.bytes_used - noted_bytes

    def _end_image(self) -> None:
        self._image = None
        self._memory.bytes_used -= self._noted.bytes_used
        self._noted = NotedEntries()


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
