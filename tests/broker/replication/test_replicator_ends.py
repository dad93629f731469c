"""A replicator ends with its shadow, whatever it waits for."""

from __future__ import annotations

import pytest
import trio
from shadowed_cluster import Shadowed, run

from gnomon.broker.replication.cursors import ReplicatedPartition, ReplicatorCursors
from gnomon.broker.replication.outbox import ReplicatorCursor
from gnomon.broker.replication.replicator import Replicator
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.testing.storms.kafka.storm_clients import create_topic, delete_topic
from gnomon.testing.storms.kafka.wire_client import WireCluster
from gnomon.testing.storms.rest.sizes import sizes_of


async def delete(shadowed: Shadowed, *topics: str) -> None:
    async def work(client: WireCluster) -> None:
        for topic in topics:
            await delete_topic(client, topic)

    await shadowed.cluster.run_client(f"deletes-{topics[0]}", work)
    await shadowed.clock.sleep(3)


def kept(shadowed: Shadowed, owner: int) -> list[str]:
    """The shadows of all replicators that the replication of a broker reaches."""
    found = sizes_of(shadowed.cluster.serving[owner].broker.replication).found(Replicator)
    return sorted(replicator.shadow.name for replicator in found)


@pytest.mark.parametrize("topics", [("copy",), ("copy", "orders")])
def test_a_replicator_whose_shadow_was_deleted_while_its_cursor_was_read_is_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...]
) -> None:
    release, load = trio.Event(), ReplicatorCursors.load

    async def load_late(cursors: ReplicatorCursors, replicated: ReplicatedPartition) -> ReplicatorCursor | None:
        cursor = await load(cursors, replicated)
        await release.wait()
        return cursor

    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        owner = shadowed.owner
        assert kept(shadowed, owner) == ["copy"]
        await delete(shadowed, *topics)
        release.set()
        await shadowed.clock.sleep(1)
        assert kept(shadowed, owner) == []

    monkeypatch.setattr(ReplicatorCursors, "load", load_late)
    run(1, scenario)


def test_a_replicator_with_unsent_entries_ends_with_its_shadow_while_others_use_its_connection() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        owner, reader = shadowed.owner, shadowed.reader

        async def cast(client: WireCluster) -> None:
            for number in range(6):
                await create_topic(client, f"other-{number}", {SHADOW_SOURCE: "orders"})

        await shadowed.cluster.run_client("caster", cast)
        others = [f"other-{number}" for number in range(6)]
        assert reader in [shadowed.cluster.leader(name, 0) for name in others]
        shadowed.simulation.network.block(f"broker-{owner}", f"broker-{reader}")
        await shadowed.produce("unsent", 20)
        await delete(shadowed, "copy")
        assert kept(shadowed, owner) == others
        shadowed.simulation.network.heal()
        await shadowed.produce("sent", 20)
        assert kept(shadowed, owner) == others

    run(2, scenario)
