"""What the durable subscriptions of a topic and of its shadows have not read: what retention waits for.

1. `hold_key` is read first, then which shadows there are, then where the subscriptions stand; and whoever makes a
   subscription or takes one back writes that key, too. So a transaction that compares it knows of every subscription,
   on whatever broker: one that is not known here fails it, or comes after it and begins behind what went.
2. Stored positions count. They are behind what was acknowledged, never ahead.
3. A position that cannot be read stands at the beginning.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import trio

from gnomon.broker.shadow.cast import living_shadows
from gnomon.broker.subscriptions.dlsn import BEGINNING, Dlsn
from gnomon.broker.subscriptions.record import RECORDS_PER_TURN, SubscriberRecord
from gnomon.broker.subscriptions.store import hold_key, subscriber_of_key, subscriptions_prefix
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Compare, Field, KeyValue, Metadata


class Slowest(NamedTuple):
    """The subscription of a partition that is behind all others, of whichever topic shows its records."""

    topic: str
    subscription: str
    position: Dlsn
    damage: str | None = None
    """Why its position could not be read."""


class Hold(NamedTuple):
    """What holds the records of one topic, at one time."""

    slowest: Mapping[int, Slowest]
    """By partition; those that have any subscription."""
    unchanged: Compare
    """See invariant 1."""


async def read_hold(metadata: Metadata, topic: Topic, shadows: Iterable[str]) -> Hold:
    """What holds a topic's records now: one range read for the topic and one for each of its shadows.

    Args:
        shadows: names of its shadows that are known; those that its record names are found anyway.

    Raises:
        MetadataError: it cannot be read.
    """
    key = hold_key(topic.id)
    changed = await metadata.get(key)
    unchanged = Compare(key, Field.MOD_REVISION, 0 if changed is None else changed.mod_revision)
    stored = await metadata.get(topic_key(topic.name))
    listed = () if stored is None else Topic.decode(stored).shadows
    readers = [topic]
    readers += [shadow for _, shadow in await living_shadows(metadata, topic, dict.fromkeys([*listed, *shadows]))]
    slowest: dict[int, Slowest] = {}
    for reader in readers:
        await _look(metadata, reader.name, reader.id, slowest)
    return Hold(slowest, unchanged)


async def only_less(metadata: Metadata, hold: Hold) -> bool:
    """Whether no subscription was made or went back since: each stands where it stood then, or further on, or is gone.

    Raises:
        MetadataError: it cannot be found out.
    """
    changed = await metadata.get(hold.unchanged.key)
    return hold.unchanged.value == (0 if changed is None else changed.mod_revision)


async def _look(metadata: Metadata, topic: str, topic_id: uuid.UUID, slowest: dict[int, Slowest]) -> None:
    prefix = subscriptions_prefix(topic_id)
    found = await metadata.range(prefix)
    for count, item in enumerate(found.items):
        partition = int(item.key.removeprefix(prefix).partition("/")[0])
        one, known = _standing(topic, item), slowest.get(partition)
        if known is None or one.position < known.position:
            slowest[partition] = one
        if count % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()


def _standing(topic: str, item: KeyValue) -> Slowest:
    name = subscriber_of_key(item.key)
    try:
        return Slowest(topic, name, SubscriberRecord.decode(item.value).position.dlsn)
    except (ValueError, TypeError) as error:
        return Slowest(topic, name, BEGINNING, str(error))
