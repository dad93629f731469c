"""The topics as one broker knows them: looked up by name or id, with the settings of their logs.

1. The image (this broker's copy of all topics) follows the metadata. Watchers are notified, in order, of each topic
   that is new, changed or deleted.
2. A shadow has the configs of its source.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.topic_configs import log_settings
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.log import PartitionSettings
from gnomon.broker.topics.topic_image import TopicImage
from gnomon.log.topic import OFFSETS_BATCH_BYTES_MAX, TOPICS_PREFIX, Topic
from gnomon.metadata.client import Metadata, RangeResult, Revision, WatchBatch
from gnomon.metadata.follower import Follower
from gnomon.runtime.logs import Logger
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.errors import ErrorCode


class Topics:
    """All topics; nothing is known before `load`, and `run` follows the metadata."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        log: Logger,
        configs: BrokerConfigs,
        acknowledged_copies: Callable[[Topic], int | None],
    ) -> None:
        """The topics of one cluster.

        Args:
            configs: the broker's, to which a topic's configs fall back.
            acknowledged_copies: the copies of a topic's record when it is acknowledged; None accepts topics that
                require more.
        """
        self.image = TopicImage()
        self.follower = Follower(metadata, clock, log, TOPICS_PREFIX, self._replace, self._apply)
        """Updates the image."""
        self._log = log
        self._configs = configs
        self._acknowledged_copies = acknowledged_copies
        self._settings: dict[uuid.UUID, tuple[int, Topic, PartitionSettings]] = {}
        self._ended: list[Callable[[Topic, Sequence[Topic]], None]] = []
        self._changed: list[Callable[[Topic], None]] = []
        self._moved: list[Callable[[], None]] = []

    def watch(
        self,
        *,
        ended: Callable[[Topic, Sequence[Topic]], None] | None = None,
        changed: Callable[[Topic], None] | None = None,
        moved: Callable[[], None] | None = None,
    ) -> None:
        """Registers functions to call; functions that were registered earlier are called first.

        Args:
            ended: with a topic that was deleted and the shadows that it had.
            changed: with a topic that is new, or whose settings may have changed.
            moved: after each change of the image.
        """
        self._ended += [] if ended is None else [ended]
        self._changed += [] if changed is None else [changed]
        self._moved += [] if moved is None else [moved]

    async def load(self) -> None:
        """Reads all topics: one metadata read.

        Raises:
            MetadataUnavailable: the topics could not be read.
        """
        await self.follower.load()

    async def run(self) -> NoReturn:
        """Follows the metadata, until cancelled."""
        await self.follower.run()

    async def reached(self, revision: Revision) -> None:
        """Waits until the image shows everything up to a revision that changed a topic."""
        await self.follower.reached(revision)

    def problem(self) -> str | None:
        """The reason why the metadata is not followed, None while it is."""
        return None if self.follower.following else "the topics are not followed at the moment"

    # --- looking up ---------------------------------------------------------------------------------------------

    def find(self, ref: str | bytes) -> Topic:
        """A topic by name or by the bytes of its id.

        Raises:
            KafkaError: there is no such topic.
        """
        if isinstance(ref, str):
            topic = self.image.get(ref)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{ref}' does not exist")
            return topic
        topic = self.image.get_by_id(uuid.UUID(bytes=ref))
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {ref.hex()}")
        return topic

    def find_partition(self, ref: str | bytes, index: int) -> Topic:
        """Like `find`, for a topic that has a partition of this number.

        Raises:
            KafkaError: topic or partition do not exist.
        """
        topic = self.find(ref)
        if not 0 <= index < topic.partitions:
            text = f"topic '{topic.name}' has {topic.partitions} partitions"
            if topic.source is not None and self.image.has_ended(topic):
                text = f"topic '{topic.name}' is a shadow of '{topic.source.name}', which was deleted: delete it too"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return topic

    # --- settings -----------------------------------------------------------------------------------------------

    def configs_of(self, topic: Topic) -> Mapping[str, str]:
        """The configs that are set on a topic; for a shadow, those of its source."""
        source = None if topic.source is None else self.image.source_of(topic)
        return topic.configs if source is None else source.configs

    def settings_of(self, topic: Topic) -> PartitionSettings:
        """The present settings of a topic's logs."""
        cached = self._settings.get(topic.id)
        if cached is not None and cached[0] == self._configs.revision and cached[1] is topic:
            return cached[2]
        values = self._configs.topic_values(self.configs_of(topic))
        copies = self._acknowledged_copies(topic)
        settings = log_settings(values, self._configs.number("producer.id.expiration.ms"), copies)
        if topic.internal:
            # The coordinator trims its logs itself, after snapshots. A group with a large record must stay writable.
            batch_bytes_max = max(settings.batch_bytes_max, OFFSETS_BATCH_BYTES_MAX)
            settings = replace(settings, retention_ms=-1, retention_bytes=-1, batch_bytes_max=batch_bytes_max)
        self._settings[topic.id] = (self._configs.revision, topic, settings)
        return settings

    def configure(self) -> None:
        """Notifies the watchers of all topics, because the broker's configs may have changed."""
        for topic in self.image:
            self._notify_changed(topic)

    # --- following ----------------------------------------------------------------------------------------------

    def _replace(self, found: RangeResult) -> None:
        for topic in self.image.replace(found):
            self._end(topic)
        self.configure()
        self._notify_moved()

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            ended, changed = self.image.apply(event)
            if ended is not None:
                self._end(ended)
            if changed is not None:
                self._notify_changed(changed)
        self._notify_moved()

    def _end(self, topic: Topic) -> None:
        self._settings.pop(topic.id, None)
        shadows = self.image.shadows_of(topic)
        for shadow in shadows:
            self._log.warning(
                "shadow_ended", topic=shadow.name, reason=f"its source '{topic.name}' was deleted", next="delete it too"
            )
        for ended in self._ended:
            ended(topic, shadows)

    def _notify_changed(self, topic: Topic) -> None:
        for changed in self._changed:
            changed(topic)

    def _notify_moved(self) -> None:
        for moved in self._moved:
            moved()
