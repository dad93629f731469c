"""The log of a state machine, as the runtime uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, TypeAlias

from gnomon.broker.coordination.state_machine import Encoded, StoredRecord


class LogUnavailable(Exception):
    """The log cannot be read or written now; the text says why."""


class NotLogLeader(LogUnavailable):
    """Another broker leads the log, or may."""


AppendDone: TypeAlias = Callable[[int | None, LogUnavailable | None], None]
"""Gets the base offset of a durable batch, or the error of one that failed or whose outcome is unknown."""


class StateLog(Protocol):
    """The log of one machine, led by this broker."""

    def read_all(self) -> AsyncGenerator[StoredRecord, None]:
        """Every record from the log's start to its end at the call, in order.

        Raises:
            LogUnavailable: the log cannot be read.
        """

    def append(self, records: Sequence[Encoded], done: AppendDone) -> None:
        """Appends keys and values as one batch.

        `done` is called once in the Trio thread, in the order of the appends, never from within this call.
        """

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Calls `done` with True if the records read and appended here are certainly the whole log, else with False."""

    def goes_on(self) -> bool:
        """Whether this is still the log that was read, as far as is known; otherwise nothing is appended to it."""

    def trim(self, before_offset: int) -> None:
        """Deletes the records before `before_offset`, soon; the rest is complete without them."""


class StateLogs(Protocol):
    """The logs of all machines of one kind, by partition."""

    async def open(self, partition: int) -> StateLog:
        """The log of a partition, for this broker to write.

        Raises:
            LogUnavailable: it cannot be opened now.
        """

    async def used(self) -> Sequence[int]:
        """The partitions that were ever written to, under any leader, in any order.

        Raises:
            LogUnavailable: the partitions cannot be determined now.
        """
