"""Read holds with the metadata in a real etcd, whose transactions have fewer operations than a topic has partitions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import trio
from etcd_needed import etcd_or_skip

from gnomon.bookie.record import ledger_key
from gnomon.broker.retention.read_holds import HeldPlace, ReadHolds
from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import HoldPlace
from gnomon.log.subscription_keys import hold_key
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import KeyValue, Metadata, Put
from gnomon.metadata.etcd.etcd import EtcdMetadata
from gnomon.runtime.trio_world import open_trio_world
from gnomon.testing.etcd_server import EtcdServer

PARTITIONS = 200


async def put(metadata: Metadata, key: str, value: bytes) -> KeyValue:
    item = (await metadata.txn((), (Put(key, value),))).results[0]
    assert isinstance(item, KeyValue)
    return item


async def scenario(metadata: Metadata, holds: ReadHolds) -> None:
    topic = Topic.decode(
        await put(metadata, topic_key("orders"), Topic("orders", UUID(int=7), PARTITIONS, {}).encode())
    )
    places: dict[int, Any] = {}
    for index in range(PARTITIONS):
        name = f"topics/{index}/0"
        places[index] = SimpleNamespace(name=name, id=(await put(metadata, ledger_key(name), b"")).create_revision)

    async def take(offset: int) -> tuple[KeyValue, int]:
        """Holds all partitions; returns the key of one of them, and the revision of the key that trims compare."""
        segments = {index: cast("Any", SimpleNamespace(ledger=ledger)) for index, ledger in places.items()}
        wanted = {index: HeldPlace(Offset(offset), segment) for index, segment in segments.items()}
        await holds.take(topic, "job", 60, wanted)
        held = await holds.of(topic)
        assert len(held) == PARTITIONS
        assert {each.offset for each in held.values()} == {offset}
        item, compared = [await metadata.get(key) for key in (HoldPlace(topic.id, 3, "job").key, hold_key(topic.id))]
        assert item is not None
        assert compared is not None
        return item, compared.mod_revision

    first, begun = await take(5)
    later, forward = await take(9)
    assert (later.lease, forward) == (first.lease, begun)
    back, again = await take(2)
    assert back.lease == first.lease is not None
    assert again > begun


def test_a_hold_of_many_partitions_is_taken_renewed_and_moved_on_an_etcd(tmp_path: Path) -> None:
    etcd_or_skip()
    etcd = EtcdServer(tmp_path / "etcd")

    async def main() -> None:
        async with open_trio_world() as world, EtcdMetadata(world, [etcd.endpoint]) as metadata:
            storage: Any = SimpleNamespace(metadata=metadata)
            await scenario(metadata, ReadHolds(storage, world.clock))

    etcd.start()
    try:
        etcd.wait_ready()
        trio.run(main)
    finally:
        etcd.kill()
