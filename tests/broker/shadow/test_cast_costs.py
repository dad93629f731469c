"""The metadata operations of a change of a topic do not depend on its number of shadows (cast 5, growth 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import pytest
from topic_calls import image

from gnomon.broker.errors import KafkaError
from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.broker.topics.topic_admin import TopicAdmin
from gnomon.log.subscription_keys import reader_key, subscriptions_prefix
from gnomon.log.topic import SourceRef, Topic, shadows_key, topic_key
from gnomon.metadata.client import Compare, Metadata, Operation, Put, TxnOutcome
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata

MANY = 2000


class Spent(NamedTuple):
    """The cost of one change."""

    reads: int
    writes: int
    operations: int
    """Comparisons and operations of all transactions."""
    bytes: int
    """Of the values that the transactions put."""


class Sizes(CountingMetadata):
    """Also counts the operations of the transactions, and the bytes that they put."""

    def __init__(self, inner: Metadata) -> None:
        super().__init__(inner)
        self.operations = self.bytes = 0

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        self.operations += len(compare) + len(then) + len(otherwise)
        self.bytes += sum(len(operation.value) for operation in then if isinstance(operation, Put))
        return await super().txn(compare, then, otherwise)


Change = Callable[[TopicAdmin, Topic, Topic], Awaitable[object]]
"""Changes a source and one of its shadows."""


async def grow(admin: TopicAdmin, source: Topic, shadow: Topic) -> None:
    await admin.grow("orders", 3)


async def cast(admin: TopicAdmin, source: Topic, shadow: Topic) -> None:
    assert (await admin.create(admin.check_new("late", -1, {SHADOW_SOURCE: "orders"}))).partitions == 1


async def delete_shadow(admin: TopicAdmin, source: Topic, shadow: Topic) -> None:
    await admin.delete(shadow)


async def delete_source(admin: TopicAdmin, source: Topic, shadow: Topic) -> None:
    with pytest.raises(KafkaError, match="has shadows that show its records"):
        await admin.delete(source)


async def with_shadows(broker: EmbeddedBroker, count: int) -> Topic:
    """Makes the topic `orders` with `count` shadows, as if cast one by one, and one subscription of the first shadow.

    The names of the shadows have one length, and so do their records.
    """
    source_id = await (await broker.connect()).create_topic("orders")
    puts: list[Operation] = [Put(shadows_key(source_id), b"")]
    for place in range(1, count + 1):
        shadow = Topic(f"copy-{place:04}", UUID(int=place), 0, {}, source=SourceRef("orders", source_id, place))
        puts.append(Put(topic_key(shadow.name), shadow.encode()))
    record = SubscriberRecord("screens", Position())
    puts.append(Put(f"{subscriptions_prefix(UUID(int=1), 0)}screens", record.encode()))
    puts.append(Put(reader_key(source_id, UUID(int=1)), b"copy-0001"))
    node = broker.serving.broker
    await node.topics.reached((await node.storage.metadata.txn((), puts)).revision)
    return image(broker, "orders")


@pytest.mark.parametrize("change", [grow, cast, delete_shadow, delete_source])
def test_a_change_of_a_source_or_of_a_shadow_costs_the_same_with_any_number_of_shadows(change: Change) -> None:
    def spent(shadows: int) -> Spent:
        costs: list[Spent] = []

        async def scenario(broker: EmbeddedBroker) -> None:
            source = await with_shadows(broker, shadows)
            node = broker.serving.broker
            node.storage.metadata = counting = Sizes(node.storage.metadata)
            with counting.measure() as cost:
                await change(node.topic_admin, source, image(broker, f"copy-{shadows:04}"))
            costs.append(Spent(cost.reads, cost.writes, counting.operations, counting.bytes))
            if change is grow:
                assert {shadow.partitions for shadow in node.topics.image.shadows_of(source)} == {3}

        simulate_broker(scenario)
        return costs[0]

    few, many = spent(1), spent(MANY)
    # A place above 127 takes more bytes than a small one.
    assert many._replace(bytes=0) == few._replace(bytes=0)
    assert many.bytes <= few.bytes + 4
    assert few.reads + few.writes <= 8, few
    assert few.operations <= 32, few
