"""The writes of a native client: independent ones, which share a pipeline for each partition, and those of writers."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from gnomon.client.errors import InvalidCall, WriterClosed
from gnomon.client.leaders import TRY_SECONDS, Leaders
from gnomon.client.writes.arguments import checked_partition, checked_records, checked_terms, checked_token
from gnomon.client.writes.client_write import Previous, WriteRecord
from gnomon.client.writes.partition_writes import PartitionWrites
from gnomon.client.writes.pending_write import PendingWrite
from gnomon.client.writes.writer import Writer
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN
from gnomon.runtime.world import World


class Writes:
    """The writes of one client."""

    def __init__(self, world: World, leaders: Leaders, nursery: trio.Nursery) -> None:
        """Nothing is written yet; `nursery` runs the tasks that send."""
        self._world = world
        self._leaders = leaders
        self._nursery = nursery
        self._partitions: dict[tuple[str, int], PartitionWrites] = {}
        """The independent writes, by topic and partition."""
        self._writers: dict[Writer, None] = {}
        self._closed = False

    async def write(
        self,
        topic: str,
        partition: int,
        records: Iterable[bytes | WriteRecord | None],
        transaction_id: int | None,
        expected: SN | Dlsn | None,
        token: bytes | None,
    ) -> SN:
        """Writes one batch; see `NativeClient.write_batch`."""
        self._check_open()
        terms = checked_terms(expected, transaction_id, token)
        if isinstance(terms.expected, Previous):
            raise InvalidCall("PREVIOUS is for the writes of one `writer`: expect an SN or a Dlsn")
        deadline = self._world.clock.monotonic() + TRY_SECONDS
        pending = PendingWrite(checked_records(records), terms, deadline)
        self._of(topic, checked_partition(partition)).add(pending.write)
        try:
            return await pending.sn()
        except trio.Cancelled:
            pending.write.abandon()
            raise

    def _of(self, topic: str, partition: int) -> PartitionWrites:
        writes = self._partitions.get((topic, partition))
        if writes is None:
            writes = self._partitions[topic, partition] = self._started(topic, partition, chain=False)
        return writes

    def _started(self, topic: str, partition: int, *, chain: bool) -> PartitionWrites:
        writes = PartitionWrites(self._world, self._leaders, topic, partition, chain=chain)
        self._nursery.start_soon(writes.run)
        return writes

    def open_writer(self, topic: str, partition: int, token: bytes | None = None) -> Writer:
        """A writer that is open until `close_writer`; see `NativeClient.writer`."""
        self._check_open()
        checked_token(token)
        writer = Writer(self._started(topic, checked_partition(partition), chain=True), self._world.clock, token)
        self._writers[writer] = None
        return writer

    def close_writer(self, writer: Writer) -> None:
        """Ends the writes of a writer that have no outcome."""
        self._writers.pop(writer, None)
        writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise WriterClosed("the client was closed: connect again")

    def close(self) -> None:
        """Ends the writes that have no outcome."""
        self._closed = True
        for writer in list(self._writers):
            self.close_writer(writer)
        for writes in self._partitions.values():
            writes.close(WriterClosed("the client was closed before the write had an outcome"))
