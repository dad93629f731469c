"""The way from the topic and number that a request names to the partition that serves it.

1. A partition is read only while the broker's lease lives: afterwards another broker may lead it. Appends need no
   lease, because bookies refuse those of a replaced leader.
2. A route is valid until a topic ends or leaders change: `revision` grows then.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.partitions_in_use import PartitionsInUse
from gnomon.broker.partition.partition import Partition
from gnomon.broker.partition.readable import Readable
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.cast import refused
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic
from gnomon.wire.kafka.errors import ErrorCode


class Routes:
    """Finds the partitions of one broker for requests that read, change or produce to them."""

    def __init__(self, topics: Topics, placement: Placement, partitions: PartitionsInUse) -> None:
        self.revision = 0
        """Grows when a partition that was found earlier may not be the right one any more."""
        self._topics = topics
        self._placement = placement
        self._partitions = partitions
        self._produced_to: dict[tuple[str | bytes, int], Partition] = {}
        topics.watch(ended=self._topic_ended)
        placement.watch(self._end_all)

    def to_read(self, ref: str | bytes, index: int) -> Readable:
        """A partition that this broker leads, to read it; it is opened when it is first used.

        Args:
            ref: the name of a topic, or the bytes of its id.

        Raises:
            KafkaError: topic or partition do not exist, or another broker leads it.
        """
        self._placement.check_lease()
        topic = self._topics.find_partition(ref, index)
        if topic.source is None:
            return self._partitions.use(topic, index)
        return self._partitions.use_shadow(topic, index)

    def to_change(self, ref: str | bytes, index: int) -> Partition:
        """A partition that this broker leads, as far as it knows, for a client that changes its log.

        Raises:
            KafkaError: topic or partition do not exist, or another broker leads it; or it is a shadow's, or the broker
                keeps its own state in it.
        """
        topic = self._topics.find_partition(ref, index)
        if topic.internal:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{topic.name}' holds the broker's own state: only read it",
            )
        if topic.source is not None:
            raise refused(topic, "write to")
        return self._partitions.use(topic, index)

    def to_produce(self, ref: str | bytes, index: int) -> Partition:
        """A partition for a client that produces to it; the result is cached until `revision` grows.

        Raises:
            KafkaError: topic or partition do not exist, another broker leads it, or clients must not produce to it.
        """
        partition = self._produced_to.get((ref, index))
        if partition is None:
            partition = self._produced_to[ref, index] = self.to_change(ref, index)
        return partition

    def _topic_ended(self, topic: Topic, shadows: Sequence[Topic]) -> None:
        self._end_all()

    def _end_all(self) -> None:
        self._produced_to.clear()
        self.revision += 1
