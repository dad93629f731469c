"""The subscriptions of a growing topic: each gets a position in the new partitions before these can be used.

1. Each subscription begins at the beginning of each new partition. Otherwise a subscription without consumers would
   begin in a new partition only when its consumers return, perhaps at the end of the log: it would skip the records
   written before that, and not hold them against retention.
2. Each creation or deletion of a subscription, and each deletion of a shadow, writes the topic's `hold_key`, and the
   transactions of the growth compare that key. So every subscription that the growth does not know is created after it,
   and the growth creates no subscription of a deleted shadow.
3. Each attempt to grow writes that key first, so earlier attempts fail: they may come from other brokers, and each
   attempt deletes what the attempts before it have created.
4. The cost depends on the number of subscriptions and of topics that have subscriptions, not on the number of shadows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from uuid import UUID

from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.records import PUTS_MAX
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.subscription_keys import hold_key, read_readers, subscriber_of_key, subscriptions_prefix
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, DeletePrefix, KeyField, Metadata, Operation, Put


async def begin_in_new_partitions(metadata: Metadata, source: Topic, partitions: int) -> tuple[Compare, Put]:
    """Creates the subscriptions of a topic, and of its shadows, in the new partitions.

    Returns:
        The comparison and the write that the transaction of the growth must include.

    Raises:
        MetadataError: not all could be created; the next growth deletes those that were, and creates all again.
    """
    key = hold_key(source.id)
    before = await metadata.get(key)
    unchanged = (
        Compare.version(topic_key(source.name), source.version),
        Compare(topic_key(source.name), KeyField.CREATE_REVISION, source.create_revision),
    )
    known = Compare(key, KeyField.MOD_REVISION, 0 if before is None else before.mod_revision)
    begun = await metadata.txn((*unchanged, known), (Put(key, b""),))
    if not begun.succeeded:
        return known, Put(key, b"")  # the growth fails by a comparison of this transaction
    known = Compare(key, KeyField.MOD_REVISION, begun.revision)
    ungrown = (*unchanged, known)
    names: dict[UUID, list[str]] = {}
    for topic_id in await read_readers(metadata, source.id):
        first = subscriptions_prefix(topic_id, 0)
        names[topic_id] = [item.key.removeprefix(first) for item in (await metadata.range(first)).items]
    new = range(source.partitions, partitions)
    left = (DeletePrefix(subscriptions_prefix(topic_id, index)) for topic_id in names for index in new)
    for operations in (left, _beginnings(names, new)):  # first deletes the records that a failed growth left
        await _in_groups(metadata, ungrown, operations)
    return known, Put(key, b"")


def _beginnings(names: Mapping[UUID, Sequence[str]], new: range) -> Iterator[Put]:
    """The records of all subscriptions in the new partitions; `names` are those of each topic, quoted as in keys."""
    for topic_id, quoted in names.items():
        for index in new:
            prefix = subscriptions_prefix(topic_id, index)
            for name in quoted:
                record = SubscriberRecord(subscriber_of_key(prefix + name), Position())
                yield Put(prefix + name, record.encode())


async def _in_groups(metadata: Metadata, ungrown: Sequence[Compare], operations: Iterable[Operation]) -> None:
    """Executes operations in transactions small enough for etcd; ends early if the comparisons of the growth fail."""
    rest = iter(operations)
    while group := list(islice(rest, PUTS_MAX)):
        if not (await metadata.txn(ungrown, group)).succeeded:
            return
