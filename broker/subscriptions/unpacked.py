"""A cache of decompressed batches, for subscriptions that need the keys of the records.

1. The cache holds at most UNPACKED_BYTES_MAX, or a single batch. The least recently used batch is dropped first.
2. A batch of more than AT_ONCE_BYTES_MAX is decompressed in a worker thread, one batch at a time.
3. A batch that does not decompress, or decompresses to more than UNPACKED_BYTES_MAX, counts as empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from gnomon.broker.subscriptions.allowance import Allowance
from gnomon.log.entry import Offset
from gnomon.runtime.tasks import Tasks
from gnomon.runtime.world import World
from gnomon.wire.kafka.compression import CorruptData, UnpackedTooLarge, decompress
from gnomon.wire.kafka.primitives import Buffer

UNPACKED_BYTES_MAX = 64 << 20
AT_ONCE_BYTES_MAX = 256 << 10
"""Up to this size a batch is decompressed within the turn, in about 1 ms."""
BYTES_PER_UNIT = 128
ENTRY_BYTES = 1024
"""The overhead of an entry of the cache beside its records."""

Key: TypeAlias = tuple[object, Offset]
"""A partition in one term of its leader, and the base offset of a batch."""


class UnpackedBatches:
    """The cache of one broker."""

    def __init__(self, world: World, tasks: Tasks, allowance: Allowance) -> None:
        """An empty cache; `tasks` runs the tasks that wait for a thread, and `allowance` pays for all other work."""
        self._allowance = allowance
        self._world = world
        self._tasks = tasks
        self._kept: dict[Key, Buffer] = {}
        """The decompressed batches, the least recently used first."""
        self._kept_bytes = 0
        self._one_at_a_time = trio.Lock()

    def get(self, key: Key, codec: int, body: memoryview, done: Callable[[Buffer], None]) -> Buffer | None:
        """The decompressed records of a batch; None if a thread has to decompress it, and then `done` is called."""
        data = self._kept.get(key)
        if data is None and len(body) <= AT_ONCE_BYTES_MAX:
            data = self._at_once(codec, body)
        if data is None:
            self._tasks.start_soon(self._unpack, key, codec, bytes(body), done)
        else:
            self._keep(key, data)
        return data

    def forget(self, of: object) -> None:
        """Drops all batches of a partition."""
        for key in [key for key in self._kept if key[0] is of]:
            self._drop(key)

    def _at_once(self, codec: int, body: memoryview) -> Buffer | None:
        data: Buffer | None
        try:
            data = decompress(codec, body, AT_ONCE_BYTES_MAX)
        except CorruptData:
            data = b""
        except UnpackedTooLarge:
            data = None
        self._allowance.spend((AT_ONCE_BYTES_MAX if data is None else len(data)) // BYTES_PER_UNIT)
        return data

    async def _unpack(self, key: Key, codec: int, body: bytes, done: Callable[[Buffer], None]) -> None:
        async with self._one_at_a_time:
            data = await self._world.blocking(_unpacked, codec, body)
        self._keep(key, data)
        done(data)

    def _keep(self, key: Key, data: Buffer) -> None:
        if key in self._kept:
            self._drop(key)
        self._kept[key] = data
        self._kept_bytes += len(data) + ENTRY_BYTES
        while len(self._kept) > 1 and self._kept_bytes > UNPACKED_BYTES_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self._kept_bytes -= len(self._kept.pop(key)) + ENTRY_BYTES


def _unpacked(codec: int, body: bytes) -> Buffer:
    try:
        return decompress(codec, body, UNPACKED_BYTES_MAX)
    except (CorruptData, UnpackedTooLarge):
        return b""
