"""What becomes of what a shadow is told when it, its connection or an owner is slow, gone or elsewhere."""

from __future__ import annotations

from functools import partial

from shadowed_cluster import Shadowed, run

from gnomon.broker.shadow.window import WINDOW_BYTES


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
        slowest[trouble] = max(took[1:])  # the client looks for the leader in the first
        if trouble in ("paused", "cut off"):
            assert shadowed.stats().backlog_bytes > WINDOW_BYTES
            (link,) = shadowed.cluster.serving[owner].broker.replication.links()
            assert link.room_bytes == 0
        network.heal()
        if trouble != "killed":
            await shadowed.caught_up(301, 10)
            assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    for trouble in ("none", "paused", "cut off", "killed"):
        run(2, partial(scenario, trouble=trouble))
    assert max(slowest.values()) <= slowest["none"] + 0.005, slowest


def test_a_shadow_is_told_again_after_each_reset_of_its_connection() -> None:
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


def test_a_new_owner_tells_on_from_the_stored_cursor_in_mid_ledger_also_where_the_shadow_moves() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read(**{"segment.bytes": "20000"})
        await shadowed.trickle("before", 3)
        await shadowed.clock.sleep(2)
        told = shadowed.stats()
        assert (told.backlog_entries, told.connected) == (0, True)
        before, victim = shadowed.owner, shadowed.owner
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.trickle("after", 1)
        assert shadowed.owner != before
        await shadowed.caught_up(401, 3)
        stats = shadowed.stats()
        assert stats.refused == 0
        assert stats.told_entries <= 100 + 10, "what was heard before is not told again"
        shadowed.cluster.start_broker(victim)
        await shadowed.cluster.settled(*shadowed.cluster.brokers)
        await shadowed.trickle("back", 1)
        await shadowed.caught_up(501, 3)
        assert await shadowed.read_all("copy") == await shadowed.read_all("orders")

    run(4, scenario, brokers=3)


def test_a_shadow_that_goes_to_another_broker_is_told_there() -> None:
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


def test_too_large_a_backlog_is_left_out_where_that_is_set_and_the_shadow_loses_nothing_by_it() -> None:
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


def test_what_a_shadow_had_not_heard_of_an_owner_that_dies_the_next_one_tells() -> None:
    async def scenario(shadowed: Shadowed) -> None:
        await shadowed.start_read()
        await shadowed.trickle("heard", 0.5)
        await shadowed.clock.sleep(3)
        heard = shadowed.stats().told_entries
        victim = shadowed.owner
        shadowed.simulation.network.block(f"broker-{victim}", f"broker-{shadowed.reader}")
        await shadowed.trickle("unheard", 1)
        assert shadowed.stats().backlog_entries == 100
        shadowed.cluster.brokers[victim].kill()
        await shadowed.cluster.settled(*(number for number in shadowed.cluster.brokers if number != victim))
        await shadowed.produce("last", 1)
        await shadowed.clock.sleep(1)
        stats = shadowed.stats()
        assert (heard, stats.told_entries, stats.backlog_entries) == (51, 101, 0)

    run(12, scenario, brokers=3)
