"""The partitions that are in use on one broker: those with a log of their own, and those of shadows.

1. A partition is made when it is first used, and opens then; nothing is kept of those that nobody has used.
2. One is in use only while this broker leads it: it is released when that ends, and made anew should it come back.
3. All of a topic's end with the topic, and those of its shadows too.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

import trio

from gnomon.broker.errors import KafkaError
from gnomon.broker.leadership import NOBODY
from gnomon.broker.partition.chain import Chain, ledgers_prefix, stored_bytes
from gnomon.broker.partition.log_reader import LogBounds
from gnomon.broker.partition.partition import Partition
from gnomon.broker.shadow.partition import ShadowPartition
from gnomon.broker.shadow.source import SourceLedgers
from gnomon.broker.topics import Topic, topic_key
from gnomon.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker


class InUse(NamedTuple):
    """A partition with a log of its own."""

    topic_id: uuid.UUID
    number: int
    partition: Partition


class PartitionsInUse:
    """What `Broker` finds or makes for those who use partitions."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._nursery = nursery
        self._partitions: dict[tuple[uuid.UUID, int], Partition] = {}
        self._shadows: dict[tuple[uuid.UUID, int], ShadowPartition] = {}
        self._sources: dict[uuid.UUID, SourceLedgers] = {}
        """Of the shadows that were used here."""

    # --- using ------------------------------------------------------------------------------------------------------

    def use(self, topic: Topic, index: int) -> Partition:
        """A partition that this broker leads, as far as it knows; it is opened when it is first used.

        Raises:
            KafkaError: another broker leads it.
        """
        partition = self._partitions.get((topic.id, index))
        if partition is None:
            assert topic.source is None, f"topic '{topic.name}' has no log of its own"
            self._check_led(topic, index)
            partition = self._partitions[topic.id, index] = self._made(topic, index)
            self._broker.replication.stir()
        return partition

    def _made(self, topic: Topic, index: int) -> Partition:
        broker, prefix = self._broker, ledgers_prefix(topic.id, index)
        chain = Chain(
            broker.metadata,
            broker.bookies,
            broker.entries,
            prefix,
            topic_key(topic.name),
            topic.create_revision,
            broker.quorum,
            broker.claimant,
        )
        partition = Partition(
            chain,
            broker.settings_of(topic),
            broker.world.clock,
            self._nursery,
            broker.turns.advanced,
            broker.turns.ended,
            broker.log.bind(topic=topic.name, partition=index, ledgers=prefix),
            broker.refused.join(topic.name, topic.id.bytes, index),
        )
        partition.alone = broker.lease_until is None
        return partition

    def use_shadow(self, topic: Topic, index: int) -> ShadowPartition:
        """A partition of a shadow that this broker leads, as far as it knows; it is opened when it is first used.

        Raises:
            KafkaError: another broker leads it, or the source is gone.
        """
        partition = self._shadows.get((topic.id, index))
        if partition is None:
            assert topic.source is not None, f"topic '{topic.name}' is no shadow"
            if self._broker.image.has_ended(topic):
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic '{topic.name}' is a shadow of '{topic.source.name}', which was deleted: delete it too",
                )
            self._check_led(topic, index)
            partition = self._shadows[topic.id, index] = self._made_shadow(topic, index, topic.source.id)
        return partition

    def _made_shadow(self, topic: Topic, index: int, source_id: uuid.UUID) -> ShadowPartition:
        broker = self._broker
        source = self._sources.get(source_id)
        if source is None:
            source = self._sources[source_id] = SourceLedgers(
                broker.metadata, broker.world.clock, self._nursery, broker.log, source_id
            )
        partition = ShadowPartition(
            broker.metadata,
            broker.bookies,
            broker.entries,
            source,
            index,
            lambda: self._open_source(topic, index),
            broker.world.clock,
            self._nursery,
            broker.turns.advanced,
            broker.turns.ended,
            broker.log.bind(topic=topic.name, partition=index, ledgers=ledgers_prefix(source_id, index)),
        )
        partition.alone = broker.lease_until is None
        return partition

    def _open_source(self, shadow: Topic, index: int) -> None:
        """Has the source's end found, where this broker leads it: who wrote it may have died before telling."""
        source = self._broker.image.source_of(shadow)
        if source is not None and self._broker.leads(source, index):
            self.use(source, index).open_log()

    def _check_led(self, topic: Topic, index: int) -> None:
        leader = self._broker.leader(topic, index)
        if leader != self._broker.node_id:
            who = "no broker at the moment" if leader == NOBODY else f"broker {leader}"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {index} of topic '{topic.name}' is led by {who}"
            )

    # --- looking ----------------------------------------------------------------------------------------------------

    def get(self, topic_id: uuid.UUID, index: int) -> Partition | None:
        """A partition with a log of its own, if it was used here."""
        return self._partitions.get((topic_id, index))

    def open_shadow(self, topic_id: uuid.UUID, index: int) -> ShadowPartition | None:
        """A partition of a shadow, if it is open here."""
        partition = self._shadows.get((topic_id, index))
        return partition if partition is not None and partition.log is not None else None

    def log(self, topic: Topic, index: int) -> LogBounds | None:
        """The log of a partition that is in use here, of a shadow too; None where there is none to look at."""
        partition = self._partitions.get((topic.id, index)) or self._shadows.get((topic.id, index))
        return None if partition is None else partition.log

    def with_own_log(self) -> list[InUse]:
        """Those that have a log of their own."""
        return [InUse(*key, partition) for key, partition in self._partitions.items()]

    async def stored_bytes(self) -> dict[tuple[uuid.UUID, int], int]:
        """The bytes of batches by topic and number, of all partitions that were ever used; one read of the metadata."""
        broker = self._broker
        sizes = await stored_bytes(broker.metadata, broker.bookies, broker.entries)
        for key, partition in self._partitions.items():
            size = partition.size_bytes()
            if size is not None:
                sizes[key] = size
        return sizes

    # --- changes ----------------------------------------------------------------------------------------------------

    def release_others(self) -> None:
        """Leaders have changed: what another broker leads from now on is not in use here any more."""
        broker = self._broker
        for partitions in (self._partitions, self._shadows):
            for (topic_id, index), partition in list(partitions.items()):
                topic = broker.image.get_by_id(topic_id)
                if topic is None or not broker.leads(topic, index):
                    del partitions[topic_id, index]
                    partition.release()

    def configure(self, topic: Topic) -> None:
        """What a topic's logs obey may have changed."""
        for index in range(topic.partitions):
            partition = self._partitions.get((topic.id, index))
            if partition is not None:
                partition.configure(self._broker.settings_of(topic))

    def end(self, topic: Topic, shadows: list[Topic]) -> None:
        """A topic is gone, and so is what its shadows showed."""
        for topic_id in (topic.id, *(shadow.id for shadow in shadows)):
            for partitions in (self._partitions, self._shadows):
                for key in [key for key in partitions if key[0] == topic_id]:
                    partitions.pop(key).end()
        self._sources.pop(topic.id, None)
