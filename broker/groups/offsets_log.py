"""What the coordinator needs of the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, TypeAlias

from gnomon.broker.errors import KafkaError

AppendDone: TypeAlias = Callable[[int | None, KafkaError | None], None]
"""Takes the base offset of a durable batch, or the error of one that failed or whose outcome is unknown."""


class OffsetsLog(Protocol):
    """One partition, led by this broker."""

    def read_all(self) -> AsyncGenerator[tuple[int, bytes, bytes | None], None]:
        """Offset, key and value of every record from the log's start to its end at the call, in order.

        Raises:
            KafkaError: the log cannot be read; NOT_LEADER_OR_FOLLOWER where another broker leads it.
        """

    def append(self, records: Sequence[tuple[bytes, bytes | None]], done: AppendDone) -> None:
        """Appends keys and values as one batch.

        `done` is called once in the Trio thread, in the order of the appends, never from within this call; its error
        is NOT_LEADER_OR_FOLLOWER where another broker leads the partition now.
        """

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Has `done` called with whether what was read and appended is certainly all that the log holds now."""

    def goes_on(self) -> bool:
        """Whether it is still the log that was read, as far as is known: else nothing more is appended to it."""

    def trim(self, before_offset: int) -> None:
        """Lets go of what lies before `before_offset`, soon; what remains is whole without it."""


class OffsetsLogs(Protocol):
    """All partitions of the topic."""

    async def open(self, partition: int) -> OffsetsLog:
        """The log of a partition, for this broker to write.

        Raises:
            KafkaError: it cannot be had now; NOT_LEADER_OR_FOLLOWER where another broker leads it.
        """

    async def used(self) -> Sequence[int]:
        """The partitions that were ever written to, whoever leads them, in any order.

        Raises:
            KafkaError: that cannot be found out now.
        """
