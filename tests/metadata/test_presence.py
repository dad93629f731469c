"""A key that is there as long as its process is, and belongs to it alone."""

from __future__ import annotations

import pytest
import trio

from gnomon.metadata.client import Compare, Delete, Field, Put
from gnomon.metadata.presence import KeyTaken, Presence
from gnomon.testing.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.simulation import Simulation, simulate

TTL_SECONDS = 3.0


def presence(client: LedgerClient, value: bytes) -> Presence:
    return Presence(client.metadata, client.world.clock, "brokers/1", value, TTL_SECONDS, exclusive=True)


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


def test_what_a_process_left_under_an_older_lease_of_its_own_is_waited_for() -> None:
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


def test_a_key_that_depends_on_another_is_put_while_that_is_as_it_was() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def work(client: LedgerClient) -> None:
            metadata, clock = client.metadata, client.world.clock
            await metadata.txn((), (Put("things/x", b""),))
            (cookie,) = (await metadata.range("things/x")).items
            same = Compare("things/x", Field.CREATE_REVISION, cookie.create_revision)
            first = Presence(metadata, clock, "keys/x", b"first", TTL_SECONDS, compare=(same,))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.run)
                await first.announced()
                await metadata.txn((), (Delete("things/x"), Put("keys/x", b"another")))
                first.update(b"first again")
                await clock.sleep(3 * TTL_SECONDS)
                found = await metadata.get("keys/x")
                assert found is not None
                assert found.value == b"another"
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", work)

    simulate(1, scenario)
