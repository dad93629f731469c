"""Creating, growing, changing and deleting topics: each one compare-and-set on the topic's record."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgpack
import trio

from gnomon.bookie.record import ledger_key
from gnomon.broker.brokers import BROKERS, registered_id
from gnomon.broker.config_key import InvalidConfig
from gnomon.broker.errors import KafkaError, refused_when_full
from gnomon.broker.partition.chain import ledgers_prefix
from gnomon.broker.partition.cut import cut_key
from gnomon.broker.shadow.cast import (
    BROKER_DEFAULT,
    SHADOW_SOURCE,
    Change,
    as_shadow,
    creation,
    deletion,
    growth,
    refused,
    unchanged,
)
from gnomon.broker.subscriptions.store import deletion_of_subscriptions
from gnomon.broker.topic_configs import check_topic_configs
from gnomon.broker.topics import (
    DELETED_PREFIX,
    INTERNAL_TOPICS,
    OFFSETS_BATCH_BYTES_MAX,
    OFFSETS_TOPIC,
    InvalidTopicName,
    Topic,
    check_topic_name,
    deleted_key,
    metric_name,
    topic_key,
)
from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Field,
    Get,
    KeyValue,
    MetadataError,
    Operation,
    Put,
    TxnResult,
)
from gnomon.runtime.world import WorldError
from gnomon.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

PARTITIONS_MAX = 100_000
FORGET_SECONDS_MAX = 10.0
FORGET_LOOK_SECONDS = 0.1
"""How often is looked whether the other brokers have forgotten a deleted topic, and for how long at most."""
FORGET_RETRY_SECONDS = 1.0


class TopicAdmin:
    """The topic operations of one broker; they return once its own image shows the change.

    A deleted topic's committed offsets would mean something else in its next life, and a broker that has not heard of
    the deletion would serve the last life to a client that asks for the name. The deletion leaves a key behind which
    goes when the offsets are gone and every live broker has heard of it, and whoever creates a topic of that name
    waits for that: no crash comes between.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._forgetting = trio.Lock()
        self._ids = broker.world.random("topic-ids")

    def check_new(
        self, name: str, partitions: int, configs: Mapping[str, str | None], *, internal: bool = False
    ) -> Topic:
        """The topic that `create` would make; an `internal` one only for the broker itself.

        Args:
            partitions: BROKER_DEFAULT for the broker's `num.partitions`, or for those of a shadow's source.

        Raises:
            KafkaError: the name, the number of partitions or a config is refused, or the topic exists.
        """
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        if self._broker.image.get(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in INTERNAL_TOPICS and not internal:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The broker creates '{name}' itself when it is first asked for it."
            )
        self._check_collision(name)
        topic_id = uuid.UUID(int=self._ids.getrandbits(128), version=4)
        if SHADOW_SOURCE in configs:
            return as_shadow(Topic(name, topic_id, 0, {}), configs, partitions, self._broker.image)
        if partitions == BROKER_DEFAULT:
            partitions = self._broker.configs.number("num.partitions")
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: a topic has 1 to {PARTITIONS_MAX} of them."
            )
        return Topic(name, topic_id, partitions, _checked(configs, self._broker.quorum.ack_quorum))

    def _check_collision(self, name: str) -> None:
        """Kafka refuses names that share a `metric_name`."""
        shared = metric_name(name)
        if "_" not in shared:
            return
        for other in (*INTERNAL_TOPICS, *(topic.name for topic in self._broker.image)):
            if metric_name(other) == shared and other != name:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    async def current(self, name: str) -> Topic | None:
        """A topic as the metadata has it: another broker may have changed that just before, and the image be behind.

        Returns:
            The topic, None where there is none; the image shows the same by now.

        Raises:
            MetadataUnavailable: the metadata cannot be read now.
        """
        broker = self._broker
        before = broker.image.get(name)
        item = await broker.metadata.get(topic_key(name))
        if item is not None:
            await broker.topics.reached(item.mod_revision)
        elif before is not None:
            while (shown := broker.image.get(name)) is not None and shown.id == before.id:
                await broker.topics.moved()
        return broker.image.get(name)

    async def find(self, name: str) -> Topic | None:
        """A topic of the image, also one that another broker has only just created.

        Raises:
            MetadataUnavailable: the image does not show it, and the metadata cannot be read now.
        """
        return self._broker.image.get(name) or await self.current(name)

    async def create(self, topic: Topic) -> Topic:
        """Creates a topic that `check_new` made.

        Raises:
            KafkaError: somebody else has just created it; the image has shown theirs by then. Or offsets of its last
                life cannot be deleted now, or the disk is full, or the source of a shadow is gone.
        """
        key, left = topic_key(topic.name), deleted_key(topic.name)
        free = [Compare.absent(key), Compare.absent(left)]
        while True:
            joined = Change()
            if topic.source is not None:
                topic, joined = await creation(self._broker.metadata, topic)
            then = [Put(key, topic.encode()), *joined.operations]
            result = await self._write([*free, *joined.compares], then, [Get(key), Get(left)])
            if result.succeeded:
                break
            rival, remains = result.results
            if isinstance(rival, KeyValue):
                await self._broker.topics.reached(rival.mod_revision)
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
            if remains is not None:
                await self._wait_for_name(topic.name)
        await self._shown(result)
        item = result.results[0]
        assert isinstance(item, KeyValue)
        return Topic.decode(item)

    async def auto_create(self, name: str, allowed: bool) -> Topic:
        """Creates a topic that a client asked for, where the request and `auto.create.topics.enable` allow it.

        Raises:
            KafkaError: it is not allowed, or the name is refused.
        """
        configs = self._broker.configs
        if name == OFFSETS_TOPIC:
            return await self.offsets_topic()
        if not allowed or not configs.flag("auto.create.topics.enable"):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")
        return await self._create_if_absent(name, configs.number("num.partitions"), {})

    async def offsets_topic(self) -> Topic:
        """`__consumer_offsets`, created on first use."""
        topic = self._broker.image.get(OFFSETS_TOPIC)
        if topic is not None:
            return topic
        configs = {
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(OFFSETS_BATCH_BYTES_MAX),
            "max.message.bytes": str(OFFSETS_BATCH_BYTES_MAX),
        }
        partitions = self._broker.configs.number("offsets.topic.num.partitions")
        return await self._create_if_absent(OFFSETS_TOPIC, partitions, configs)

    async def _create_if_absent(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        try:
            return await self.create(self.check_new(name, partitions, configs, internal=name == OFFSETS_TOPIC))
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self._broker.find_topic(name)

    async def delete(self, topic: Topic) -> None:
        """Deletes a topic; its ledgers' entries leave the disk in the background.

        Raises:
            KafkaError: it is gone already, or has shadows, or the disk is full.
        """
        key, broker = topic_key(topic.name), self._broker
        while True:
            item = await broker.metadata.get(key)
            if item is None or item.create_revision != topic.create_revision:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is gone already.")
            now = Topic.decode(item)
            joined = await deletion(broker.metadata, broker.image, now)
            then = [Delete(key), *self._kept_of(now), Put(deleted_key(topic.name), b""), *joined.operations]
            result = await self._write([*unchanged(item), *joined.compares], then)
            if result.succeeded:
                break
        await self._shown(result)
        broker.collect_garbage()

    def _kept_of(self, topic: Topic) -> list[Operation]:
        """What deletes a topic's ledgers and subscriptions: the ledgers of a shadow are its source's.

        Nothing where a damaged record claims the id of another topic.
        """
        if any(topic.id in (other.id, other.ranked_as) and other.name != topic.name for other in self._broker.image):
            return []
        subscriptions = deletion_of_subscriptions(topic.id)
        if topic.source is not None:
            return [*subscriptions]
        ledgers = ledgers_prefix(topic.id)
        return [DeletePrefix(ledger_key(ledgers)), DeletePrefix(cut_key(ledgers)), *subscriptions]

    async def _wait_for_name(self, name: str) -> None:
        """Sees to what is left of a deleted topic here, and gives the other brokers the time to do so."""
        clock = self._broker.world.clock
        give_up_at = clock.monotonic() + FORGET_SECONDS_MAX
        await self.forget_offsets(name)
        while await self._broker.metadata.get(deleted_key(name)) is not None:
            if clock.monotonic() >= give_up_at:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"Topic '{name}' is still being deleted by other brokers: try again."
                )
            await clock.sleep(FORGET_LOOK_SECONDS)
            await self.forget_offsets(name)

    async def forget_offsets(self, name: str) -> None:
        """Deletes the committed offsets of a deleted topic from this broker's groups, unless that is done.

        The key names the partitions of the offsets topic that were seen to and, as ~id, the brokers that have heard of
        the deletion; whoever finds nothing missing deletes it.

        Raises:
            KafkaError: they cannot be deleted now.
        """
        key, broker = deleted_key(name), self._broker
        async with self._forgetting:  # nobody deletes offsets of the next life
            found = await broker.metadata.get(key)
            if found is None:
                return
            deleted_at = found.create_revision
            await broker.topics.reached(deleted_at)  # from there on nobody commits such an offset here
            seen_to, others = await broker.coordinator.delete_topic_offsets([name])
            while found is not None and found.create_revision == deleted_at:
                before = {*(msgpack.unpackb(found.value) if found.value else ())}
                done = {*before, *seen_to, ~broker.node_id}
                left = not done.issuperset(others) or not done.issuperset(await self._live_brokers())
                if left and done == before:
                    return
                then: Operation = Put(key, msgpack.packb(sorted(done))) if left else Delete(key)
                if (await self._write([Compare(key, Field.MOD_REVISION, found.mod_revision)], [then])).succeeded:
                    return
                found = await broker.metadata.get(key)

    async def _live_brokers(self) -> list[int]:
        """Those whom a client may ask, as a deleted topic's key names them."""
        registered = await self._broker.metadata.range(BROKERS)
        return [~registered_id(item.key) for item in registered.items]

    async def finish_deletion(self, name: str) -> None:
        """Forgets a deleted topic's offsets, and tries again until that is done: the name cannot be taken before."""
        while not await self._forgotten(name):
            await self._broker.world.clock.sleep(FORGET_RETRY_SECONDS)

    async def _forgotten(self, name: str) -> bool:
        try:
            await self.forget_offsets(name)
        except (KafkaError, MetadataError, WorldError) as error:
            self._broker.log.warning("offsets_not_deleted", topic=name, reason=str(error), next="it is tried again")
            return False
        return True

    async def finish_deletions(self) -> None:
        """What the last run, or the last try, did not come to."""
        try:
            found = await self._broker.metadata.range(DELETED_PREFIX)
        except MetadataError as error:
            self._broker.log.warning("deletions_not_finished", reason=str(error), next="before each is created again")
            return
        for item in found.items:
            await self._forgotten(item.key.removeprefix(DELETED_PREFIX))

    def check_growth(self, topic: Topic, partitions: int) -> Topic:
        """The topic with more partitions.

        Raises:
            KafkaError: the number is not larger than today's, or the topic is a shadow.
        """
        if topic.source is not None:
            raise refused(topic, "it grows with")
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
        """Adds partitions to a topic and to all of its shadows, at one revision.

        Raises:
            KafkaError: the topic does not exist, or as `check_growth`.
        """
        metadata = self._broker.metadata
        await self._change(
            name,
            lambda now: self.check_growth(now, partitions),
            lambda now: growth(metadata, now, partitions),
        )

    async def change(self, name: str, change: Callable[[Topic], Topic]) -> None:
        """Replaces a topic's record by what `change` makes of it; tries again when somebody else was quicker.

        Raises:
            KafkaError: the topic does not exist, or what `change` raises.
        """
        await self._change(name, change, _alone)

    async def _change(
        self, name: str, change: Callable[[Topic], Topic], together: Callable[[Topic], Awaitable[Change]]
    ) -> None:
        key = topic_key(name)
        while True:
            item = await self._broker.metadata.get(key)
            if item is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
            topic = Topic.decode(item)
            if topic.internal:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker keeps its own state in '{name}' its own way.")
            changed = change(topic)
            with refused_when_full():
                joined = await together(topic)
            result = await self._write(
                [*unchanged(item), *joined.compares], [*joined.operations, Put(key, changed.encode())]
            )
            if result.succeeded:
                await self._shown(result)
                return

    async def _write(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        try:
            with refused_when_full():
                return await self._broker.metadata.txn(compares, then, otherwise)
        except KafkaError as error:
            self._broker.log.warning("topic_not_changed", reason=error.text)
            raise

    async def _shown(self, result: TxnResult) -> None:
        await self._broker.topics.reached(result.revision)


async def _alone(_topic: Topic) -> Change:
    """No other record changes with that of the topic."""
    return Change()


def _checked(configs: Mapping[str, str | None], ack_quorum: int) -> dict[str, str]:
    try:
        return check_topic_configs(configs, ack_quorum)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
