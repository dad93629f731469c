"""The topic `__consumer_offsets`, which holds all groups: created when it is first needed.

A group's partition depends on the number of partitions that the topic was created with, not on the present settings.
"""

from __future__ import annotations

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.errors import KafkaError
from gnomon.broker.groups.coordinator import partition_for
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topic_creation import TopicCreation
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import OFFSETS_BATCH_BYTES_MAX, OFFSETS_TOPIC, Topic
from gnomon.wire.kafka.errors import ErrorCode

_CONFIGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(OFFSETS_BATCH_BYTES_MAX),
    "max.message.bytes": str(OFFSETS_BATCH_BYTES_MAX),
}


class OffsetsTopic:
    """The topic as one broker uses it."""

    def __init__(
        self,
        topics: Topics,
        placement: Placement,
        creation: TopicCreation,
        configs: BrokerConfigs,
        *,
        led_before_made: bool,
    ) -> None:
        """The topic may not exist yet.

        Args:
            led_before_made: whether this broker coordinates all groups before the topic exists, so that a group request
                creates it; otherwise a client asks for its coordinator first.
        """
        self._topics = topics
        self._placement = placement
        self._creation = creation
        self._configs = configs
        self._led_before_made = led_before_made

    def get(self) -> Topic | None:
        """The topic, if it exists."""
        return self._topics.image.get(OFFSETS_TOPIC)

    async def made(self) -> Topic:
        """The topic, created on first use.

        Raises:
            KafkaError: the topic cannot be created now.
        """
        topic = self.get()
        if topic is not None:
            return topic
        partitions = self._configs.number("offsets.topic.num.partitions")
        try:
            created = await self._creation.attempt(
                self._creation.check_new(OFFSETS_TOPIC, partitions, _CONFIGS, internal=True)
            )
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self._topics.find(OFFSETS_TOPIC)
        assert created is not None, f"'{OFFSETS_TOPIC}' is never deleted"
        return created

    def partitions(self) -> int:
        """The number of partitions that the topic has, or will have once it is created."""
        topic = self.get()
        return topic.partitions if topic is not None else self._configs.number("offsets.topic.num.partitions")

    def leads(self, partition: int) -> bool:
        """Whether this broker coordinates the groups of a partition, as far as it knows."""
        topic = self.get()
        return self._led_before_made if topic is None else self._placement.leads(topic, partition)

    def coordinator_of(self, group_id: str) -> LiveBroker | None:
        """The broker that coordinates a group; None while no broker does."""
        topic = self.get()
        if topic is None:
            return None
        return self._placement.broker(self._placement.leader(topic, partition_for(group_id, topic.partitions)))
