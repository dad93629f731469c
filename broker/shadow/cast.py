"""Which topics may cast a shadow, and what becomes of the records of both when one comes, grows or goes.

1. A shadow comes and goes together with its name in its source's record (`topics` invariant 5): in one transaction.
2. A shadow has the partitions of its source and no configs: both are the source's.
3. A source with a living shadow is not deleted, whether its record lists that shadow or not; what the record lists in
   vain stands in nobody's way.
4. Deleting a shadow deletes nothing but its record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gnomon.broker.config_key import ConfigKey, ConfigSource, ConfigType
from gnomon.broker.errors import KafkaError
from gnomon.broker.subscriptions.growth import begin_in_new_partitions
from gnomon.broker.topics import InvalidTopicName, SourceRef, Topic, TopicImage, plain_name, topic_key
from gnomon.metadata.client import Compare, Field, KeyValue, Metadata, Operation, Put
from gnomon.wire.kafka.errors import ErrorCode

SHADOW_SOURCE = "gnomon.shadow.source"
SHADOW_SOURCE_KEY = ConfigKey(
    SHADOW_SOURCE,
    ConfigType.STRING,
    None,
    "The topic whose records this one shows; given at its creation, and never changed.",
    alterable=False,
)
BROKER_DEFAULT = -1


class Change(NamedTuple):
    """A part of a transaction: what has to hold, and what is done then."""

    compares: Sequence[Compare] = ()
    operations: Sequence[Operation] = ()


def refused(topic: Topic, what: str) -> KafkaError:
    """The refusal of what has to be done at the source."""
    assert topic.source is not None, f"topic '{topic.name}' is no shadow"
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"topic '{topic.name}' is a shadow of '{topic.source.name}': {what} the source"
    )


def described_source(topic: Topic) -> list[tuple[ConfigKey, str, ConfigSource]]:
    """What a topic's configs say of its source: nothing, where it has none."""
    return [] if topic.source is None else [(SHADOW_SOURCE_KEY, topic.source.name, ConfigSource.TOPIC)]


# --- creating ---------------------------------------------------------------------------------------------------


def source_name(text: str | None, shadow: str) -> str:
    """The name of the topic that a shadow's config names as its source.

    Raises:
        KafkaError: no topic can be called so.
    """
    try:
        return plain_name(text or "")
    except InvalidTopicName as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"The source of shadow '{shadow}' does not exist: {error}."
        ) from error


def as_shadow(topic: Topic, configs: Mapping[str, str | None], partitions: int, image: TopicImage) -> Topic:
    """A new topic as the shadow that its configs ask for, by the image; its place is found when it is created.

    Args:
        partitions: as asked for, BROKER_DEFAULT for those of the source.

    Raises:
        KafkaError: it cannot be.
    """
    name = source_name(configs[SHADOW_SOURCE], topic.name)
    others = [key for key in configs if key != SHADOW_SOURCE]
    if others:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"A shadow has the configs of its source: set {', '.join(sorted(others))} on '{name}', not on "
            f"'{topic.name}'.",
        )
    source = image.get(name)
    if source is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Topic '{name}', the source of shadow '{topic.name}', does not exist."
        )
    _check_source(source, topic.name)
    if partitions not in (BROKER_DEFAULT, source.partitions):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A shadow has the partitions of its source: '{name}' has {source.partitions}, not {partitions}; ask for "
            f"{BROKER_DEFAULT} or for these.",
        )
    return topic.with_source(SourceRef(source.name, source.id, 0), source.partitions)


def _check_source(source: Topic, shadow: str) -> None:
    if source.internal:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"'{source.name}' holds the broker's own state and has no shadows.")
    if source.source is not None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"'{source.name}' is itself a shadow, of '{source.source.name}': make '{shadow}' a shadow of that.",
        )


async def creation(metadata: Metadata, shadow: Topic) -> tuple[Topic, Change]:
    """A shadow as it is to be recorded, and what has to join its creation.

    Raises:
        KafkaError: its source is gone.
    """
    assert shadow.source is not None, f"topic '{shadow.name}' is no shadow"
    item = await metadata.get(topic_key(shadow.source.name))
    source = None if item is None else Topic.decode(item)
    if item is None or source is None or source.id != shadow.source.id:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Topic '{shadow.source.name}' was deleted meanwhile.")
    living = [topic for _, topic in await living_shadows(metadata, source, source.shadows)]
    taken = {topic.place for topic in living}
    place = next(number for number in range(1, len(taken) + 2) if number not in taken)
    listed = source.with_shadows([*(topic.name for topic in living), shadow.name])
    cast = shadow.with_source(shadow.source._replace(place=place), source.partitions)
    return cast, Change(unchanged(item), [Put(item.key, listed.encode())])


def unchanged(item: KeyValue) -> list[Compare]:
    """What holds as long as a record is as it was read: one comparison, of which an etcd takes 128."""
    return [Compare(item.key, Field.MOD_REVISION, item.mod_revision)]


async def living_shadows(metadata: Metadata, source: Topic, names: Iterable[str]) -> list[tuple[KeyValue, Topic]]:
    """Those of the names that are shadows of a topic, with their records."""
    living = []
    for name in names:
        item = await metadata.get(topic_key(name))
        if item is not None:
            topic = Topic.decode(item)
            if topic.source is not None and topic.source.id == source.id:
                living.append((item, topic))
    return living


# --- growing and deleting -----------------------------------------------------------------------------------------


async def growth(metadata: Metadata, source: Topic, partitions: int) -> Change:
    """What grows the shadows of a topic together with it; the subscriptions of all are in the new partitions by then.

    Raises:
        MetadataError: they could not be made there.
    """
    compares: list[Compare] = []
    operations: list[Operation] = []
    shadows = await living_shadows(metadata, source, source.shadows)
    for item, shadow in shadows:
        compares += unchanged(item)
        operations.append(Put(item.key, shadow.with_partitions(partitions).encode()))
    known, told = await begin_in_new_partitions(metadata, source, [shadow for _, shadow in shadows], partitions)
    return Change([*compares, known], [*operations, told])


async def deletion(metadata: Metadata, image: TopicImage, topic: Topic) -> Change:
    """What has to join the deletion of a topic, shadow or not, whose record was just read as `topic`.

    Raises:
        KafkaError: it has shadows. Of Kafka's errors POLICY_VIOLATION is shown with its text by those who show texts,
            and says by itself that asking again is of no use; TOPIC_DELETION_DISABLED would send people to the
            settings of their brokers.
    """
    if topic.source is not None:
        item = await metadata.get(topic_key(topic.source.name))
        source = None if item is None else Topic.decode(item)
        if item is None or source is None or source.id != topic.source.id:
            return Change()
        left = source.with_shadows(name for name in source.shadows if name != topic.name)
        return Change(unchanged(item), [Put(item.key, left.encode())])
    names = dict.fromkeys([*topic.shadows, *(shadow.name for shadow in image.shadows_of(topic))])
    living = [shadow.name for _, shadow in await living_shadows(metadata, topic, names)]
    if living:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{topic.name}' has shadows that show its records: delete {', '.join(sorted(living))} first.",
        )
    return Change()
