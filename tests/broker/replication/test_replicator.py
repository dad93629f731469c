"""The replication from a source's broker to the brokers of its shadows: its delay and its cost."""

from __future__ import annotations

from functools import partial

from shadowed_cluster import Shadowed, run

from gnomon.broker.replication.shadow_replication import LARGE_PACE_SECONDS, PACE_SECONDS, TRAILING_SECONDS
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.testing.storms.kafka.embedded_broker import EmbeddedBroker, simulate_broker
from gnomon.wire.kafka.records import Record, build_batch


def test_a_shadow_shows_a_record_within_milliseconds_and_reads_no_bookie_for_it() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        log = await shadowed.start_read()
        await shadowed.clock.sleep(2)
        reads = shadowed.reads()
        for number in range(20):
            await shadowed.produce(f"p-{number}", 1, pause=0)
            acknowledged_at = shadowed.clock.monotonic()
            while log.high_watermark < number + 2:
                await shadowed.clock.sleep(0.0005)
            assert shadowed.clock.monotonic() - acknowledged_at < PACE_SECONDS + TRAILING_SECONDS + 0.004
        await shadowed.produce("many", 200, pause=0.0005)
        await shadowed.clock.sleep(0.2)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")
        assert shadowed.reads() == reads
        stats = shadowed.stats()
        assert stats.connected
        assert (stats.backlog_entries, stats.last_entry, stats.refused) == (0, 220, 0)
        assert stats.records_per_second > 1

    run(1, scenario)


def test_an_entry_that_is_too_large_is_sent_as_its_id_and_read_from_a_bookie() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        log = await shadowed.start_read()
        await shadowed.clock.sleep(2)
        await shadowed.trickle("small", 0.5)
        await shadowed.clock.sleep(0.1)
        reads = shadowed.reads()
        await shadowed.produce("large", 3, value_bytes=3000)
        await shadowed.clock.sleep(0.1)
        assert log.high_watermark == 54
        assert reads < shadowed.reads() <= reads + 3
        assert shadowed.stats().backlog_entries == 0

    run(7, scenario, inline_bytes_max=2000)


def test_ids_of_entries_that_are_too_large_are_gathered_for_longer() -> None:
    frames: dict[int, float] = {}

    async def scenario(shadowed: Shadowed, value_bytes: int) -> None:
        await shadowed.start_read()
        (sender,) = shadowed.cluster.serving[shadowed.owner].broker.replication.peers()
        before, began = sender.next_frame, shadowed.clock.monotonic()
        await shadowed.produce("many", 200, pause=0.0005, value_bytes=value_bytes)
        frames[value_bytes] = (sender.next_frame - before) / (shadowed.clock.monotonic() - began)

    for value_bytes in (1_000, 20_000):
        run(1, partial(scenario, value_bytes=value_bytes))
    assert frames[20_000] <= 1 / LARGE_PACE_SECONDS < frames[1_000] <= 1 / PACE_SECONDS


def test_a_shadow_that_no_client_uses_is_not_opened() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("unread", 1)
        await shadowed.clock.sleep(0.2)
        broker = shadowed.cluster.serving[shadowed.reader].broker
        assert broker.partitions.open_shadow(broker.topics.find("copy").id, 0) is None
        assert (shadowed.stats().backlog_entries, shadowed.reads()) == (0, 0)

    run(8, scenario)


def test_the_cursor_is_deleted_with_its_shadow() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.trickle("some", 2)
        broker = shadowed.cluster.serving[shadowed.owner].broker
        await shadowed.clock.sleep(2)
        found = await broker.storage.metadata.range("replicators/")
        assert [item.key.rpartition("/")[2] for item in found.items] == ["0"]
        await broker.topic_admin.delete(broker.topics.find("copy"))
        await shadowed.clock.sleep(5)
        assert (await broker.storage.metadata.range("replicators/")).items == ()
        await shadowed.trickle("more", 1)
        assert broker.replication.peers() == []

    run(9, scenario)


def test_a_shadow_on_its_sources_broker_shows_a_record_within_milliseconds() -> None:
    async def scenario(broker: EmbeddedBroker) -> None:
        client, writer = await broker.connect(), await broker.connect()
        await writer.create_topic("orders")
        await client.create_topic("copy", -1, {SHADOW_SOURCE: "orders"})
        node = broker.serving.broker
        await client.fetch("copy", 0)
        await broker.simulation.clock.sleep(3)
        shadow = node.partitions.open_shadow(node.topics.find("copy").id, 0)
        assert shadow is not None
        assert shadow.log is not None
        for number in range(1, 20):
            await writer.produce("orders", build_batch([Record(value=b"a")], base_timestamp=1))
            await broker.simulation.clock.sleep(PACE_SECONDS + TRAILING_SECONDS)
            assert shadow.log.high_watermark == number
        stats = node.replication.stats(node.topics.find("copy"), 0)
        assert stats is not None
        assert (stats.connected, stats.backlog_entries, stats.last_entry, stats.told_entries) == (True, 0, 18, 19)

    simulate_broker(scenario)
