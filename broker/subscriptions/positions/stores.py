"""The choice of the store that keeps a partition's positions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from gnomon.bookie.ledgers.catalog import Bookies, Quorum
from gnomon.broker.storage import Storage
from gnomon.broker.subscriptions.positions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.positions.records import SubscriberRecords
from gnomon.broker.subscriptions.positions.segment_store import SegmentSubscriptionsStore
from gnomon.broker.subscriptions.positions.segments import Segments
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.log.subscription_keys import hold_key, reader_key, subscriptions_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, KeyField, Metadata, Put
from gnomon.runtime.settings.settings import SubscriptionsSettings


def subscriptions_store(
    settings: SubscriptionsSettings,
    metadata: Metadata,
    bookies: Bookies,
    topic_id: uuid.UUID,
    partition: int,
    *,
    topic: str,
    quorum: Quorum,
    source_id: uuid.UUID | None = None,
    claimant: Sequence[Compare] = (),
) -> SubscriptionsStore:
    """The store of one partition, for one term of its leader; nothing is read or written yet.

    Args:
        topic: the topic's name.
        quorum: the quorum of segments that begin here.
        source_id: for a shadow, the id of its source.
        claimant: comparisons that every write includes, such as the topic's life.
    """
    source_id = source_id or topic_id
    reader = Put(reader_key(source_id, topic_id), topic.encode())
    prefix = subscriptions_prefix(topic_id, partition)
    records = SubscriberRecords(metadata, prefix, hold_key(source_id), claimant, (reader,))
    segments = Segments(records, bookies, quorum)
    if settings.log_segment_based_subscriptions_store_enabled:
        return SegmentSubscriptionsStore(records, segments, settings.segment_entries_max)
    return MetadataSubscriptionsStore(records, segments)


def store_opener(settings: SubscriptionsSettings, storage: Storage) -> Callable[[Topic, int], SubscriptionsStore]:
    """A function that gives the store of a topic's partition, for one term of its leader.

    Nothing is stored once the topic is deleted. A draining broker may still store positions, because they too were
    acknowledged.
    """

    def opened(topic: Topic, index: int) -> SubscriptionsStore:
        lives = Compare(topic_key(topic.name), KeyField.CREATE_REVISION, topic.create_revision)
        return subscriptions_store(
            settings,
            storage.metadata,
            storage.bookies,
            topic.id,
            index,
            topic=topic.name,
            quorum=storage.quorum,
            source_id=topic.ranked_as,
            claimant=(lives,),
        )

    return opened
