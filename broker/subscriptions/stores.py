"""Which store keeps a partition's positions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from gnomon.bookie.ledger import Bookies, Quorum
from gnomon.broker.subscriptions.metadata_store import MetadataSubscriptionsStore
from gnomon.broker.subscriptions.records import SubscriberRecords
from gnomon.broker.subscriptions.segment_store import SegmentSubscriptionsStore
from gnomon.broker.subscriptions.segments import Segments
from gnomon.broker.subscriptions.store import SubscriptionsStore, hold_key, subscriptions_prefix
from gnomon.metadata.client import Compare, Metadata
from gnomon.runtime.settings import SubscriptionsSettings


def subscriptions_store(
    settings: SubscriptionsSettings,
    metadata: Metadata,
    bookies: Bookies,
    topic_id: uuid.UUID,
    partition: int,
    *,
    quorum: Quorum,
    source_id: uuid.UUID | None = None,
    claimant: Sequence[Compare] = (),
) -> SubscriptionsStore:
    """The store of one partition, for one term of its leader; asks nobody anything.

    Args:
        quorum: of segments that begin here.
        source_id: of a shadow, the topic whose records it shows.
        claimant: what must hold whenever something is stored: the topic's life, this broker's presence.
    """
    holds = hold_key(source_id or topic_id)
    records = SubscriberRecords(metadata, subscriptions_prefix(topic_id, partition), holds, claimant)
    segments = Segments(records, bookies, quorum)
    if settings.log_segment_based_subscriptions_store_enabled:
        return SegmentSubscriptionsStore(records, segments, settings.segment_entries_max)
    return MetadataSubscriptionsStore(records, segments)
