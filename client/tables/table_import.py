"""The import of an export into an empty table.

1. The file is read twice: nothing is written before the whole file was checked, and it is checked again while its
   entries are written.
2. At most PENDING_WRITES batches are on their way, and PENDING_BYTES wait for theirs.
3. A failure before anything was written is raised as it is. After that, it is an `ImportIncomplete`.
4. In the end, the keys and values of the table are compared with those of the file; of keys that expire only those that
   are there still.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from gnomon.client.errors import ImportIncomplete, InvalidCall, NativeError, OutcomeUnknown, TableNotEmpty, TooLarge
from gnomon.client.protocol import WRITE_BYTES_MAX
from gnomon.client.tables.export_file import ExportFile
from gnomon.client.tables.table_partition import TablePartition
from gnomon.client.writes.client_write import WriteRecord
from gnomon.client.writes.writes import Writes
from gnomon.log.tables.changes import TTL, TTL_MS_MAX
from gnomon.log.tables.export_form import ExportDamaged, ExportedPartition, ExportHead
from gnomon.log.tables.key_entry import NEVER, unpack_entry
from gnomon.log.tables.table_digest import ContentDigest
from gnomon.runtime.world import World
from gnomon.wire.kafka.partitioner import partition_of

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 192 << 10
"""A broker decides batches of this size in one turn."""
PENDING_WRITES: Final = 8
PENDING_BYTES: Final = 8 << 20
ENTRY_BYTES_MAX: Final = WRITE_BYTES_MAX - (128 << 10)
"""The largest key and value that the native client can write."""
SCAN_ENTRIES: Final = 2_000


@dataclass(frozen=True, slots=True)
class TableImport:
    """A finished import, whose entries were compared with the file."""

    topic: str
    """The topic that the export was made of."""
    exported_ms: int
    keys: int
    """The keys that were written."""
    left_out: int
    """The keys whose time to live was over."""
    expired: int
    """The keys that were written and have expired since."""


async def import_table(
    world: World, writes: Writes, topic: str, partitions: Sequence[TablePartition], path: Path
) -> TableImport:
    """Imports a file; see `Table.import_from`."""
    await _check_empty(topic, partitions)
    file = await world.blocking(ExportFile, path)
    try:
        head = await _checked_head(world, file)
        await _check_empty(topic, partitions)
        await world.blocking(file.rewind)
        importing = _Import(world, writes, topic, partitions, head)
        await importing.write(file)
        expired = await importing.compare()
    finally:
        with trio.CancelScope(shield=True):
            await world.blocking(file.close)
    return TableImport(head.topic, head.exported_ms, importing.keys, importing.left_out, expired)


async def _check_empty(topic: str, partitions: Sequence[TablePartition]) -> None:
    keys = sum([await partition.count(b"", stale=False) for partition in partitions])
    if keys:
        raise TableNotEmpty(topic, keys)


async def _checked_head(world: World, file: ExportFile) -> ExportHead:
    """The head of a file, all of which was read.

    Raises:
        ExportDamaged: the file is not as it was written.
        InvalidCall: an entry is too large to be written.
    """
    head: ExportHead | None = None
    while (events := await world.blocking(file.events)) is not None:
        for event in events:
            if isinstance(event, ExportHead):
                head = event
            elif not isinstance(event, ExportedPartition):
                for key, packed in event:
                    if len(key) + len(packed) > ENTRY_BYTES_MAX:
                        raise InvalidCall(
                            f"the value of the key {key!r:.60} has {len(packed)} bytes, and an import writes at most"
                            f" {ENTRY_BYTES_MAX}: nothing was written"
                        )
    assert head is not None, "a whole export has a head"
    return head


class _Contents:
    """The keys of one side of the comparison."""

    def __init__(self) -> None:
        self.lasting = ContentDigest()
        self.expiring = ContentDigest()

    def add(self, key: bytes, value: bytes, expires_ms: int) -> None:
        (self.lasting if expires_ms == NEVER else self.expiring).add(key, value)


class _Import:
    """An import on its way."""

    def __init__(
        self,
        world: World,
        writes: Writes,
        topic: str,
        partitions: Sequence[TablePartition],
        head: ExportHead,
    ) -> None:
        self._world = world
        self._writes = writes
        self._topic = topic
        self._partitions = partitions
        self._keeps_places = head.partitions == len(partitions)
        self._batches = [_ImportBatch() for _ in partitions]
        self._waiting_bytes = 0
        self._written = _Contents()
        self._first_expiry_ms: int | None = None
        self._room = trio.Semaphore(PENDING_WRITES)
        self._has_written = False
        self.left_out = 0

    @property
    def keys(self) -> int:
        """The keys that are written."""
        return self._written.lasting.keys + self._written.expiring.keys

    # --- writing ------------------------------------------------------------------------------------------------

    async def write(self, file: ExportFile) -> None:
        """Writes the entries of the file.

        Raises:
            ImportIncomplete: some may be written, and others not.
            NativeError: nothing was written.
        """
        failures: list[NativeError] = []
        async with trio.open_nursery() as nursery:

            async def send(index: int, records: Sequence[WriteRecord]) -> None:
                try:
                    await self._write(index, records)
                except NativeError as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()
                finally:
                    self._room.release()

            async def start(index: int) -> None:
                batch = self._batches[index]
                self._waiting_bytes -= batch.size_bytes
                self._batches[index] = _ImportBatch()
                await self._room.acquire()
                if self._has_written:
                    nursery.start_soon(send, index, batch.records)
                else:
                    await send(index, batch.records)

            try:
                async with aclosing(self._full(file)) as full:
                    async for index in full:
                        await start(index)
                for index, batch in enumerate(self._batches):
                    if batch.records:
                        await start(index)
            except (ExportDamaged, OSError) as error:
                failures.append(NativeError(f"the file was changed, or can be read no more: {error}"))
                nursery.cancel_scope.cancel()
        if failures:
            raise self._failed(failures[0])

    def _failed(self, error: NativeError) -> NativeError:
        if not self._has_written and not isinstance(error, OutcomeUnknown):
            return error
        incomplete = ImportIncomplete(
            f"table '{self._topic}' has a part of the file: delete the topic before the file is imported again: {error}"
        )
        incomplete.__cause__ = error
        return incomplete

    async def _full(self, file: ExportFile) -> AsyncGenerator[int]:
        """The partitions whose next batch is to be written, as the file is read."""
        index = 0
        while (events := await self._world.blocking(file.events)) is not None:
            for event in events:
                if isinstance(event, ExportHead):
                    continue
                if isinstance(event, ExportedPartition):
                    index = event.partition
                    continue
                now_ms = self._world.clock.wall_ms()
                for key, packed in event:
                    place = index if self._keeps_places else partition_of(key, len(self._partitions))
                    batch = self._batches[place]
                    value, _, _, _, expires_ms = unpack_entry(packed)
                    if batch.records and batch.size_bytes + len(key) + len(value) > BATCH_BYTES:
                        yield place
                        batch = self._batches[place]
                    self._add(batch, key, value, expires_ms, now_ms)
                    if len(batch.records) == BATCH_RECORDS:
                        yield place
                    elif self._waiting_bytes > PENDING_BYTES:
                        yield max(range(len(self._batches)), key=lambda each: self._batches[each].size_bytes)

    def _add(self, batch: _ImportBatch, key: bytes, value: bytes, expires_ms: int, now_ms: int) -> None:
        headers: tuple[tuple[str, bytes], ...] = ()
        if expires_ms != NEVER:
            if expires_ms <= now_ms:
                self.left_out += 1
                return
            headers = ((TTL, b"%d" % min(expires_ms - now_ms, TTL_MS_MAX)),)
            self._first_expiry_ms = min(expires_ms, self._first_expiry_ms or expires_ms)
        self._written.add(key, value, expires_ms)
        batch.records.append(WriteRecord(value, key, headers))
        batch.size_bytes += len(key) + len(value)
        self._waiting_bytes += len(key) + len(value)

    async def _write(self, index: int, records: Sequence[WriteRecord]) -> None:
        """Writes records to a partition, in smaller batches if its topic does not take one as large."""
        try:
            await self._writes.write(self._topic, index, records, None, None, None)
            self._has_written = True
        except TooLarge:
            if len(records) == 1:
                raise
            half = len(records) // 2
            await self._write(index, records[:half])
            await self._write(index, records[half:])

    # --- comparing ----------------------------------------------------------------------------------------------

    async def compare(self) -> int:
        """Compares the table with what was written; returns the number of keys that have expired meanwhile.

        Raises:
            ImportIncomplete: they differ, or the table could not be read.
        """
        found = _Contents()
        try:
            for partition in self._partitions:
                await _read(partition, found.add)
        except NativeError as error:
            raise ImportIncomplete(
                f"all entries were written, but table '{self._topic}' could not be compared with the file: {error}"
            ) from error
        lasting, expiring = self._written.lasting, self._written.expiring
        expired = expiring.keys - found.expiring.keys
        is_over = self._first_expiry_ms is not None and self._first_expiry_ms <= self._world.clock.wall_ms()
        if (
            (lasting.keys, lasting.digest()) != (found.lasting.keys, found.lasting.digest())
            or expired < 0
            or (expired == 0 and expiring.digest() != found.expiring.digest())
            or (expired > 0 and not is_over)
        ):
            raise ImportIncomplete(
                f"table '{self._topic}' has {found.lasting.keys} keys and {found.expiring.keys} that expire, which are"
                f" not the {lasting.keys} and {expiring.keys} of the file, or have other values: it was written to"
                " meanwhile; delete the topic before the file is imported again"
            )
        return expired


class _ImportBatch:
    """Records of one partition that are not sent yet."""

    def __init__(self) -> None:
        self.records: list[WriteRecord] = []
        self.size_bytes = 0


async def _read(partition: TablePartition, add: Callable[[bytes, bytes, int], None]) -> None:
    after: bytes | None = None
    more = True
    while more:
        _, _, more, listed = await partition.scan(b"", after, SCAN_ENTRIES, keys_only=False, stale=False)
        for key, packed in zip(listed[::2], listed[1::2], strict=True):
            value, _, _, _, expires_ms = unpack_entry(packed)
            add(key, value, expires_ms)
            after = key
