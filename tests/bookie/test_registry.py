from __future__ import annotations

import trio

from gnomon.bookie.ids import BookieId
from gnomon.bookie.registry import BOOKIES, DRAINING, RegisteredBookies, Registration
from gnomon.metadata.client import Delete, Put
from gnomon.testing.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.simulation import Simulation, simulate


def test_what_was_missed_in_a_compacted_history_is_read_again() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=1)
        await cluster.start()

        async def follow(client: LedgerClient) -> None:
            metadata = client.metadata
            at = [BookieId(name) for name in ("stays", "goes", "drains", "returns")]
            said = Registration("nowhere", 1, "rack").encode()
            await metadata.txn([], [*(Put(BOOKIES + name, said) for name in at), Put(f"{DRAINING}returns", b"")])
            async with trio.open_nursery() as nursery:
                bookies = RegisteredBookies(client.world, metadata, None, client.world.logger, nursery)
                await bookies.load()
                assert dict(bookies.available()) == {"bookie-1": "", "stays": "rack", "goes": "rack", "drains": "rack"}
                changes = [Delete(f"{BOOKIES}goes"), Delete(f"{DRAINING}returns"), Put(f"{DRAINING}drains", b"")]
                change = await metadata.txn([], [*changes, Put(f"{BOOKIES}new", said)])
                after = await metadata.txn([], [Put("beside", b"")])
                await metadata.compact(after.revision)
                assert change.revision < after.revision
                nursery.start_soon(bookies.run)
                await bookies.changed()
                assert dict(bookies.available()) == {"bookie-1": "", "stays": "rack", "returns": "rack", "new": "rack"}
                assert set(bookies.known()) == {"bookie-1", *at, "new"}, "those that went may still hold entries"
                nursery.cancel_scope.cancel()

        await cluster.run_client("client", follow)

    simulate(1, scenario)
