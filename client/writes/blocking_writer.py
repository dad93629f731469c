"""`Writer` for programs without Trio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnomon.client.writes.client_write import Previous, WriteRecord
from gnomon.client.writes.pending_write import PendingWrite
from gnomon.client.writes.writer import Writer
from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN
from gnomon.runtime.trio_thread import TrioThread
from gnomon.wire.kafka.records import Header


class BlockingPendingWrite:
    """A blocking `PendingWrite`."""

    def __init__(self, thread: TrioThread, pending: PendingWrite) -> None:
        self._thread = thread
        self._pending = pending

    def sn(self) -> SN:
        """See `PendingWrite.sn`."""
        return self._thread.call(self._pending.sn)


class BlockingWriter:
    """A blocking `Writer`; see there for the guarantees and errors of each method."""

    def __init__(self, thread: TrioThread, writer: Writer) -> None:
        self._thread = thread
        self._writer = writer

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        transaction_id: int | None = None,
        expected: SN | Dlsn | Previous | None = None,
    ) -> BlockingPendingWrite:
        """See `Writer.send`."""
        return self.send_batch([WriteRecord(value, key, headers)], transaction_id=transaction_id, expected=expected)

    def send_batch(
        self,
        records: Iterable[bytes | WriteRecord | None],
        *,
        transaction_id: int | None = None,
        expected: SN | Dlsn | Previous | None = None,
    ) -> BlockingPendingWrite:
        """See `Writer.send_batch`."""

        async def send() -> PendingWrite:
            return self._writer.send_batch(records, transaction_id=transaction_id, expected=expected)

        return BlockingPendingWrite(self._thread, self._thread.call(send))

    def flush(self) -> None:
        """See `Writer.flush`."""
        self._thread.call(self._writer.flush)
