"""Reports of missing copies: who writes one, and how long it stays, on the simulated network."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from audits import WIDE, auditor_of, beside_a_ledger, copies_of, reported, settled, store
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import known_bookie
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers import claim as claims
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.missing_report import missing_report
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster


@pytest.mark.parametrize(
    ("held", "lacks"),
    [
        ({0: range(4), 1: range(4), 2: range(4)}, False),
        ({0: range(4), 1: range(4), 2: range(3)}, True),
        ({0: range(4), 1: range(4), 2: range(1, 4)}, True),
        ({0: range(4), 1: range(4), 2: range(0, 4, 3)}, True),
    ],
    ids=["nothing", "the newest entry", "the first entry", "entries within"],
)
def test_a_claim_reports_a_ledger_of_which_a_bookie_lacks_any_entry(held: Mapping[int, range], lacks: bool) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        await store(client, await client.create("ledger", WIDE), held, confirmed=3)
        await client.claim("ledger")
        assert await reported(client) == ["ledger"] * lacks

    with_cluster(work, bookies=3)


def test_a_claim_leaves_a_long_fragment_to_the_auditor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LOOK_ENTRIES_MAX", 3)

    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        for name, count, quorum in (("short", 3, WIDE), ("long", 4, WIDE), ("one copy each", 4, Quorum(3, 1, 1))):
            await fill(await client.create(name, quorum), count)
            await client.claim(name)
        assert await reported(client) == ["long"]

    with_cluster(work, bookies=3)


def test_a_claim_reports_a_ledger_if_a_bookie_does_not_list_its_entries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        await fill(await client.create("ledger", WIDE), 4)

        async def silent(*_asked: object) -> None:
            await client.world.clock.sleep(3600)

        monkeypatch.setattr(known_bookie(client.bookies, BookieId("bookie-2")), "present", silent)
        began = client.world.clock.monotonic()
        await client.claim("ledger")
        assert client.world.clock.monotonic() - began < 1
        assert await reported(client) == ["ledger"]

    with_cluster(work, bookies=3)


def test_a_change_of_the_ensemble_reports_the_fragment_that_it_closes() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger, spare = await beside_a_ledger(client)
        _, *others = ledger.record.bookies
        await ledger.change_ensemble(EntryId(0), (spare, *others))
        assert await reported(client) == [], "a fragment without entries lacks none"
        await fill(ledger, 2)
        await ledger.change_ensemble(EntryId(2), (spare, *reversed(others)))
        assert await reported(client) == ["ledger"]

    with_cluster(work)


def test_copies_that_a_replaced_bookie_missed_after_a_report_was_settled_are_repaired() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger, spare = await beside_a_ledger(client)
        lost, *others = ledger.record.bookies
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        await settled(client)
        await store(client, ledger, {1: range(4), 2: range(4)}, confirmed=3)
        await ledger.change_ensemble(EntryId(4), (spare, *others))
        await settled(client)
        assert {entry: len(names) for entry, names in (await copies_of(client, "ledger")).items()} == dict.fromkeys(
            range(4), 3
        )
        assert lost in ledger.record.fragments[0].bookies

    with_cluster(work)


@pytest.mark.parametrize("end", ["told", "claimed", "sealed"])
def test_a_report_stays_while_a_bookie_lacks_an_entry_above_the_last_add_confirmed_that_another_has(end: str) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        await store(client, ledger, {0: range(4), 1: range(4), 2: range(0, 4, 3)}, confirmed=1)
        auditor = auditor_of(client)
        for _ in range(3):
            await auditor.audit()
            assert await reported(client) == ["ledger"]
        name = ledger.record.bookies[2]
        bookie = known_bookie(client.bookies, name)
        assert await bookie.present(ledger.id, EntryId(0), EntryId(9), ledger.record.session) == [(0, 1), (3, 3)]
        if end == "told":
            known_bookie(client.bookies, ledger.record.bookies[0]).confirm(ledger.id, ledger.record.session, EntryId(2))
            await client.world.clock.sleep(1)
        else:
            claimed = await client.claim("ledger")
            if end == "sealed":
                await claimed.seal()
        await auditor.audit()
        assert await reported(client) == []
        assert auditor.totals.reports_settled == 1
        assert await bookie.present(ledger.id, EntryId(0), EntryId(9), ledger.record.session) == [(0, 3)]

    with_cluster(work, bookies=3)


def test_entries_that_are_whole_are_not_looked_at_again_while_a_report_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        await store(client, ledger, {0: range(9), 1: range(9), 2: range(5)}, confirmed=6)
        await client.world.clock.sleep(1)
        bookie = known_bookie(client.bookies, ledger.record.bookies[2])
        present, asked = bookie.present, []

        async def noted(
            at: LedgerId, first: EntryId, last: EntryId, session: SessionId
        ) -> list[tuple[EntryId, EntryId]]:
            asked.append(first)
            return await present(at, first, last, session)

        monkeypatch.setattr(bookie, "present", noted)
        auditor = auditor_of(client)
        await auditor.audit()
        assert min(asked) == 0
        asked.clear()
        await auditor.audit()
        assert min(asked) == 7
        assert await reported(client) == ["ledger"]
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        asked.clear()
        await auditor.audit()
        assert min(asked) == 0, "the ledger was reported again"

    with_cluster(work, bookies=3)


def test_a_report_of_a_ledger_with_entries_in_flight_is_settled_once_they_have_arrived() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        auditor, rounds = auditor_of(client), 0
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(fill, ledger, 1_000_000)
            with trio.fail_after(5):
                while await reported(client):
                    await auditor.audit()
                    rounds += 1
            assert 0 < ledger.last_add_confirmed < ledger.next_entry - 1
            nursery.cancel_scope.cancel()
        assert rounds <= 3

    with_cluster(work, bookies=3)
