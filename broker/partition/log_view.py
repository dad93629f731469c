"""A view of a partition's records that follows its log append by append, as a table does (`broker/tables`). Pure.

1. The log calls the methods in the order of its appends: `give_out` when offsets are assigned, `durable` when the high
   watermark moves, before the append is answered, and `lost` when the appends that are not durable have failed.
2. The decisions of a view count everything that was given out before, durable or not, as those of the log do (`log`
   invariant 4).
"""

from __future__ import annotations

from typing import Any, Protocol

from gnomon.broker.partition.producers import Duplicate
from gnomon.log.entry import Offset
from gnomon.wire.kafka.batch import BatchHeader


class ViewBehind(Exception):
    """The view has not applied the log yet: the operation can be repeated; the text says how far it is."""


class ViewOperation(Protocol):
    """An operation on a view, which makes its batch when it is its turn in the log."""

    size_bytes: int
    """About the bytes of its batch."""
    is_final: bool
    """Whether the answer of an operation without a batch needs no confirmation that this broker leads."""


class LogView(Protocol):
    """The view of one partition."""

    def changes_at_once(self, view: memoryview, batch: BatchHeader) -> Any:
        """The effect of a produced batch, for `give_out`.

        Raises:
            TakesLong: it takes longer than a turn allows; `changes_in_thread` is for that.
            BatchRejected: the view does not take it.
        """

    def changes_in_thread(self, view: memoryview, batch: BatchHeader, bytes_max: int) -> Any:
        """`changes_at_once` for any batch, called outside of the event loop.

        Raises:
            UnpackedTooLarge: its records decompress to more than `bytes_max`.
            BatchRejected: the view does not take it.
        """

    def refused(self, reason: str) -> None:
        """A produced batch was refused with INVALID_RECORD."""

    async def prepare(self, changes: Any) -> None:
        """Does some of the work of `give_out` for a batch of many records; no other is given out meanwhile."""

    def decide(self, operation: Any, base_offset: Offset, now_ms: int) -> tuple[bytes, Any] | Duplicate | None:
        """Decides an operation whose turn it is.

        Returns:
            The batch to append, with its effect; or the place of the batch that has done it before; or None for an
            operation that writes nothing.

        Raises:
            ViewBehind: the view cannot decide now.
            BatchRejected: the view does not take what the operation would write.
        """

    def give_out(self, changes: Any, base_offset: Offset, append_time_ms: int) -> None:
        """A batch with this effect was given out; its records have the time `append_time_ms` unless that is -1."""

    def durable(self, next_offset: Offset) -> None:
        """All records below `next_offset` are durable."""

    def lost(self) -> None:
        """The batches that are not durable have failed."""
