"""The rules of shadows, and their part in the transactions that create and delete topics.

A shadow is a read-only topic with the records of another topic, its source.

1. A shadow is created only while its source exists, and only at a place that no other shadow of the source has.
2. A shadow has the number of partitions of its source, and no configs of its own.
3. A source that has shadows cannot be deleted.
4. The deletion of a shadow deletes no record of its source.
5. The number of metadata operations of a creation or deletion does not depend on the number of shadows.

The broker's image of the topics has the set of a source's shadows, and the key `shadows_key` in the metadata changes
with that set (`topic` invariant 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gnomon.broker.configs.config_key import ConfigKey, ConfigSource, ConfigType
from gnomon.broker.errors import KafkaError
from gnomon.broker.topics.topic_image import TopicImage
from gnomon.log.subscription_keys import hold_key
from gnomon.log.topic import SourceRef, Topic, shadows_key, topic_key
from gnomon.log.topic_name import InvalidTopicName, plain_name
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, Operation, Put
from gnomon.metadata.follower import Follower
from gnomon.wire.kafka.errors import ErrorCode

SHADOW_SOURCE = "gnomon.shadow.source"
SHADOW_SOURCE_KEY = ConfigKey(
    SHADOW_SOURCE,
    ConfigType.STRING,
    None,
    "The topic whose records this one shows; set at its creation and never changed.",
    alterable=False,
)
BROKER_DEFAULT = -1


class Change(NamedTuple):
    """A part of a transaction: its comparisons, and the operations if they hold."""

    compares: Sequence[Compare] = ()
    operations: Sequence[Operation] = ()


def refused(topic: Topic, what: str) -> KafkaError:
    """The refusal of an operation that must be done on the source; `what` is the operation with its preposition."""
    assert topic.source is not None, f"topic '{topic.name}' is no shadow"
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"topic '{topic.name}' is a shadow of '{topic.source.name}': {what} the source"
    )


def described_source(topic: Topic) -> list[tuple[ConfigKey, str, ConfigSource]]:
    """The config of a topic that names its source: none for a topic without one."""
    return [] if topic.source is None else [(SHADOW_SOURCE_KEY, topic.source.name, ConfigSource.TOPIC)]


# --- creating ---------------------------------------------------------------------------------------------------


def source_name(text: str | None, shadow: str) -> str:
    """The topic name in a shadow's config for its source.

    Raises:
        KafkaError: the text is not a valid topic name.
    """
    try:
        return plain_name(text or "")
    except InvalidTopicName as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"The source of shadow '{shadow}' does not exist: {error}."
        ) from error


def as_shadow(topic: Topic, configs: Mapping[str, str | None], partitions: int, image: TopicImage) -> Topic:
    """The new topic as the shadow that its configs describe; its place is chosen when it is created.

    Args:
        partitions: as requested; BROKER_DEFAULT means the number of the source.

    Raises:
        KafkaError: the source does not exist or can have no shadow, other configs are given, or the number of
            partitions is not that of the source.
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
    return topic.with_source(SourceRef(source.name, source.id, 0), source.partitions).with_copies(source.copies)


def _check_source(source: Topic, shadow: str) -> None:
    if source.internal:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"'{source.name}' holds the broker's own state and has no shadows.")
    if source.source is not None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"'{source.name}' is itself a shadow, of '{source.source.name}': make '{shadow}' a shadow of that.",
        )


async def creation(metadata: Metadata, topics: Follower, image: TopicImage, shadow: Topic) -> tuple[Topic, Change]:
    """The record of a new shadow, and the changes that join its creation.

    Args:
        topics: updates `image`.

    Raises:
        KafkaError: the source was deleted.
    """
    assert shadow.source is not None, f"topic '{shadow.name}' is no shadow"
    item = await metadata.get(topic_key(shadow.source.name))
    source = None if item is None else Topic.decode(item)
    if item is None or source is None or source.id != shadow.source.id:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Topic '{shadow.source.name}' was deleted meanwhile.")
    known = await shadows_known(metadata, topics, source)
    taken = {other.place for other in image.shadows_of(source)}
    place = next(number for number in range(1, len(taken) + 2) if number not in taken)
    cast = shadow.with_source(shadow.source._replace(place=place), source.partitions)
    return cast, Change([_lives(item), known], [Put(known.key, b"")])


async def shadows_known(metadata: Metadata, topics: Follower, source: Topic) -> Compare:
    """Waits until the image has every current shadow of a topic: one metadata read.

    Returns:
        A comparison that holds while the topic has exactly these shadows.
    """
    key = shadows_key(source.id)
    changed = await metadata.get(key)
    if changed is not None:
        await topics.reached(changed.mod_revision)
    return Compare(key, KeyField.MOD_REVISION, 0 if changed is None else changed.mod_revision)


def unchanged(item: KeyValue) -> list[Compare]:
    """Comparisons that hold while a record is as it was read."""
    return [Compare(item.key, KeyField.MOD_REVISION, item.mod_revision)]


def _lives(item: KeyValue) -> Compare:
    """A comparison that holds while the topic exists, whatever changes in its record."""
    return Compare(item.key, KeyField.CREATE_REVISION, item.create_revision)


# --- deleting -----------------------------------------------------------------------------------------------------


async def deletion(metadata: Metadata, topics: Follower, image: TopicImage, topic: Topic) -> Change:
    """The changes that join the deletion of a topic, shadow or not, whose record was just read as `topic`.

    Args:
        topics: updates `image`.

    Raises:
        KafkaError: the topic has shadows. The code is POLICY_VIOLATION, because clients show its text and do not retry;
            TOPIC_DELETION_DISABLED would point people to the settings of their brokers.
    """
    if topic.source is not None:
        item = await metadata.get(topic_key(topic.source.name))
        if item is None or Topic.decode(item).id != topic.source.id:
            return Change()
        # From now on a growth of the source creates no subscription of this topic: see `growth`.
        return Change([_lives(item)], [Put(shadows_key(topic.source.id), b""), Put(hold_key(topic.source.id), b"")])
    known = await shadows_known(metadata, topics, topic)
    living = [shadow.name for shadow in image.shadows_of(topic)]
    if living:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{topic.name}' has shadows that show its records: delete {', '.join(sorted(living))} first.",
        )
    return Change([known])
