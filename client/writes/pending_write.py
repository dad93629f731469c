"""A write that was sent, and whose outcome can be waited for."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.client.writes.client_write import ClientTerms, ClientWrite, WriteRecord
from gnomon.log.sn import SN
from gnomon.runtime.signal import Signal


class PendingWrite:
    """One write that was sent."""

    def __init__(self, records: Sequence[WriteRecord], terms: ClientTerms, deadline: float) -> None:
        """A write without an outcome; see `ClientWrite` for the arguments."""
        self._over = Signal()
        self.write = ClientWrite(records, terms, deadline, self._over.set)

    async def sn(self) -> SN:
        """The SN of its last record, once that is durable; cancelling the caller does not cancel the write.

        Raises:
            CasWriteException, TransactionOutOfOrder, TokenMismatch: the terms of this write, or of one before it in its
                `Writer`, did not hold.
            OutcomeUnknown: the records may have been written, now or later.
            NativeError: nothing was written.
        """
        await self._over.wait()
        if self.write.error is not None:
            raise self.write.error
        assert self.write.sn is not None, "a write has one outcome"
        return self.write.sn
