"""Reports of missing copies: who writes one, and how long it stays, on the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from audits import WIDE, auditor_of, beside_a_ledger, copies_of, reported, settled, store
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import Bookie, StoreError, known_bookie
from gnomon.bookie.errors import Fenced
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers import claim as claims
from gnomon.bookie.ledgers.catalog import Quorum
from gnomon.bookie.missing_report import missing_report
from gnomon.metadata.client import MetadataUnavailable
from gnomon.runtime.world import Unreachable
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


class Held:
    """Keeps the adds to one bookie back, to answer them later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bookie: Bookie) -> None:
        self.calls: list[tuple[EntryId, Callable[[EntryId, StoreError], None]]] = []
        monkeypatch.setattr(bookie, "add", self._add)

    def _add(self, _ledger: LedgerId, entry: EntryId, *rest: Any) -> None:
        self.calls.append((entry, rest[-1]))

    def fail(self, error: StoreError) -> None:
        """Answers the oldest add."""
        entry, answered = self.calls.pop(0)
        answered(entry, error)


FENCED = Fenced(LedgerId(1), SessionId(1), SessionId(2))


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_writer_reports_a_confirmed_entry_that_a_fenced_bookie_refuses(
    confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        silent = ledger.record.bookies[2:] if confirmed else ledger.record.bookies
        held = [Held(monkeypatch, known_bookie(client.bookies, name)) for name in silent]
        if confirmed:
            await fill(ledger, 1)
        else:
            ledger.append([b"entry"], lambda _entry, _error: None)
        held[-1].fail(FENCED)
        await client.world.clock.sleep(1)
        assert await reported(client) == ["ledger"] * confirmed, "a claim decides whether an unconfirmed entry exists"

    with_cluster(work, bookies=3)


@pytest.mark.parametrize("end", ["fenced", "sealed"])
def test_a_writer_reports_a_confirmed_entry_that_a_bookie_fails_to_store_after_the_end(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        held = Held(monkeypatch, known_bookie(client.bookies, ledger.record.bookies[2]))
        await fill(ledger, 2)
        if end == "sealed":
            await ledger.seal()
            await settled(client)
        else:
            first, *_ = (Held(monkeypatch, known_bookie(client.bookies, name)) for name in ledger.record.bookies[:2])
            ledger.append([b"entry"], lambda _entry, _error: None)
            first.fail(FENCED)
        await client.world.clock.sleep(1)
        assert await reported(client) == []
        held.fail(Unreachable("bookie-2 went away"))
        await client.world.clock.sleep(1)
        assert await reported(client) == ["ledger"] * (end == "fenced"), "a seal has reported it"

    with_cluster(work, bookies=3)


def test_a_writer_that_ends_before_the_metadata_answers_reports_its_lost_bookie_once_they_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        names = ledger.record.bookies
        lost = Held(monkeypatch, known_bookie(client.bookies, names[2]))
        await fill(ledger, 1)
        report, answers = ledger.report_missing, False

        async def report_missing() -> None:
            if not answers:
                raise MetadataUnavailable("no answer")
            await report()

        monkeypatch.setattr(ledger, "report_missing", report_missing)
        lost.fail(Unreachable("bookie-2 went away"))
        refusing = Held(monkeypatch, known_bookie(client.bookies, names[0]))
        ledger.append([b"entry"], lambda _entry, _error: None)
        refusing.fail(FENCED)
        await client.world.clock.sleep(5)
        assert await reported(client) == []
        answers = True
        await client.world.clock.sleep(5)
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
