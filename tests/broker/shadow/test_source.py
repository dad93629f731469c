"""One watch serves all partitions of a source."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import trio

from gnomon.broker.shadow.source import SourceLedgers
from gnomon.metadata.client import Delete, Event, KeyValue, Put
from gnomon.runtime.logs import SilentLogger
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata

TOPIC = UUID(int=7)


def key(partition: int, base: int) -> str:
    return f"ledgers/topics/{TOPIC.hex}/{partition}/{base:020}"


class Reader:
    """Keeps the keys that it is notified of."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.times = 0

    def records_replaced(self, items: Sequence[KeyValue]) -> None:
        self.keys = [item.key for item in items]
        self.times += 1

    def records_changed(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.current is None:
                self.keys.remove(event.key)
            elif event.key not in self.keys:
                self.keys.append(event.key)
        self.times += 1


def test_one_read_serves_all_partitions_of_a_source_and_each_gets_its_own_records() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        node = broker.serving.broker
        metadata = CountingMetadata(node.storage.metadata)
        await metadata.txn([], [Put(key(2, 0), b""), Put(key(10, 0), b""), Put(key(10, 5), b"")])
        async with trio.open_nursery() as nursery:
            source = SourceLedgers(metadata, broker.simulation.clock, nursery, SilentLogger(), TOPIC)
            two, ten, other, empty = Reader(), Reader(), Reader(), Reader()
            with metadata.measure() as cost:
                async with trio.open_nursery() as joining:
                    for partition, reader in ((2, two), (10, ten), (10, other), (3, empty)):
                        joining.start_soon(source.join, partition, reader)
            assert (cost.reads, cost.writes) == (1, 0)
            assert (two.keys, ten.keys, empty.keys) == ([key(2, 0)], [key(10, 0), key(10, 5)], [])
            await metadata.txn([], [Delete(key(10, 0)), Put(key(10, 9), b""), Put(key(3, 0), b"")])
            await broker.simulation.clock.sleep(0.1)
            assert ten.keys == other.keys == [key(10, 5), key(10, 9)]
            assert (ten.times, two.times, empty.keys) == (2, 1, [key(3, 0)])
            late = Reader()
            with metadata.measure() as cost:
                await source.join(10, late)
            assert (late.keys, cost.reads) == ([key(10, 5), key(10, 9)], 0)
            for partition, reader in ((2, two), (10, ten), (10, other), (3, empty), (10, late)):
                source.leave(partition, reader)
            await metadata.txn([], [Put(key(2, 7), b"")])
            await broker.simulation.clock.sleep(0.1)
            assert two.times == 1
            with metadata.measure() as cost:
                await source.join(2, two)
            assert (two.keys, cost.reads) == ([key(2, 0), key(2, 7)], 1)
            nursery.cancel_scope.cancel()

    simulate_broker(scenario)
