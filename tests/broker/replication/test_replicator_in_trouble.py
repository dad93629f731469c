"""Replication while a shadow, its connection or an owner is slow, gone or moved."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from shadowed_cluster import Shadowed, run

from gnomon.bookie.errors import LedgerFailed
from gnomon.broker.errors import KafkaError
from gnomon.broker.partition.appends import Produced
from gnomon.broker.replication.protocol import WINDOW_BYTES
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Record, build_batch


def test_no_produce_on_the_source_waits_for_a_shadow_that_is_slow_paused_or_gone() -> None:
    slowest: dict[str, float] = {}

    async def scenario(shadowed: Shadowed, trouble: str) -> None:
        await shadowed.start_read()
        owner, reader, network = shadowed.owner, shadowed.reader, shadowed.simulation.network
        if trouble == "paused":
            network.clog(f"broker-{owner}", f"broker-{reader}", 4)
            network.clog(f"broker-{reader}", f"broker-{owner}", 4)
        elif trouble == "cut off":
            network.block(f"broker-{owner}", f"broker-{reader}")
        elif trouble == "killed":
            shadowed.cluster.brokers[reader].kill()
        took = await shadowed.produce("during", 300, pause=0.002, value_bytes=16_000)
        slowest[trouble] = max(took[1:])  # the first one includes the client's search for the leader
        if trouble in ("paused", "cut off"):
            assert shadowed.stats().backlog_bytes > WINDOW_BYTES
            (sender,) = shadowed.cluster.serving[owner].broker.replication.peers()
            assert sender.room_bytes == 0
        network.heal()
        if trouble != "killed":
            await shadowed.caught_up(301, 10)
            assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    for trouble in ("none", "paused", "cut off", "killed"):
        run(2, partial(scenario, trouble=trouble))
    assert max(slowest.values()) <= slowest["none"] + 0.005, slowest


def test_entries_are_sent_again_after_each_reset_of_the_connection() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()

        async def reset_often() -> None:
            while True:
                await shadowed.clock.sleep(0.3)
                for stream in shadowed.simulation.network.streams():
                    if {f"broker-{shadowed.owner}", f"broker-{shadowed.reader}"} == {
                        side.process.machine_name for side in stream
                    }:
                        shadowed.simulation.network.reset(stream)

        shadowed.simulation.start_soon(reset_often)
        await shadowed.trickle("during", 3)
        await shadowed.caught_up(301, 3)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")
        assert shadowed.stats().refused == 0

    run(3, scenario)


def test_a_new_owner_continues_from_the_stored_cursor_in_mid_ledger_also_if_the_shadow_moves() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read(**{"segment.bytes": "20000"})
        await shadowed.trickle("before", 3)
        await shadowed.clock.sleep(2)
        stats = shadowed.stats()
        assert (stats.backlog_entries, stats.connected) == (0, True)
        before, victim = shadowed.owner, shadowed.owner
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.trickle("after", 1)
        assert shadowed.owner != before
        await shadowed.caught_up(401, 3)
        stats = shadowed.stats()
        assert stats.refused == 0
        assert stats.told_entries <= 100 + 10, "acknowledged entries are not sent again"
        shadowed.cluster.start_broker(victim)
        await shadowed.cluster.settled(*shadowed.cluster.brokers)
        await shadowed.trickle("back", 1)
        await shadowed.caught_up(501, 3)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(4, scenario, brokers=3)


def test_a_shadow_that_moves_to_another_broker_is_replicated_there() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        victim, owner = shadowed.reader, shadowed.owner
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        assert (shadowed.owner, shadowed.reader != victim) == (owner, True)
        await shadowed.trickle("during", 1)
        await shadowed.caught_up(101, 3)
        assert shadowed.stats().connected

    run(5, scenario, brokers=3)


def test_a_backlog_beyond_the_set_limit_is_skipped_and_the_shadow_loses_nothing() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        shadowed.simulation.network.block(f"broker-{shadowed.owner}", f"broker-{shadowed.reader}")
        await shadowed.trickle("during", 9)
        stats = shadowed.stats()
        assert stats.backlog_entries <= 50
        assert stats.resets > 1
        shadowed.simulation.network.heal()
        await shadowed.caught_up(901, 10)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(6, scenario, shadow_replicator_auto_reset_backlog_entries=50)


def test_entries_that_a_dead_owner_had_not_replicated_are_replicated_by_the_next_owner() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        await shadowed.trickle("received", 0.5)
        await shadowed.clock.sleep(3)
        received = shadowed.stats().told_entries
        victim = shadowed.owner
        shadowed.simulation.network.block(f"broker-{victim}", f"broker-{shadowed.reader}")
        await shadowed.trickle("cut off", 1)
        assert shadowed.stats().backlog_entries == 100
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.produce("last", 1)
        await shadowed.clock.sleep(1)
        stats = shadowed.stats()
        assert (received, stats.told_entries, stats.backlog_entries) == (51, 101, 0)

    run(12, scenario, brokers=3)


def test_a_record_acknowledged_before_the_sources_writer_failed_is_in_the_shadow_without_further_writes() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        shown = await shadowed.start_read()
        await shadowed.clock.sleep(2)
        broker = shadowed.cluster.serving[shadowed.owner].broker
        source = broker.partitions.use(broker.topics.find("orders"), 0)
        failed = trio.Event()
        assert source.log is not None
        before = source.log.high_watermark

        writer: Any = source.segments[-1].ledger
        network_of_owner = broker.turns._network
        network, owner = shadowed.simulation.network, f"broker-{shadowed.owner}"

        def fail() -> None:
            writer._appender._fail(LedgerFailed("too few bookies", outcome_unknown=True))
            network.heal()
            failed.set()

        class Client:
            def appended(self, slot: int, outcome: Produced) -> None:
                if slot == 1:
                    for bookie in shadowed.cluster.ledgers.bookies.values():
                        network.block(bookie.name, owner)  # no bookie answers for the second append
                    network_of_owner.call_soon(fail)

        batch = build_batch([Record(value=bytes(40_000))], base_timestamp=1000)  # too large to be sent with its id
        source.append(memoryview(batch), Client(), 1)
        broker.timers.call_at(shadowed.clock.monotonic(), lambda: source.append(memoryview(batch), Client(), 2))
        await failed.wait()
        assert (source.log.high_watermark, source.log.next_offset) == (before + 1, before + 1)
        await shadowed.clock.sleep(2)
        assert shown.high_watermark == before + 1

    run(3, scenario)


def test_a_shadow_returns_the_end_of_an_epoch_only_after_it_is_settled() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start()
        await shadowed.produce("some", 20)
        broker = shadowed.cluster.serving[shadowed.owner].broker
        source = broker.partitions.use(broker.topics.find("orders"), 0)
        network, reader = shadowed.simulation.network, f"broker-{shadowed.reader}"
        for bookie in shadowed.cluster.ledgers.bookies.values():
            network.block(reader, bookie.name)
        await shadowed.shadow.opened()
        assert source.log is not None
        with pytest.raises(KafkaError) as refused:
            await shadowed.shadow.end_of_epoch(source.log.epoch)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        network.heal()
        await shadowed.caught_up(20, 10)
        await shadowed.clock.sleep(5)
        assert await shadowed.shadow.end_of_epoch(source.log.epoch) == await source.end_of_epoch(source.log.epoch)

    run(4, scenario)
