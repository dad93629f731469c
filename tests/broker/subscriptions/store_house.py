"""One life of a node, for tests of the stored positions of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.broker.stores import Stores
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import SubscriptionsStore
from gnomon.broker.subscriptions.positions.stores import subscriptions_store
from gnomon.log.subscription_keys import subscriptions_prefix
from gnomon.metadata.client import Compare, DeletePrefix
from gnomon.runtime.settings.settings import SubscriptionsSettings
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata

TOPIC_ID = UUID(int=7)


class StoreHouse:
    """One life of a node; each store that it makes acts as one of another process."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.metadata = CountingMetadata(stores.metadata)

    def store(
        self, segments: bool, *, entries_max: int = 10_000, claimant: Sequence[Compare] = ()
    ) -> SubscriptionsStore:
        """The store of a new owner of the one partition."""
        settings = SubscriptionsSettings(
            log_segment_based_subscriptions_store_enabled=segments, segment_entries_max=entries_max
        )
        return subscriptions_store(
            settings,
            self.metadata,
            self.stores.bookies,
            TOPIC_ID,
            3,
            topic="orders",
            quorum=Quorum(),
            claimant=claimant,
        )

    async def records(self) -> dict[str, SubscriberRecord]:
        """The metadata records of all subscriptions."""
        found = await self.stores.metadata.range(subscriptions_prefix(TOPIC_ID, 3))
        records = [SubscriberRecord.decode(item.value) for item in found.items]
        return {record.name: record for record in records}

    async def segments(self) -> list[str]:
        """The names of all segments, without their common prefix."""
        prefix = "ledgers/" + subscriptions_prefix(TOPIC_ID, 3)
        found = await self.stores.metadata.range(prefix)
        return [item.key.removeprefix(prefix) for item in found.items]

    async def delete_ledgers(self) -> None:
        """Deletes all segments without a call to their stores."""
        await self.stores.metadata.txn((), (DeletePrefix("ledgers/" + subscriptions_prefix(TOPIC_ID, 3)),))
