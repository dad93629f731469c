"""Clients with outdated state: the bookies that they must not name, and the changes that they wait for."""

from __future__ import annotations

import pytest
import trio
from audits import WIDE, auditor_of, beside_a_ledger
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.errors import LedgerFenced
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import Quorum, list_ledgers
from gnomon.bookie.record import decode_record, ledger_key
from gnomon.bookie.registration import DRAINING
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.metadata.client import Put
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata


async def dismissed(client: LedgerClient, cluster: LedgerCluster, bookie: BookieId, patch: pytest.MonkeyPatch) -> None:
    """Drains and dismisses a bookie; from here on the client receives no changes of the bookies."""
    patch.setattr(client.bookies, "_change", lambda *_: None)

    async def drain(other: LedgerClient) -> None:
        await other.metadata.txn((), (Put(f"{DRAINING}{bookie}", b""),))
        auditor = auditor_of(other, AuditSettings())
        while auditor.totals.bookies_drained == 0:
            await other.world.clock.sleep(0.5)
            await auditor.audit()

    await cluster.run_client("auditor", drain)


def test_a_writer_with_outdated_membership_does_not_name_a_dismissed_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock = client.world.clock
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        left = ledger.record.bookies[0]
        cluster.bookies[left].kill()
        while left in ledger.record.fragments[-1].bookies:
            await fill(ledger, 1)
            await clock.sleep(0.2)
        cluster.bookies[left].start()
        await clock.sleep(10)
        await dismissed(client, cluster, left, monkeypatch)
        assert left in ledger.record.bookies
        others = ledger.record.fragments[-1].bookies
        with pytest.raises(LedgerFenced):
            await ledger.change_ensemble(ledger.next_entry, (others[0], left, others[2]))
        stored = await client.metadata.get(ledger_key("ledger"))
        assert stored is not None
        assert left not in decode_record(stored.value).bookies

    with_cluster(work, bookies=5)


def test_a_roll_with_outdated_membership_does_not_name_a_dismissed_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger, spare = await beside_a_ledger(client)
        await fill(ledger, 5)
        await dismissed(client, cluster, spare, monkeypatch)
        assert spare in client.bookies.available()
        with pytest.raises(LedgerFenced):
            await ledger.roll("next", properties={}, quorum=Quorum(4, 3, 2))
        ((name, record),) = await list_ledgers(client.metadata)
        assert (name, record.sealed) == ("ledger", False)

    with_cluster(work)


def test_a_reader_whose_record_is_older_than_the_history_waits_without_polling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        metadata = client.metadata
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 3)
        reader = await client.follow("ledger")
        for number in range(20):
            await metadata.txn((), (Put(f"other/{number}", b""),))
        await metadata.compact((await metadata.range("other/")).revision)
        counting = CountingMetadata(metadata)
        monkeypatch.setattr(reader, "_metadata", counting)
        with counting.measure() as cost, trio.move_on_after(10):
            await reader.wait_for_lac(EntryId(3))
        assert cost.reads + cost.writes <= 4
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill, ledger, 1)
            await reader.wait_for_lac(EntryId(3))

    with_cluster(work, bookies=3)
