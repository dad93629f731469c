"""A writer: a chain of writes to one partition, up to five batches ahead of their answers.

    async with client.writer("orders") as writer:
        first = writer.send(b"created", expected=end.sn)
        second = writer.send(b"paid", expected=gnomon.PREVIOUS)
        print(await second.sn())

1. The records of a writer are in the log in the order in which they were sent.
2. After a write that failed, or whose outcome is unknown, later ones fail with the same error, until one names what it
   expects with an SN or a Dlsn. So no write lands behind one that its caller believes to be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnomon.client.errors import InvalidCall, WriterClosed
from gnomon.client.leaders import TRY_SECONDS
from gnomon.client.writes.arguments import checked_records, checked_terms
from gnomon.client.writes.client_write import Previous, WriteRecord
from gnomon.client.writes.partition_writes import PartitionWrites
from gnomon.client.writes.pending_write import PendingWrite
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.records import Header


class Writer:
    """The writer of one chain; `NativeClient.writer` makes it."""

    def __init__(self, writes: PartitionWrites, clock: Clock, token: bytes | None) -> None:
        self._writes = writes
        self._token = token
        self._clock = clock
        self._last: PendingWrite | None = None
        self._closed = False

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        transaction_id: int | None = None,
        expected: SN | Dlsn | Previous | None = None,
    ) -> PendingWrite:
        """Sends one record, soon and without waiting.

        Args:
            transaction_id: see `NativeClient.write`.
            expected: how the log has to end before the record; PREVIOUS for the record that was sent before it.

        Raises:
            InvalidCall: an argument is not valid; nothing was sent.
            WriterClosed: the writer was closed.
        """
        return self.send_batch([WriteRecord(value, key, headers)], transaction_id=transaction_id, expected=expected)

    def send_batch(
        self,
        records: Iterable[bytes | WriteRecord | None],
        *,
        transaction_id: int | None = None,
        expected: SN | Dlsn | Previous | None = None,
    ) -> PendingWrite:
        """`send` for several records, all of which are written or none."""
        if self._closed:
            raise WriterClosed("the writer was closed: make another one")
        before = None if self._last is None else self._last.write
        terms = checked_terms(expected, transaction_id, self._token)
        if isinstance(terms.expected, Previous) and before is None:
            raise InvalidCall("nothing was sent before: expect an SN or a Dlsn, or nothing")
        deadline = self._clock.monotonic() + TRY_SECONDS
        self._last = pending = PendingWrite(checked_records(records), terms, deadline)
        if before is not None and before.error is not None and not isinstance(terms.expected, SN):
            pending.write.failed(before.error)
        else:
            self._writes.add(pending.write)
        return pending

    async def flush(self) -> None:
        """Waits until every write has an outcome."""
        await self._writes.flushed()

    def close(self) -> None:
        """Ends the writes that have no outcome; nothing more can be sent."""
        self._closed = True
        self._writes.close(WriterClosed("the writer was closed before the write had an outcome"))
