"""A key that exists as long as its process is alive and that belongs to this process only."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from gnomon.metadata.client import Compare, Metadata, Put
from gnomon.metadata.presence import KeyTaken, NotEntitled, Presence
from gnomon.runtime.world import Clock
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

TTL_SECONDS = 3.0


def presence(client: LedgerClient, value: bytes, **options: Any) -> Presence:
    options = options or {"exclusive": True}
    return Presence(client.metadata, client.world.clock, "brokers/1", value, TTL_SECONDS, **options)


def test_an_exclusive_key_is_taken_by_one_process_at_a_time() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            first = presence(client, b"first")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.run)
                await first.announced()
                with pytest.raises(KeyTaken) as caught:
                    await presence(client, b"second").run()
                assert caught.value.value == b"first"
                first.update(b"draining")
                await first.announced()
                found = await client.metadata.get("brokers/1")
                assert found is not None
                assert found.value == b"draining"
                nursery.cancel_scope.cancel()
            await first.withdraw()
            third = presence(client, b"third")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(third.run)
                await third.announced()
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(1, scenario)


def test_a_process_waits_for_the_end_of_its_own_older_lease() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            older = await client.metadata.lease(TTL_SECONDS)
            await client.metadata.txn((), (Put("brokers/1", b"me", older),))
            again = presence(client, b"me")
            started = client.world.clock.monotonic()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(again.run)
                await again.announced()
                nursery.cancel_scope.cancel()
            assert 0 < client.world.clock.monotonic() - started < 2 * TTL_SECONDS
            found = await client.metadata.get("brokers/1")
            assert found is not None
            assert found.lease != older

        await cluster.run_client("client", work)

    simulate(2, scenario)


def test_a_key_that_another_process_removed_is_put_again_under_a_new_lease() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            stays, passes = presence(client, b"stays", exclusive=False), presence(client, b"passes", exclusive=False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stays.run)
                await stays.announced()
                before = stays.lease
                with trio.move_on_after(TTL_SECONDS):
                    await passes.run()
                await passes.withdraw()
                await client.world.clock.sleep(TTL_SECONDS / 2)
                found = await client.metadata.get("brokers/1")
                assert found is not None
                assert (found.value, found.lease) == (b"stays", stays.lease)
                assert stays.lease != before
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(3, scenario)


def test_a_key_is_put_only_while_its_comparisons_hold() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            entitled = presence(client, b"me", compare=[Compare.version("title", 1)])
            await client.metadata.txn((), (Put("title", b""),))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(entitled.run)
                await entitled.announced()
                nursery.cancel_scope.cancel()
            await client.metadata.txn((), (Put("title", b""), Put("brokers/1", b"another")))
            entitled.update(b"me again")
            with pytest.raises(NotEntitled, match="may not be put by this process"):
                await entitled.run()
            await entitled.withdraw()
            found = await client.metadata.get("brokers/1")
            assert found is not None
            assert found.value == b"another"

        await cluster.run_client("client", work)

    simulate(4, scenario)


class LateAnswers:
    """Metadata that grants and renews leases at once, and answers `late_seconds` afterwards."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self.late_seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._metadata, name)

        async def late(*args: Any) -> Any:
            answer = await method(*args)
            await self._clock.sleep(self.late_seconds)
            return answer

        return late


def answered_late(client: LedgerClient) -> tuple[LateAnswers, Presence]:
    """A presence whose metadata may answer late."""
    metadata = LateAnswers(client.metadata, client.world.clock)
    return metadata, Presence(cast("Metadata", metadata), client.world.clock, "brokers/1", b"me", TTL_SECONDS)


@pytest.mark.parametrize("late_at", ["grant", "keep-alive"])
def test_the_certain_life_of_a_lease_counts_from_the_call_and_not_from_its_late_answer(late_at: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock = client.world.clock
            metadata, kept = answered_late(client)
            metadata.late_seconds = 2 * TTL_SECONDS if late_at == "grant" else 0.0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kept.run)
                if late_at == "keep-alive":
                    await kept.announced()
                    metadata.late_seconds = 2 * TTL_SECONDS
                before = kept.alive_until
                while kept.alive_until == before:
                    await clock.sleep(0.01)
                assert kept.alive_until < clock.monotonic(), (
                    "the answer came after the end of the life that it promises"
                )
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(5, scenario)


def test_a_lease_is_kept_alive_in_time_after_a_late_answer() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            clock = client.world.clock
            metadata, kept = answered_late(client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kept.run)
                await kept.announced()
                before, metadata.late_seconds = kept.alive_until, 0.8 * TTL_SECONDS
                await clock.sleep(TTL_SECONDS / 2)  # a keep-alive is under way, whose answer comes late
                metadata.late_seconds = 0.0
                while kept.alive_until == before:
                    await clock.sleep(0.01)
                end = clock.monotonic() + TTL_SECONDS
                while clock.monotonic() < end:
                    assert clock.monotonic() < kept.alive_until, "the lease may have ended"
                    await clock.sleep(0.01)
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(5, scenario)
