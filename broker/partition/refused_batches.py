"""Batches that this broker refused, by partition, so that what came behind one does not overtake it. Pure.

Clients have several requests on their way. One that arrives before this broker leads the partition, or has heard of the
topic, is refused; the next may arrive when it does. To a partition that knows nothing of the producer that would be its
first batch (`producers` invariant 5), and the refused one, sent again, would come too late for ever.
"""

from __future__ import annotations

from typing import Final

from gnomon.broker.partition.producers import AwaitedBatches

PARTITIONS_MAX: Final = 10_000
"""Beyond these the oldest are forgotten: a client has to hear of the refusal meanwhile, that is all."""


class RefusedBatches:
    """What is awaited of each partition, whether it is open here or not; topics go by name or by the bytes of an id."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[str | bytes, int], AwaitedBatches] = {}

    def of(self, topic: str | bytes, index: int) -> AwaitedBatches:
        """What is awaited of a partition, for its `Producers` and for more refusals."""
        key = topic, index
        awaited = self._awaited.get(key)
        if awaited is None:
            awaited = self._awaited[key] = AwaitedBatches()
            if len(self._awaited) > PARTITIONS_MAX:
                del self._awaited[next(iter(self._awaited))]
        return awaited

    def join(self, name: str, topic_id: bytes, index: int) -> AwaitedBatches:
        """As `of`, with what was refused while the topic's name, or its id, meant nothing here."""
        awaited = self.of(name, index)
        by_id = self._awaited.pop((topic_id, index), None)
        if by_id is not None:
            awaited.absorb(by_id)
        return awaited
