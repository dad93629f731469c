"""The metadata keys of subscriptions, and the rules for their names. Pure, except for `read_readers`."""

from __future__ import annotations

import re
import uuid
from typing import Final
from urllib.parse import quote, unquote

from gnomon.bookie.record import ledger_key
from gnomon.metadata.client import Delete, DeletePrefix, Metadata, Operation

SUBSCRIPTIONS: Final = "subscriptions/"
"""Prefix of the metadata keys of all subscribers, and of the names of their segments' ledgers."""
REPLICATORS: Final = "replicators/"
"""Prefix of the metadata keys of all replicators' cursors."""
HOLDS: Final = "holds/"
"""Prefix of the metadata keys that change with subscriptions' holds: see `hold_key`."""
READERS: Final = "readers/"
"""Prefix of the metadata keys that name the topics with subscriptions: see `reader_key`."""
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
"""Names that need no quoting."""
NAME_BYTES_MAX = 300
"""Longest name in its form in keys: letters, digits and `_.-~` are one byte each, other bytes three."""


class SubscriptionsError(Exception):
    """An operation on subscriptions was not done; the text says why and what to do."""


class InvalidSubscriber(SubscriptionsError, ValueError):
    """A name that no subscription can have."""


def subscriptions_prefix(topic_id: uuid.UUID, partition: int | None = None) -> str:
    """The prefix of the keys of a topic's (or of one partition's) subscriptions, and of the names of their ledgers."""
    topic = f"{SUBSCRIPTIONS}{topic_id.hex}/"
    return topic if partition is None else f"{topic}{partition}/"


def replicators_prefix(topic_id: uuid.UUID) -> str:
    """The prefix of the keys with a shadow's replication cursors, by partition; none of them is a subscription."""
    return f"{REPLICATORS}{topic_id.hex}/"


def hold_key(topic_id: uuid.UUID) -> str:
    """The key that is written whenever a subscription of the topic, or of a shadow, is created, moved back or deleted,
    and whenever a read hold begins or moves back.

    A transaction that deletes records read by all subscriptions compares it (`hold`), and so does one that grows the
    topic (`growth`).
    """
    return f"{HOLDS}{topic_id.hex}"


def reader_key(source_id: uuid.UUID, topic_id: uuid.UUID) -> str:
    """The key of a topic that has, or had, subscriptions: the source itself or one of its shadows.

    Its value is the topic's name. The transaction that creates a subscription writes it beside `hold_key`, so that one
    read finds the topics that hold a source's records, however many shadows the source has.
    """
    return f"{READERS}{source_id.hex}/{topic_id.hex}"


async def read_readers(metadata: Metadata, source_id: uuid.UUID) -> dict[uuid.UUID, str]:
    """The topics that have subscriptions to a source's records, with their names: one range read.

    Raises:
        MetadataError: they cannot be read.
    """
    found = await metadata.range(f"{READERS}{source_id.hex}/")
    return {uuid.UUID(item.key.rpartition("/")[2]): item.value.decode() for item in found.items}


def subscriber_in_key(subscriber: str) -> str:
    """A subscription's name in the form for keys and names of ledgers: without a slash.

    Raises:
        InvalidSubscriber: it is empty, too long, or not a text.
    """
    try:
        quoted = subscriber if _PLAIN.fullmatch(subscriber) else quote(subscriber, safe="")
    except UnicodeEncodeError as error:
        raise InvalidSubscriber(f"subscription {subscriber!r}: the name is no text in UTF-8") from error
    if not 0 < len(quoted) <= NAME_BYTES_MAX:
        raise InvalidSubscriber(
            f"subscription {subscriber!r}: the name takes {len(quoted)} bytes, 1 to {NAME_BYTES_MAX} are allowed"
            " (letters, digits and _.-~ take one each, other bytes three)"
        )
    return quoted


def subscriber_of_key(key: str) -> str:
    """Undoes `subscriber_in_key`, for the last part of a metadata key."""
    name = key.rpartition("/")[2]
    return unquote(name) if "%" in name else name


def deletion_of_subscriptions(topic_id: uuid.UUID, source_id: uuid.UUID | None = None) -> tuple[Operation, ...]:
    """The operations on subscriptions, and on the replicators of a shadow, in a transaction that deletes a topic.

    Args:
        source_id: of a shadow, the topic whose records it shows.
    """
    prefix, replicators = subscriptions_prefix(topic_id), replicators_prefix(topic_id)
    return (
        *(DeletePrefix(prefix), DeletePrefix(ledger_key(prefix)), DeletePrefix(replicators)),
        *(Delete(hold_key(topic_id)), Delete(reader_key(source_id or topic_id, topic_id))),
    )
