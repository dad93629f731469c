"""The subscriptions of a topic that grows: each begins in the new partitions before anybody can use these.

1. Else one whose consumers are away would begin there when they come back: at the end, and what was written to the new
   partitions until then would be skipped, and kept by nobody.
2. Whoever makes or deletes a subscription writes `hold_key`, and the growth compares it: all that it does not know of
   come after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from gnomon.broker.subscriptions.record import SubscriberRecord
from gnomon.broker.subscriptions.records import PUTS_MAX
from gnomon.broker.subscriptions.store import Position, hold_key, subscriber_of_key, subscriptions_prefix
from gnomon.broker.topics import Topic, topic_key
from gnomon.metadata.client import Compare, DeletePrefix, Field, Metadata, Put


async def begin_in_new_partitions(
    metadata: Metadata, source: Topic, shadows: Iterable[Topic], partitions: int
) -> tuple[Compare, Put]:
    """Makes the subscriptions of a topic, and of its shadows, in the partitions that are to come.

    Returns:
        What the growth has to compare, and to write.

    Raises:
        MetadataError: they could not be made; those that were are made anew, or stay for the next growth.
    """
    key = hold_key(source.id)
    before = await metadata.get(key)
    ungrown = (
        Compare.version(topic_key(source.name), source.version),
        Compare(topic_key(source.name), Field.CREATE_REVISION, source.create_revision),
    )
    for topic in (source, *shadows):
        first = subscriptions_prefix(topic.id, 0)
        quoted = [item.key.removeprefix(first) for item in (await metadata.range(first)).items]
        for index in range(source.partitions, partitions):
            await _begin(metadata, subscriptions_prefix(topic.id, index), quoted, ungrown)
    return Compare(key, Field.MOD_REVISION, 0 if before is None else before.mod_revision), Put(key, b"")


async def _begin(metadata: Metadata, prefix: str, quoted: Sequence[str], ungrown: Sequence[Compare]) -> None:
    """In one partition; where the topic has grown meanwhile nothing is done."""
    await metadata.txn(ungrown, (DeletePrefix(prefix),))  # of a growth that came to nothing
    names = iter(quoted)
    while group := list(islice(names, PUTS_MAX)):
        records = [SubscriberRecord(subscriber_of_key(prefix + name), Position()) for name in group]
        puts = [Put(prefix + name, record.encode()) for name, record in zip(group, records, strict=True)]
        await metadata.txn(ungrown, puts)
