"""A partition as those see it who read it: opened when it is first used, and waited for at its end.

1. `opened`, `read` and the searches mean the same wherever the records come from.
2. Who waits is woken after every change that a reader could see, once a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from gnomon.broker.partition.entry import Offset
from gnomon.broker.partition.log_reader import LogBounds, LogReader
from gnomon.runtime.logs import Logger
from gnomon.wire.kafka.errors import ErrorCode

REOPEN_SECONDS = 0.5
"""After a failed opening, how long further uses fail at once instead of trying again."""


class Waiter(Protocol):
    """Somebody who reads at the end of the log."""

    def wake(self) -> None:
        """The high watermark moved, the partition opened, or it failed."""


class Readable(LogReader, ABC):
    """One partition that this broker serves to readers."""

    def __init__(self, logger: Logger, advanced: Callable[[Readable], None], turn_ended: Callable[[], None]) -> None:
        """A partition that is not open yet.

        Args:
            advanced: told of every change; who waits is to be woken at the end of the turn.
            turn_ended: ends the turn, for changes outside of one.
        """
        super().__init__(logger)
        self.failure: ErrorCode | None = None
        """Why the partition could not be opened."""
        self.alone = True
        """Whether no other broker can lead it: only then clients learn the leader epoch from Metadata."""
        self._advanced = advanced
        self._turn_ended = turn_ended
        self._waiters: dict[Waiter, None] = {}

    @abstractmethod
    def open_log(self) -> LogBounds | None:
        """The log if it is open; else begins to open it."""

    @abstractmethod
    async def opened(self) -> LogBounds | None:
        """The log, once it is open; None when it could not be opened (see `failure`)."""

    @abstractmethod
    def end(self) -> None:
        """The topic is gone: everybody who waits is told."""

    @abstractmethod
    def release(self) -> None:
        """Another broker leads the partition from now on; it is not opened here any more."""

    def check_epoch(self, epoch: int) -> ErrorCode:
        """See `LogReader.check_epoch`.

        Who is not told the current epoch may name that of the last record it read instead, as librdkafka does: an old
        one says nothing then.
        """
        code = super().check_epoch(epoch)
        return ErrorCode.NONE if code is ErrorCode.FENCED_LEADER_EPOCH and not self.alone else code

    def beyond_end(self, offset: Offset) -> ErrorCode:
        """What is said to a reader at an `offset` that this log does not reach."""
        return ErrorCode.OFFSET_OUT_OF_RANGE

    def wait(self, waiter: Waiter) -> None:
        """`waiter.wake()` is called whenever something changes for readers at the end."""
        self._waiters[waiter] = None
        self.open_log()

    def stop_waiting(self, waiter: Waiter) -> None:
        """Undoes `wait`."""
        self._waiters.pop(waiter, None)

    def _changed(self) -> None:
        """Outside a turn of commits: readers are told, and what was answered leaves."""
        self._advanced(self)
        self._turn_ended()

    def wake_waiters(self) -> None:
        """Tells everybody who waits that something has changed."""
        for waiter in list(self._waiters):
            waiter.wake()
