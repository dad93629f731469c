"""The snapshots of one partition's table in the metadata and at the bookies: written, named, read and removed.

1. The record names a ledger only after that is sealed. So a crash leaves the record of the snapshot before, and a
   ledger that no record names, which goes with the next snapshot.
2. The record is replaced only by one of a later revision, unless the one there belongs to another life of the log.
3. Nothing is written for a deleted topic: each transaction compares the topic's record.
4. A ledger that is being read here stays until the next snapshot after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from gnomon.bookie.errors import LedgerExists
from gnomon.bookie.ids import FIRST_ENTRY, EntryId
from gnomon.bookie.ledgers.catalog import Ledger, adopt_ledger, create_ledger, delete_ledgers, take_back_ledger
from gnomon.bookie.record import ledger_key
from gnomon.broker.storage import Storage
from gnomon.log.tables.snapshot_form import (
    SnapshotDamaged,
    SnapshotRecord,
    decode_part,
    ledger_name,
    record_key,
)
from gnomon.log.tables.table_digest import TableDigest
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, KeyField, KeyValue, Put

READ_PARTS: Final = 8


class SnapshotLedgers:
    """The snapshots of one partition."""

    def __init__(self, storage: Storage, topic: Topic, partition: int) -> None:
        """Nothing is read before `load`."""
        self._storage = storage
        self._topic = topic
        self._partition = partition
        self._key = record_key(topic.id, partition)
        self._topic_lives = Compare(topic_key(topic.name), KeyField.CREATE_REVISION, topic.create_revision)
        self._stored: KeyValue | None = None
        self._read: Counter[str] = Counter()
        """The readers of each ledger, by its name."""

    async def load(self) -> SnapshotRecord | None:
        """The record of the newest snapshot: one read of the metadata.

        Raises:
            SnapshotDamaged: it cannot be decoded.
            MetadataError: it cannot be read.
        """
        self._stored = await self._storage.metadata.get(self._key)
        return None if self._stored is None else SnapshotRecord.decode(self._stored.value)

    @property
    def _unchanged(self) -> Compare:
        """Holds as long as the record is the one that was read."""
        if self._stored is None:
            return Compare.absent(self._key)
        return Compare(self._key, KeyField.MOD_REVISION, self._stored.mod_revision)

    async def create(self, revision: int) -> Ledger:
        """A ledger for the snapshot at a revision, which the record does not name.

        Raises:
            LedgerError, MetadataError: it cannot be created.
        """
        storage = self._storage
        name = ledger_name(self._topic.id, self._partition, revision)
        quorum = storage.quorum_of(self._topic.copies)
        compare = (self._topic_lives, self._unchanged)
        try:
            return await create_ledger(storage.metadata, storage.bookies, name, quorum=quorum, compare=compare)
        except LedgerExists:
            left_over = await storage.metadata.get(ledger_key(name))
            if left_over is None or not await delete_ledgers(storage.metadata, [left_over], compare=[self._unchanged]):
                raise
        return await create_ledger(storage.metadata, storage.bookies, name, quorum=quorum, compare=compare)

    async def give_up(self, ledger: Ledger) -> None:
        """Removes a ledger that was not sealed.

        Raises:
            MetadataError: it stays until the next snapshot.
        """
        await take_back_ledger(self._storage.metadata, ledger)

    async def name(self, record: SnapshotRecord) -> bool:
        """Writes the record of a snapshot whose ledger is sealed, and removes all other ledgers that nobody reads here.

        Returns:
            Whether that was done; if not, the record has changed since it was read, or the topic was deleted.

        Raises:
            MetadataError: the outcome is unknown.
        """
        metadata = self._storage.metadata
        result = await metadata.txn([self._topic_lives, self._unchanged], [Put(self._key, record.encode())])
        if not result.succeeded:
            return False
        written = result.results[0]
        assert isinstance(written, KeyValue), "a transaction did not return the item that it put"
        self._stored = written
        found = await metadata.range(ledger_key(f"{self._key}/"))
        kept = {ledger_key(ledger) for ledger in (record.ledger, *self._read)}
        others = [item for item in found.items if item.key not in kept]
        if others:
            await delete_ledgers(metadata, others, compare=[self._unchanged])
        return True

    async def parts(self, record: SnapshotRecord) -> AsyncGenerator[tuple[list[tuple[bytes, bytes]], list[Any]]]:
        """The entries and the operations of a snapshot, part by part.

        Raises:
            SnapshotDamaged: it is not what was written; after the last part, if its digest differs.
            LedgerError, MetadataError: it cannot be read now.
        """
        digest = TableDigest()
        async with aclosing(self.payloads(record, READ_PARTS)) as payloads:
            async for payload in payloads:
                entries, operations = decode_part(payload)
                digest.add(entries)
                yield entries, operations
        if (digest.keys, digest.digest()) != (record.keys, record.digest):
            raise SnapshotDamaged(
                f"the snapshot at revision {record.revision} has {digest.keys} keys and the digest "
                f"{digest.digest().hex()}, its record has {record.keys} and {record.digest.hex()}"
            )

    async def payloads(self, record: SnapshotRecord, at_once: int) -> AsyncGenerator[bytes]:
        """The parts of a snapshot as they are stored, not compared with its digest.

        Args:
            at_once: the number of parts that are read together, and kept until they were taken.

        Raises:
            SnapshotDamaged, LedgerError, MetadataError: as `parts`.
        """
        storage = self._storage
        stored = await storage.metadata.get(ledger_key(record.ledger))
        if stored is None:
            raise SnapshotDamaged(f"the ledger {record.ledger!r} of the snapshot does not exist")
        ledger = adopt_ledger(storage.metadata, storage.bookies, stored)
        if not ledger.record.sealed:
            raise SnapshotDamaged(f"the ledger {record.ledger!r} of the snapshot is not complete")
        last = ledger.last_add_confirmed
        self._read[record.ledger] += 1
        try:
            for first in range(FIRST_ENTRY, last + 1, at_once):
                for payload in await ledger.read(EntryId(first), EntryId(min(first + at_once - 1, last))):
                    yield payload
        finally:
            self._read -= Counter((record.ledger,))
