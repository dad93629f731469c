"""The addresses of live bookies, for readers without a connection to the metadata service."""

from __future__ import annotations

from with_cluster import with_cluster

from gnomon.bookie.ids import BookieId
from gnomon.bookie.ledgers.addresses import live_addresses
from gnomon.bookie.registration import BOOKIES, COOKIES, BookieRegistration
from gnomon.metadata.client import Put
from gnomon.testing.storms.ledgers.ledger_cluster import BOOKIE_PORT, LedgerClient, LedgerCluster


def test_live_bookies_are_named_with_their_disks_in_the_order_that_was_asked_for() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        first, second, third, fourth = cluster.names
        cluster.bookies[second].kill()
        await client.world.clock.sleep(60)
        await client.metadata.txn((), (Put(f"{BOOKIES}{fourth}", b"\xc0"),))
        found = await live_addresses(client.metadata, [third, second, BookieId("unknown"), fourth, first])
        assert [(each.name, each.host, each.port) for each in found] == [
            (third, third, BOOKIE_PORT),
            (first, first, BOOKIE_PORT),
        ]
        for each in found:
            cookie = await client.metadata.get(f"{COOKIES}{each.name}")
            registration = await client.metadata.get(f"{BOOKIES}{each.name}")
            assert cookie is not None
            assert registration is not None
            assert each.disk == cookie.create_revision == BookieRegistration.decode(registration.value).disk
        assert await live_addresses(client.metadata, []) == []

    with_cluster(work)
