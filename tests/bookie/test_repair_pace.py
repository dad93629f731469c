"""The pace of repair on the simulated network: bookies that do not answer hold up no round, and entries are listed no
faster than the limit."""

from __future__ import annotations

from itertools import accumulate

import pytest
from audits import WIDE, auditor_of, copies_of, reported, settled, store
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import known_bookie
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers import claim as claims
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.missing_report import missing_report
from gnomon.bookie.remote import CALL_SECONDS
from gnomon.bookie.repair.auditor import AuditSettings
from gnomon.bookie.repair.repair import LISTED_ENTRY_BYTES
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

PATIENT = AuditSettings(grace_seconds=1e6)


@pytest.mark.parametrize(("lease_ended", "waits"), [(True, 0), (False, 1)], ids=["away", "silent"])
def test_reports_of_ledgers_whose_bookie_is_away_cost_a_round_at_most_one_wait_of_a_call(
    lease_ended: bool, waits: int
) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock, lost = client.world.clock, BookieId("bookie-2")
        others = await client.create("others", Quorum(2, 2, 2))
        while lost in others.record.bookies:
            others = await client.create(f"{others.name}s", Quorum(2, 2, 2))
        await store(client, others, {0: range(4), 1: range(1)}, confirmed=3)
        waiting = [await client.create(f"waiting-{number}", WIDE) for number in range(100)]
        cluster.bookies[lost].power_off()
        if lease_ended:
            await clock.sleep(60)
        for ledger in (*waiting, others):
            await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        assert (lost in client.bookies.alive()) != lease_ended
        began = clock.monotonic()
        await auditor_of(client, PATIENT).audit()
        assert waits * CALL_SECONDS <= clock.monotonic() - began < waits * CALL_SECONDS + 2
        assert sorted(await reported(client)) == sorted(ledger.name for ledger in waiting)
        assert [len(names) for names in (await copies_of(client, others.name)).values()] == [2] * 4

    with_cluster(work, bookies=3)


def test_a_ledger_is_repaired_at_its_other_bookies_while_one_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await store(client, ledger, {0: range(9), 1: range(3)}, confirmed=8)
        first, second, lost = ledger.record.bookies
        cluster.bookies[lost].power_off()
        await client.world.clock.sleep(60)
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        auditor, bookie = auditor_of(client, PATIENT), known_bookie(client.bookies, second)
        await auditor.audit()
        assert await bookie.present(ledger.id, EntryId(0), EntryId(9), ledger.record.session) == [(0, 8)]

        async def asked_again(*_asked: object) -> None:
            raise AssertionError("its entries were looked at in the round before")

        for name in (first, second):
            monkeypatch.setattr(known_bookie(client.bookies, name), "present", asked_again)
        await auditor.audit()
        monkeypatch.undo()
        assert await reported(client) == ["ledger"]
        cluster.bookies[lost].start()
        await settled(client)
        assert [len(names) for names in (await copies_of(client, "ledger")).values()] == [3] * 9

    with_cluster(work, bookies=3)


def test_claims_of_many_long_ledgers_have_their_entries_listed_no_faster_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "LOOK_ENTRIES_MAX", 3)
    entries_per_second = 50

    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        clock = client.world.clock
        for number in range(10):
            await fill(await client.create(f"ledger-{number}", WIDE), 20)
            await client.claim(f"ledger-{number}")
        assert len(await reported(client)) == 10
        listed: list[tuple[float, int]] = []
        for name in client.bookies.alive():
            bookie = known_bookie(client.bookies, name)

            async def noted(
                ledger: LedgerId, first: EntryId, last: EntryId, session: SessionId, present=bookie.present
            ) -> list[tuple[EntryId, EntryId]]:
                runs = await present(ledger, first, last, session)
                listed.append((clock.monotonic(), sum(end - start + 1 for start, end in runs)))
                return runs

            monkeypatch.setattr(bookie, "present", noted)
        began = clock.monotonic()
        auditor = auditor_of(
            client, AuditSettings(repair_bytes_per_second=float(entries_per_second * LISTED_ENTRY_BYTES))
        )
        await auditor.audit()
        assert sum(count for _, count in listed) == 10 * 3 * 20
        one_list = 20
        for (at, _), so_far in zip(listed, accumulate(count for _, count in listed), strict=True):
            assert so_far <= entries_per_second * (at - began) + one_list
        assert auditor.copied_bytes == 0
        assert await reported(client) == []

    with_cluster(work, bookies=3)
