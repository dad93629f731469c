"""The administration of topics: each operation is one compare-and-set on the topic's record.

An operation returns once the image of this broker shows the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from gnomon.bookie.record import ledger_key
from gnomon.broker.configs.broker_configs import BrokerConfigs
from gnomon.broker.configs.topic_configs import is_table
from gnomon.broker.errors import KafkaError, metadata_refusals
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.growth import begin_in_new_partitions
from gnomon.broker.topics.cast import Change, deletion, refused, unchanged
from gnomon.broker.topics.deleted_topics import DeletedTopics
from gnomon.broker.topics.offsets_topic import OffsetsTopic
from gnomon.broker.topics.topic_creation import PARTITIONS_MAX, TopicCreation
from gnomon.broker.topics.topic_records import TopicRecords
from gnomon.broker.topics.topics import Topics
from gnomon.log.chains import ledgers_prefix
from gnomon.log.cut import cut_key
from gnomon.log.plans.read_hold import reads_prefix
from gnomon.log.subscription_keys import deletion_of_subscriptions
from gnomon.log.tables.snapshot_form import snapshots_prefix
from gnomon.log.topic import OFFSETS_TOPIC, Topic, deleted_key, shadows_key, topic_key
from gnomon.metadata.client import Delete, DeletePrefix, Operation, Put
from gnomon.wire.kafka.errors import ErrorCode


class TopicAdmin:
    """The operations of one broker on topics."""

    def __init__(
        self,
        topics: Topics,
        records: TopicRecords,
        creation: TopicCreation,
        deleted: DeletedTopics,
        offsets_topic: OffsetsTopic,
        storage: Storage,
        configs: BrokerConfigs,
        collect_garbage: Callable[[], None],
    ) -> None:
        """`collect_garbage` is called after a deletion: the entries of its ledgers may leave the disk."""
        self._topics = topics
        self._records = records
        self._creation = creation
        self._deleted = deleted
        self._offsets_topic = offsets_topic
        self._storage = storage
        self._configs = configs
        self._collect_garbage = collect_garbage

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> Topic:
        """The topic that `create` would make; see `TopicCreation.check_new`."""
        return self._creation.check_new(name, partitions, configs)

    async def create(self, topic: Topic) -> Topic:
        """Creates a topic that `check_new` made.

        Raises:
            KafkaError: as `TopicCreation.attempt` and `DeletedTopics.wait_for_name`.
        """
        while (created := await self._creation.attempt(topic)) is None:
            await self._deleted.wait_for_name(topic.name)
        return created

    async def auto_create(self, name: str, allowed: bool, take: Callable[[], bool]) -> Topic:
        """Creates a topic that a client asked for, where the request and `auto.create.topics.enable` allow it.

        Args:
            take: takes a topic from the budgets of the client; false if they are used up.

        Raises:
            KafkaError: it is not allowed, or the name is refused; LEADER_NOT_AVAILABLE if the budgets are used up.
        """
        if name == OFFSETS_TOPIC:
            return await self._offsets_topic.made()
        if not allowed or not self._configs.flag("auto.create.topics.enable"):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")
        try:
            topic = self.check_new(name, self._configs.number("num.partitions"), {})
            if not take():
                text = f"too many topics were created at once: ask for '{name}' again soon"
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
            return await self.create(topic)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self._topics.find(name)

    async def delete(self, topic: Topic) -> None:
        """Deletes a topic; its ledgers' entries leave the disk in the background.

        Raises:
            KafkaError: the topic is deleted already, or has shadows, or the disk is full.
        """
        key = topic_key(topic.name)
        while True:
            item = await self._storage.metadata.get(key)
            if item is None or item.create_revision != topic.create_revision:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is deleted already.")
            now = Topic.decode(item)
            joined = await deletion(self._storage.metadata, self._topics.follower, self._topics.image, now)
            then = [Delete(key), *self._kept_of(now), Put(deleted_key(topic.name), b""), *joined.operations]
            result = await self._records.write([*unchanged(item), *joined.compares], then)
            if result.succeeded:
                break
        await self._records.shown(result)
        self._collect_garbage()

    def _kept_of(self, topic: Topic) -> list[Operation]:
        """The operations that delete a topic's ledgers, subscriptions and read holds; a shadow has no own ledgers.

        There are none if another topic uses the same id: then a damaged record claims it.
        """
        if any(topic.id in (other.id, other.ranked_as) and other.name != topic.name for other in self._topics.image):
            return []
        subscriptions = deletion_of_subscriptions(topic.id, topic.ranked_as)
        if topic.source is not None:
            return [*subscriptions]
        ledgers = ledgers_prefix(topic.id)
        own: tuple[Operation, ...] = (
            DeletePrefix(ledger_key(ledgers)),
            DeletePrefix(cut_key(ledgers)),
            Delete(shadows_key(topic.id)),
        )
        if is_table(topic.configs):
            snapshots = snapshots_prefix(topic.id)
            own += (DeletePrefix(ledger_key(snapshots)), DeletePrefix(snapshots))
        return [*own, Delete(shadows_key(topic.id)), DeletePrefix(reads_prefix(topic.id)), *subscriptions]

    def check_growth(self, topic: Topic, partitions: int) -> Topic:
        """The topic with more partitions.

        Raises:
            KafkaError: the number is not larger than the present one, or too large, or the topic is a shadow.
        """
        if topic.source is not None:
            raise refused(topic, "it grows with")
        if is_table(topic.configs):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic '{topic.name}' is a table: its keys are placed by the number of "
                "its partitions, which cannot change; create another one.",
            )
        if partitions <= topic.partitions:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {topic.partitions} partition(s); {partitions} would not be an "
                "increase.",
            )
        if partitions > PARTITIONS_MAX:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {PARTITIONS_MAX} partitions.")
        return topic.with_partitions(partitions)

    async def grow(self, name: str, partitions: int) -> None:
        """Adds partitions to a topic and its shadows, after their subscriptions have positions in the new partitions.

        Raises:
            KafkaError: the topic does not exist, or as `check_growth`.
        """

        async def subscriptions(now: Topic) -> Change:
            known, told = await begin_in_new_partitions(self._storage.metadata, now, partitions)
            return Change([known], [told])

        await self._change(name, lambda now: self.check_growth(now, partitions), subscriptions)

    async def change(self, name: str, change: Callable[[Topic], Topic]) -> None:
        """Replaces a topic's record by the result of `change`; retries if another change came first.

        Raises:
            KafkaError: the topic does not exist or is internal, or `change` raised it.
        """
        await self._change(name, change, _alone)

    async def _change(
        self, name: str, change: Callable[[Topic], Topic], together: Callable[[Topic], Awaitable[Change]]
    ) -> None:
        key = topic_key(name)
        while True:
            item = await self._storage.metadata.get(key)
            if item is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
            topic = Topic.decode(item)
            if topic.internal:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Topic '{name}' holds the broker's own state: its configs are fixed."
                )
            changed = change(topic)
            with metadata_refusals():
                joined = await together(topic)
            result = await self._records.write(
                [*unchanged(item), *joined.compares], [*joined.operations, Put(key, changed.encode())]
            )
            if result.succeeded:
                await self._records.shown(result)
                return


async def _alone(_topic: Topic) -> Change:
    """No other record changes with that of the topic."""
    return Change()
