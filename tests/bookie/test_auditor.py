"""Lost, drained and incomplete bookies, on the simulated network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from audits import EAGER, WIDE, audited, auditor_of, beside_a_ledger, copies_of, named, running
from numbered_entries import fill
from turns import turns_during
from with_cluster import with_cluster

from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import ANY_SESSION, BookieId, EntryId, SessionId
from gnomon.bookie.ledgers.catalog import Quorum, create_ledger
from gnomon.bookie.missing_report import MISSING, missing_report
from gnomon.bookie.node import FOLDER
from gnomon.bookie.record import ledger_key
from gnomon.bookie.registration import BOOKIES, COOKIES, DRAINING
from gnomon.bookie.repair.auditor import ELECTION, Auditor, AuditSettings
from gnomon.bookie.repair.repair import LedgerRepair, Throttle
from gnomon.bookie.storage.entry_store import ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.metadata.client import Compare, Delete, MetadataUnavailable, Operation, Put, TxnOutcome
from gnomon.runtime.world import WorldError
from gnomon.testing.simulation.simulation import Simulation, simulate
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster
from gnomon.testing.storms.metadata.counting_metadata import CountingMetadata


def test_a_drained_bookie_leaves_every_record_and_then_the_cluster() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        leaving = BookieId("bookie-1")
        for number in range(3):
            await fill(await client.create(f"ledger-{number}", WIDE), 10)
        cookie = await client.metadata.get(COOKIES + leaving)
        await client.metadata.txn((), (Put(DRAINING + leaving, b""),))

        async def dismissed(_auditor: Auditor) -> bool:
            return await client.metadata.get(COOKIES + leaving) != cookie  # a bookie with an empty disk may replace it

        await audited(client, dismissed)
        assert not await named(client, leaving)
        for number in range(3):
            ledger = await client.claim(f"ledger-{number}")
            await fill(ledger, 1)
            assert len(await ledger.read(EntryId(0), EntryId(10))) == 11

    with_cluster(work, seed=3)


def test_one_of_two_auditors_is_elected_and_the_other_takes_over_when_the_first_dies() -> None:
    async def scenario(simulation: Simulation) -> None:
        cluster = LedgerCluster(simulation, bookies=3)
        await cluster.start()
        auditors: dict[str, Auditor] = {}

        async def candidate(client: LedgerClient) -> None:
            name = f"candidate-{len(auditors)}"
            auditors[name] = Auditor(client.metadata, client.bookies, EAGER, name, client.world.logger)
            await auditors[name].run()

        first = cluster.start_client("first", candidate)
        await simulation.sleep(5)
        cluster.start_client("second", candidate)
        await simulation.sleep(5)
        assert [auditor.elected for auditor in auditors.values()] == [True, False]
        first.power_off()
        await simulation.sleep(10)
        assert auditors["candidate-1"].elected

    simulate(4, scenario)


def test_a_sealed_ledger_is_reported_if_its_writer_has_missed_a_bookie_since_the_last_report_was_settled() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        away = cluster.simulation.machine("bookie-2")
        away.kill()
        await fill(ledger, 5)
        while not (reported := (await client.metadata.range(MISSING)).items):
            await client.world.clock.sleep(0.1)
        await client.metadata.txn((), (Delete(reported[0].key),))  # an auditor has settled it
        await fill(ledger, 1)
        await ledger.seal()
        assert [item.value for item in (await client.metadata.range(MISSING)).items] == [b"ledger"]
        whole = await client.create("whole", Quorum(2, 2, 2))
        await fill(whole, 5)
        await whole.seal()
        assert len((await client.metadata.range(MISSING)).items) == 1

    with_cluster(work, bookies=3)


def test_a_sealed_ledger_is_reported_if_its_writer_has_used_a_bookie_again_that_missed_entries() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        away = cluster.simulation.machine("bookie-2")
        away.kill()
        await fill(ledger, 5)
        away.start()
        await client.world.clock.sleep(20)
        for item in (await client.metadata.range(MISSING)).items:
            await client.metadata.txn((), (Delete(item.key),))  # settled by an auditor that knew of fewer entries
        await fill(ledger, 1)
        await client.world.clock.sleep(5)  # all bookies have answered
        assert not (await client.metadata.range(MISSING)).items
        await ledger.seal()
        assert [item.value for item in (await client.metadata.range(MISSING)).items] == [b"ledger"]

    with_cluster(work, bookies=3)


def test_the_bookies_know_the_last_add_confirmed_once_a_lost_bookie_is_used_again() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await create_ledger(client.metadata, client.bookies, "ledger", quorum=WIDE, followed=False)
        away = cluster.simulation.machine("bookie-2")
        away.kill()
        await fill(ledger, 5)
        away.start()
        await client.world.clock.sleep(20)
        present = [client.bookies.get(BookieId(f"bookie-{number}")) for number in (1, 3)]
        known = [await bookie.last_add_confirmed(ledger.id) for bookie in present if bookie is not None]
        assert [confirmed.entry for confirmed in known] == [4, 4]

    with_cluster(work, bookies=3)


def test_ledgers_with_missing_copies_are_counted_until_they_are_repaired() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        away = cluster.simulation.machine("bookie-2")
        away.kill()
        await fill(ledger, 5)
        seen: list[int] = []

        async def is_back(auditor: Auditor) -> bool:
            if auditor.elected:
                seen.append(auditor.reports_open)
            if len(seen) == 20:
                away.start()
            return len(seen) > 20 and auditor.reports_open == 0

        await audited(client, is_back)
        assert set(seen[2:20]) == {1}
        assert {entry: len(names) for entry, names in (await copies_of(client, "ledger")).items()} == dict.fromkeys(
            range(5), 3
        )

    with_cluster(work, bookies=3)


def test_an_auditor_continues_after_an_unanswered_metadata_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await client.metadata.txn((), (missing_report(ledger.id, ledger.name),))
        txn, lost = client.metadata.txn, 0

        async def lose_once(compare: Sequence[Compare], then: Sequence[Operation], *rest: Any) -> TxnOutcome:
            nonlocal lost
            if any(isinstance(operation, Delete) for operation in then) and not lost:
                lost += 1
                raise MetadataUnavailable("no answer")
            return await txn(compare, then, *rest)

        monkeypatch.setattr(client.metadata, "txn", lose_once)

        async def settled(auditor: Auditor) -> bool:
            return auditor.totals.reports_settled == 1

        await audited(client, settled)
        assert lost == 1

    with_cluster(work, bookies=3)


def test_a_search_for_the_ledgers_of_a_drained_bookie_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        ledger, spare = await beside_a_ledger(client)
        record = ledger.record.encode()
        await client.metadata.txn((), [Put(ledger_key(f"ledger-{number}"), record) for number in range(100)])
        await client.metadata.txn((), [Put(f"{DRAINING}{spare}", b"")])
        auditor = auditor_of(client)
        monkeypatch.setattr("gnomon.bookie.repair.auditor.RECORDS_PER_TURN", 5)
        assert await turns_during(auditor.audit()) >= 2 * 20
        assert auditor.totals.bookies_drained == 1

    with_cluster(work)


def test_an_absent_bookie_costs_each_audit_one_listing_of_all_ledgers() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        _, spare = await beside_a_ledger(client)
        cluster.bookies[spare].power_off()
        metadata = CountingMetadata(client.metadata)
        auditor = auditor_of(client, metadata=metadata)
        for _ in range(30):
            await client.world.clock.sleep(1)
            with metadata.measure() as cost:
                await auditor.audit()
        assert (cost.reads, cost.writes) == (4, 0), (
            "who is drained, who has an older store, what is reported, and all ledgers"
        )

    with_cluster(work)


def test_an_auditor_ends_and_moves_no_fragment_if_no_bookie_can_replace_the_lost_one() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        cluster.bookies[ledger.record.bookies[0]].kill()
        auditor = auditor_of(client)
        async with running(auditor):
            for _ in range(60):
                await fill(ledger, 1)
                await client.world.clock.sleep(1)
        assert (auditor.totals.fragments_ended, auditor.totals.fragments_moved) == (0, 0)

    with_cluster(work, bookies=3)


def test_an_auditor_does_not_fence_a_writer_that_replaced_the_lost_bookie_during_a_repair() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock = client.world.clock
        large, ledger = await client.create("a", WIDE), await client.create("b", WIDE)
        for _ in range(60):
            await large.add([bytes(50_000)])
        await fill(ledger, 5)
        lost = next(name for name in large.record.bookies if name in ledger.record.bookies)
        await large.seal()
        cluster.bookies[lost].kill()
        await clock.sleep(8)  # without an append, the writer does not notice the loss
        slow = AuditSettings(grace_seconds=1, interval_seconds=1, repair_bytes_per_second=300_000)
        auditor = auditor_of(client, slow)
        await auditor.audit()
        await clock.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.audit)  # the audit copies `a` for ten seconds
            await clock.sleep(2)
            while lost in ledger.record.fragments[-1].bookies:
                await fill(ledger, 1)
                await clock.sleep(0.2)
        await fill(ledger, 1)
        assert auditor.totals.fragments_moved == 2

    with_cluster(work, bookies=5)


def test_a_bookie_that_returned_under_another_auditor_has_its_full_grace_period_again() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock, metadata = client.world.clock, client.metadata
        settings = AuditSettings(grace_seconds=60, interval_seconds=1, lease_seconds=3)
        auditor = auditor_of(client, settings)
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 3)
        machine = cluster.bookies[ledger.record.bookies[0]]
        async with running(auditor):
            await clock.sleep(2)
            machine.kill()
            await clock.sleep(10)
            elected = await metadata.get(ELECTION)
            assert elected is not None
            await metadata.revoke(elected.lease)
            other = await metadata.lease(300.0)
            await metadata.txn((), (Put(ELECTION, b"another", other),))
            await clock.sleep(5)
            machine.start()
            await clock.sleep(100)
            machine.kill()
            await clock.sleep(10)
            await metadata.revoke(other)
            await clock.sleep(30)
            assert auditor.elected
            assert auditor.totals.fragments_ended == 0
            await clock.sleep(60)
            assert auditor.totals.fragments_ended == 1

    with_cluster(work)


def test_an_unreadable_record_stops_no_process_and_keeps_drained_bookies_in_the_cluster() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock, metadata = client.world.clock, client.metadata
        ledger, spare = await beside_a_ledger(client)
        await fill(ledger, 3)
        newer = Put(ledger_key("newer"), b"\x92\x63\x01")
        await metadata.txn((), (newer, Put(f"{MISSING}7", b"newer"), Put(f"{BOOKIES}newer", b"\xc1")))
        await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))
        auditor = auditor_of(client)
        async with running(auditor):
            await clock.sleep(20)
            assert auditor.elected
            assert auditor.totals.bookies_drained == 0
            await fill(ledger, 3)
            await metadata.txn((), (Delete(ledger_key("newer")),))
            await clock.sleep(20)
            assert auditor.totals.bookies_drained == 1
        assert all(cluster.bookies[name].running for name in cluster.names)

    with_cluster(work, bookies=4, garbage_interval_seconds=1)


def test_a_late_auditor_does_not_dismiss_the_next_bookie_of_the_same_name() -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        metadata = client.metadata
        ledger, spare = await beside_a_ledger(client)
        await fill(ledger, 3)
        await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))
        auditor = auditor_of(client)
        naming = auditor._naming

        async def naming_for_long(names: Any) -> Any:
            found = await naming(names)
            await metadata.txn((), (Delete(f"{DRAINING}{spare}"),))  # a part of the dismissal by another auditor
            await metadata.txn((), (Put(f"{DRAINING}{spare}", b""),))  # the next bookie of the name is drained, too
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auditor, "_naming", naming_for_long)
            await auditor.audit()
        assert auditor.totals.bookies_drained == 0
        assert await metadata.get(f"{COOKIES}{spare}") is not None
        await auditor.audit()
        assert auditor.totals.bookies_drained == 1

    with_cluster(work)


def test_a_sealed_ledger_is_repaired_at_a_bookie_that_a_claimer_fenced_before_it_gave_up() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        away = cluster.bookies[BookieId("bookie-2")]
        away.kill()
        await fill(ledger, 5)
        await ledger.seal()
        away.start()
        bookie = client.bookies.get(BookieId("bookie-2"))
        assert bookie is not None
        with trio.fail_after(60):
            while True:
                try:
                    await bookie.fence(ledger.id, SessionId(3))
                    break
                except WorldError:
                    await client.world.clock.sleep(0.5)

        stored = await client.metadata.get(ledger_key("ledger"))
        assert stored is not None
        repair = LedgerRepair(client.metadata, client.bookies, stored, "ledger", Throttle(client.world.clock, math.inf))
        assert await repair.count_missing() == {"bookie-2": 5}

        async def settled(auditor: Auditor) -> bool:
            return auditor.totals.reports_settled == 1

        await audited(client, settled)
        assert await repair.count_missing() == {}
        assert set(map(len, (await copies_of(client, "ledger")).values())) == {3}

    with_cluster(work, bookies=3)


def test_an_entry_that_a_read_finds_damaged_is_copied_again_from_another_bookie() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        name = BookieId("bookie-2")
        machine = cluster.bookies[name]
        machine.disk.flip_bit(cluster.data(name) / FOLDER, ENTRIES, ENTRY_KEY.pack(ledger.id, 3))
        bookie = client.bookies.get(name)
        assert bookie is not None
        with pytest.raises(DigestMismatch):
            await bookie.read(ledger.id, EntryId(3), ANY_SESSION)
        assert await bookie.present(ledger.id, EntryId(0), EntryId(9), ANY_SESSION) == [(0, 2), (4, 4)]

        async def settled(auditor: Auditor) -> bool:
            return auditor.totals.reports_settled == 1

        await audited(client, settled)
        assert (await bookie.read(ledger.id, EntryId(3), ANY_SESSION)).payload == b"entry 3"
        assert await bookie.present(ledger.id, EntryId(0), EntryId(9), ANY_SESSION) == [(0, 4)]

    with_cluster(work, bookies=3)
