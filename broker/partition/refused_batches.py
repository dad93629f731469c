"""The batches that this broker refused, by partition, so that later batches do not overtake them. Pure.

A client has several requests in flight. A request is refused if it arrives before this broker leads the partition or
knows the topic; the next one may arrive after that. A partition that does not know the producer would append the later
batch as the producer's first one (`producers` invariant 5), and would reject every retry of the refused batch.
"""

from __future__ import annotations

from typing import Final

from gnomon.broker.partition.producers import AwaitedBatches

PARTITIONS_MAX: Final = 10_000
"""Beyond this number the oldest are forgotten: by then the clients of those have received their refusals."""


class RefusedBatches:
    """The awaited batches of each partition, open here or not; a topic is given by its name or the bytes of its id."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[str | bytes, int], AwaitedBatches] = {}

    def of(self, topic: str | bytes, index: int) -> AwaitedBatches:
        """The awaited batches of a partition, for its `Producers` and for further refusals."""
        key = topic, index
        awaited = self._awaited.get(key)
        if awaited is None:
            awaited = self._awaited[key] = AwaitedBatches()
            if len(self._awaited) > PARTITIONS_MAX:
                del self._awaited[next(iter(self._awaited))]
        return awaited

    def join(self, name: str, topic_id: bytes, index: int) -> AwaitedBatches:
        """Like `of`, and includes the batches that were refused while this broker did not know the topic or its id."""
        awaited = self.of(name, index)
        by_id = self._awaited.pop((topic_id, index), None)
        if by_id is not None:
            awaited.absorb(by_id)
        return awaited
