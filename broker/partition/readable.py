"""The read side of a partition: opens on first use and lets readers wait at the end of the log.

1. `opened`, `read` and the searches have the same meaning for a topic's own log and for a shadow.
2. Waiting readers are woken after every change that a reader could see, at most once per turn of the event loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from gnomon.broker.partition.leader_policy import LeaderPolicy
from gnomon.log.entry import Offset
from gnomon.log.log_reader import LogBounds, LogReader
from gnomon.runtime.logs import Logger
from gnomon.wire.kafka.errors import ErrorCode

REOPEN_SECONDS = 0.5
"""Time after a failed opening in which further uses fail at once, without another attempt."""


class Waiter(Protocol):
    """A reader that waits at the end of the log."""

    def wake(self) -> None:
        """The high watermark moved, or the partition was opened or failed to open."""


class Readable(LogReader, ABC):
    """One partition that this broker serves to readers."""

    def __init__(
        self,
        logger: Logger,
        advanced: Callable[[Readable], None],
        turn_ended: Callable[[], None],
        policy: LeaderPolicy,
    ) -> None:
        """A partition that is not open yet.

        Args:
            advanced: called after every change; it has the waiting readers woken at the end of the turn.
            turn_ended: ends the turn; called after changes outside of a turn.
        """
        super().__init__(logger)
        self.failure: ErrorCode | None = None
        """Why the partition could not be opened."""
        self._policy = policy
        self._advanced = advanced
        self._turn_ended = turn_ended
        self._waiters: dict[Waiter, None] = {}

    @abstractmethod
    def open_log(self) -> LogBounds | None:
        """The log if it is readable; otherwise begins to open it."""

    @abstractmethod
    async def opened(self) -> LogBounds | None:
        """The log, once it is readable; None when it could not be opened (see `failure`)."""

    @abstractmethod
    def end(self) -> None:
        """The topic is deleted: waiting readers are woken."""

    @abstractmethod
    def release(self) -> None:
        """Another broker leads the partition from now on; it is not opened here again."""

    def check_epoch(self, epoch: int) -> ErrorCode:
        """See `LogReader.check_epoch`.

        A client that is not given the current epoch may send that of the last record it read, as librdkafka does. So an
        old epoch is accepted where clients do not learn the current one.
        """
        code = super().check_epoch(epoch)
        return ErrorCode.NONE if code is ErrorCode.FENCED_LEADER_EPOCH and not self._policy.tells_epochs else code

    def beyond_end(self, offset: Offset) -> ErrorCode:
        """The answer to a reader at an `offset` beyond the end of this log."""
        return ErrorCode.OFFSET_OUT_OF_RANGE

    def wait(self, waiter: Waiter) -> None:
        """Calls `waiter.wake()` after every change for readers at the end, until `stop_waiting`."""
        self._waiters[waiter] = None
        self.open_log()

    def stop_waiting(self, waiter: Waiter) -> None:
        """Undoes `wait`."""
        self._waiters.pop(waiter, None)

    def notify_change(self) -> None:
        """Reports a change outside a turn of commits: wakes readers, and ends the turn, which sends the answers."""
        self._advanced(self)
        self._turn_ended()

    def wake_waiters(self) -> None:
        """Wakes all waiting readers."""
        for waiter in list(self._waiters):
            waiter.wake()
