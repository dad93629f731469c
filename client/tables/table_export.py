"""The export of a table: the newest snapshot of each partition, received part by part and written to a file.

1. The file has one revision of each partition, of the time of the export or later. What was received is compared with
   the digest of the snapshot.
2. A partition begins again, at another revision, if its leader is lost or its snapshot is replaced meanwhile. It is
   given up if nothing arrives for TRY_SECONDS, and after ATTEMPTS_MAX beginnings.
3. The client keeps one part in memory, besides those that the stream has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from gnomon.client.errors import BrokerFailed, NativeError, Unavailable
from gnomon.client.leaders import RETRIABLE, RETRY, TRY_SECONDS
from gnomon.client.tables.export_file import NewExportFile
from gnomon.client.tables.table_partition import TablePartition
from gnomon.log.tables.export_form import ExportedPartition, ExportHead, ExportWriter
from gnomon.log.tables.key_entry import NO_REVISION
from gnomon.log.tables.snapshot_form import SnapshotDamaged, decode_part
from gnomon.log.tables.table_digest import TableDigest
from gnomon.runtime.world import World

ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class TableExport:
    """A finished export."""

    topic: str
    partitions: Sequence[ExportedPartition]
    size_bytes: int
    """The size of the file."""


async def export_table(
    world: World, topic: str, partitions: Sequence[TablePartition], file: NewExportFile
) -> TableExport:
    """Exports all partitions; the file is whole then, and absent if this raises.

    Raises:
        OSError: the file cannot be written.
        NativeError: see `Table.export_to`.
    """
    try:
        await world.blocking(file.open)
        writing = _Export(world, file)
        await writing.begin(ExportHead(topic, len(partitions), world.clock.wall_ms()))
        found = [await writing.partition(index, partition) for index, partition in enumerate(partitions)]
        size_bytes = await writing.end()
    finally:
        with trio.CancelScope(shield=True):
            await world.blocking(file.discard)
    return TableExport(topic, found, size_bytes)


class _Export:
    """An export on its way."""

    def __init__(self, world: World, file: NewExportFile) -> None:
        self._world = world
        self._clock = world.clock
        self._file = file
        self._writer = ExportWriter()
        self._arrived_at = 0.0
        """The time of the last item that has arrived."""

    async def begin(self, head: ExportHead) -> None:
        await self._world.blocking(self._file.write, self._writer.begin(head))

    async def end(self) -> int:
        await self._world.blocking(self._file.write, self._writer.end())
        await self._world.blocking(self._file.finish)
        return self._writer.size_bytes

    async def partition(self, index: int, partition: TablePartition) -> ExportedPartition:
        mark, attempts = self._writer.mark(), 0
        self._arrived_at = self._clock.monotonic()
        while True:
            try:
                return await self._attempt(index, partition)
            except RETRIABLE as error:
                attempts += 1
                if attempts == ATTEMPTS_MAX or self._clock.monotonic() - self._arrived_at > TRY_SECONDS:
                    text = f"partition {index} could not be exported, in {attempts} attempts: {error}"
                    raise error if isinstance(error, NativeError) and attempts == 1 else Unavailable(text) from error
            self._writer.back_to(mark)
            await self._world.blocking(self._file.cut, mark.size_bytes)
            await self._clock.sleep(RETRY.seconds(attempts))

    async def _attempt(self, index: int, partition: TablePartition) -> ExportedPartition:
        taken, _, _, _ = await partition.snapshot()
        self._arrived_at = self._clock.monotonic()
        async with partition.parts() as items:
            wanted = _partition(index, await anext(items, None))
            if wanted.revision < taken:
                raise Unavailable(f"the leader knows the snapshot at revision {taken} not yet")
            await self._world.blocking(self._file.write, self._writer.partition(wanted))
            digest = TableDigest()
            async for part in items:
                self._arrived_at = self._clock.monotonic()
                await self._world.blocking(self._add, part, digest)
        if (digest.keys, digest.digest()) != (wanted.keys, wanted.digest):
            raise BrokerFailed(
                f"the snapshot of partition {index} at revision {wanted.revision} is damaged: it has {digest.keys} keys"
                f" and the digest {digest.digest().hex()}, and should have {wanted.keys} and {wanted.digest.hex()};"
                " change a key of the partition, and export the table again"
            )
        return wanted

    def _add(self, part: Any, digest: TableDigest) -> None:
        """Writes a part; runs in a thread."""
        if type(part) is not bytes:
            raise _other_form("a part is bytes")
        try:
            digest.add(decode_part(part)[0])
        except SnapshotDamaged as error:
            raise BrokerFailed(str(error)) from error
        self._file.write(self._writer.entries(part))


def _partition(index: int, item: Any) -> ExportedPartition:
    if type(item) is not list or list(map(type, item)) != [int, int, int, bytes]:
        raise _other_form("a snapshot begins with three numbers and a digest")
    revision, keys, bytes_used, digest = item
    return ExportedPartition(
        index, revision, keys, bytes_used, TableDigest().digest() if revision == NO_REVISION else digest
    )


def _other_form(text: str) -> BrokerFailed:
    return BrokerFailed(f"the broker has answered in another form: {text}")
