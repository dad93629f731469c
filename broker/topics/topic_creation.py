"""The creation of topics: the checks of a new one, and the transaction that creates it.

1. Of two concurrent creations of a name one succeeds. The other is refused once the broker's image shows the created
   topic.
2. The name of a deleted topic is not free as long as remains of that topic exist (`deleted_topics`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.config_key import InvalidConfig
from gnomon.broker.configs.topic_configs import check_topic_configs
from gnomon.broker.errors import KafkaError
from gnomon.broker.storage import Storage
from gnomon.broker.topics.cast import BROKER_DEFAULT, SHADOW_SOURCE, Change, as_shadow, creation
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import INTERNAL_TOPICS, Topic, deleted_key, topic_key
from gnomon.log.topic_name import InvalidTopicName, check_topic_name, metric_name
from gnomon.metadata.client import Compare, Get, KeyValue, Put
from gnomon.runtime.world import RandomStream
from gnomon.wire.kafka.errors import ErrorCode

_INTERNAL_METRIC_NAMES = {metric_name(name): name for name in INTERNAL_TOPICS}
PARTITIONS_MAX = 100_000


class TopicCreation:
    """Creates topics for one broker."""

    def __init__(
        self, topics: Topics, records: TopicRecords, storage: Storage, configs: BrokerConfigs, ids: RandomStream
    ) -> None:
        """`ids` draws the ids of new topics."""
        self._topics = topics
        self._records = records
        self._storage = storage
        self._configs = configs
        self._ids = ids

    def check_new(
        self, name: str, partitions: int, configs: Mapping[str, str | None], *, internal: bool = False
    ) -> Topic:
        """The topic that `attempt` would create; an `internal` one only for the broker itself.

        Args:
            partitions: BROKER_DEFAULT for the broker's `num.partitions`, or for those of a shadow's source.

        Raises:
            KafkaError: the name, the number of partitions or a config is refused, or the topic exists.
        """
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        if self._topics.image.get(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in INTERNAL_TOPICS and not internal:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The broker creates '{name}' itself when it is first asked for it."
            )
        self._check_collision(name)
        topic_id = uuid.UUID(int=self._ids.getrandbits(128), version=4)
        if SHADOW_SOURCE in configs:
            return as_shadow(Topic(name, topic_id, 0, {}), configs, partitions, self._topics.image)
        if partitions == BROKER_DEFAULT:
            partitions = self._configs.number("num.partitions")
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: a topic has 1 to {PARTITIONS_MAX} of them."
            )
        return Topic(name, topic_id, partitions, _checked(configs))

    def _check_collision(self, name: str) -> None:
        """Kafka refuses names that share a `metric_name`."""
        other = self._topics.image.colliding(name) or _INTERNAL_METRIC_NAMES.get(metric_name(name), name)
        if other != name:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")

    async def attempt(self, topic: Topic) -> Topic | None:
        """Creates a topic that `check_new` made; None while remains of a deleted topic block the name.

        Raises:
            KafkaError: another creation of the name was first, which the image then shows; or the disk is full, or the
                source of a shadow was deleted.
        """
        key, left = topic_key(topic.name), deleted_key(topic.name)
        while True:
            joined = Change()
            if topic.source is not None:
                follower, image = self._topics.follower, self._topics.image
                topic, joined = await creation(self._storage.metadata, follower, image, topic)
            compares = [Compare.absent(key), Compare.absent(left), *joined.compares]
            then = [Put(key, topic.encode()), *joined.operations]
            result = await self._records.write(compares, then, [Get(key), Get(left)])
            if result.succeeded:
                break
            rival, remains = result.results
            if isinstance(rival, KeyValue):
                await self._topics.reached(rival.mod_revision)
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
            if remains is not None:
                return None
        await self._records.shown(result)
        item = result.results[0]
        assert isinstance(item, KeyValue)
        return self._topics.image.completed(Topic.decode(item))


def _checked(configs: Mapping[str, str | None]) -> dict[str, str]:
    try:
        kept = check_topic_configs(configs)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return kept
