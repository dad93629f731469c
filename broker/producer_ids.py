"""Producer ids: unique for ever, allocated from the metadata in blocks of BLOCK_SIZE ids (KIP-730)."""

from __future__ import annotations

import trio

from gnomon.broker.errors import metadata_refusals
from gnomon.metadata.client import Compare, Metadata, Put

PRODUCER_IDS_KEY = "producer-ids"
BLOCK_SIZE = 1000


class ProducerIds:
    """Allocates producer ids; the rest of a block is lost at a restart, which is harmless."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._taking = trio.Lock()

    async def next(self) -> int:
        """A producer id that no producer has or had.

        Raises:
            KafkaError: the disk is full.
        """
        async with self._taking:
            if self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> None:
        while True:
            item = await self._metadata.get(PRODUCER_IDS_KEY)
            first = int(item.value) if item is not None else 0
            with metadata_refusals():
                result = await self._metadata.txn(
                    [Compare.version(PRODUCER_IDS_KEY, item.version if item is not None else 0)],
                    [Put(PRODUCER_IDS_KEY, str(first + BLOCK_SIZE).encode())],
                )
            if result.succeeded:
                self._next, self._end = first, first + BLOCK_SIZE
                return
