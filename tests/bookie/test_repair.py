"""Copying the entries of lost and incomplete bookies, on the simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from audits import WIDE, audited, auditor_of, beside_a_ledger, copies_of, named, rid_of, running
from numbered_entries import contents, fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import known_bookie
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, list_ledgers
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import ledger_key
from gnomon.bookie.repair.auditor import Auditor, AuditSettings
from gnomon.bookie.repair.repair import LedgerRepair, Throttle
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

Change = Callable[[LedgerClient, Ledger], Awaitable[None]]


def test_entries_of_a_lost_bookie_are_copied_to_others_also_if_no_writer_has_the_ledger_open() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        async def write(writer: LedgerClient) -> BookieId:
            for number in range(4):
                ledger = await writer.create(f"ledger-{number}", WIDE)
                await fill(ledger, 20)
                if number % 2:
                    await ledger.seal()
            return ledger.record.bookies[0]

        lost = await cluster.run_client("writer", write)
        cluster.bookies[lost].power_off()
        auditor = await rid_of(client, lost)
        assert auditor.totals.fragments_moved >= 1
        assert auditor.copied_bytes > 0
        for number in range(4):
            copies = await copies_of(client, f"ledger-{number}")
            assert len(copies) == 20
            assert all(len(there) == 3 for there in copies.values())

    with_cluster(work, bookies=5)


@pytest.mark.parametrize("quorum", [WIDE, Quorum(4, 2, 2)])
def test_a_repair_reads_many_entries_per_call_and_does_not_ask_the_lost_bookie(quorum: Quorum) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", quorum)
        await fill(ledger, 200)
        await ledger.seal()
        lost = ledger.record.bookies[0]
        cluster.bookies[lost].power_off()
        asked: list[tuple[str, BookieId]] = []

        def watched(name: BookieId, method: str) -> None:
            bookie = client.bookies.get(name)
            read = getattr(bookie, method)

            def noted(*args: Any) -> Any:
                asked.append((method, name))
                return read(*args)

            setattr(bookie, method, noted)

        for name in client.bookies.known():
            watched(name, "read")
            watched(name, "read_range")
        auditor = await rid_of(client, lost)
        assert auditor.copied_bytes > 0
        assert {method for method, _ in asked} == {"read_range"}
        assert lost not in {name for _, name in asked}
        assert len(asked) <= quorum.ensemble_size
        copies = await copies_of(client, "ledger")
        assert len(copies) == 200
        assert all(len(there) == quorum.write_quorum for there in copies.values())

    with_cluster(work, bookies=5)


@pytest.mark.parametrize("quorum", [WIDE, Quorum(4, 2, 2)])
def test_a_repair_does_not_take_orphans_at_the_new_bookie_for_copies(quorum: Quorum) -> None:
    """The spare bookie was not in the ensemble when the bounds of its orphans were dropped; now it replaces another."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        written: list[bytes] = []

        async def write(writer: LedgerClient) -> tuple[BookieId, ...]:
            ledger = await writer.create("ledger", quorum)
            await fill(ledger, 10)
            names = ledger.record.bookies
            (spare,) = set(writer.bookies.known()) - {*names}
            session = ledger.record.session
            orphans = [
                (entry, encode_entry(ledger.id, entry, session, EntryId(9), 0, [b"orphan"]))
                for entry in map(EntryId, range(10, 20))
            ]
            await known_bookie(writer.bookies, spare).put_copies(ledger.id, session, orphans)
            await fill(await writer.claim("ledger"), 10)
            ledger = await writer.claim("ledger")
            assert ledger.record.fragment_of(EntryId(15)).session == session
            written.extend(await contents(ledger))
            return names

        lost = (await cluster.run_client("writer", write))[2]
        cluster.bookies[lost].power_off()
        await rid_of(client, lost)
        ledger = await client.follow("ledger")
        for first in map(EntryId, range(20)):
            assert await ledger.read(first, EntryId(19)) == written[first:]

    with_cluster(work, bookies=quorum.ensemble_size + 1)


def test_a_bookie_that_missed_entries_gets_them_when_it_is_back() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 5)
        cluster.bookies[BookieId("bookie-3")].power_off()
        await fill(ledger, 20)
        cluster.bookies[BookieId("bookie-3")].start()
        await client.world.clock.sleep(10)
        await fill(ledger, 5)
        assert (await client.metadata.range(MISSING)).items

        async def settled(_auditor: Auditor) -> bool:
            return not (await client.metadata.range(MISSING)).items

        await audited(client, settled)
        copies = await copies_of(client, "ledger")
        assert len(copies) == 30
        assert all(len(there) == 3 for there in copies.values())

    with_cluster(work, bookies=3, seed=2)


async def moved_while(client: LedgerClient, lost: BookieId, meanwhile: Callable[[], Awaitable[object]]) -> bool:
    """Whether a ledger on three of four bookies moves away from `lost` although `meanwhile` runs during the copy."""
    stored = await client.metadata.get(ledger_key("ledger"))
    assert stored is not None
    repair = LedgerRepair(client.metadata, client.bookies, stored, "ledger", Throttle(client.world.clock, 1e9))
    (spare,) = {*client.bookies.alive()} - {*repair.record.fragments[0].bookies}
    bookie = known_bookie(client.bookies, spare)
    with pytest.MonkeyPatch.context() as patch:

        async def put_copies(*copies: Any) -> None:
            patch.undo()
            await bookie.put_copies(*copies)
            await meanwhile()

        patch.setattr(bookie, "put_copies", put_copies)
        return await repair.move_from(lost)


async def update(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.update({"another": "value"})


async def trim_some(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.shrink(EntryId(5))


async def trim_the_fragment(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.shrink(EntryId(15))


async def seal(_client: LedgerClient, ledger: Ledger) -> None:
    await ledger.seal()


async def claim(client: LedgerClient, _ledger: Ledger) -> None:
    await client.claim("ledger")


@pytest.mark.parametrize("change", [update, trim_some, seal, claim])
def test_a_change_of_the_record_during_a_repair_needs_no_second_copy(change: Change) -> None:
    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        first, spare = await beside_a_ledger(client)
        await fill(first, 10)
        lost, *others = first.record.bookies
        await first.change_ensemble(EntryId(10), (spare, *others))
        ledger = await client.claim("ledger")
        await fill(ledger, 10)
        assert await moved_while(client, lost, lambda: change(client, ledger))
        assert not await named(client, lost)
        copies = await copies_of(client, "ledger")
        assert [*copies] == [*range(5 if change is trim_some else 0, 20)]
        assert all(len(there) == 3 for there in copies.values())

    with_cluster(work)


def test_a_ledger_is_repaired_although_its_record_changes_during_each_copy() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        clock = client.world.clock
        ledger = await client.create("ledger", WIDE)
        lost = ledger.record.bookies[0]
        for _ in range(60):
            await ledger.add([bytes(50_000)])
        cluster.bookies[lost].kill()
        while lost in ledger.record.fragments[-1].bookies:
            await fill(ledger, 1)
            await clock.sleep(0.2)
        await clock.sleep(8)
        slow = AuditSettings(grace_seconds=1, interval_seconds=1, repair_bytes_per_second=1_000_000)
        auditor = auditor_of(client, slow)
        async with running(auditor):
            for number in range(10):  # a copy takes longer than the time between two changes
                await ledger.update({"number": number})
                await clock.sleep(2)
        assert lost not in ledger.record.bookies
        assert ledger.record.properties == {"number": 9}
        assert auditor.copied_bytes < 4_000_000

    with_cluster(work)


@pytest.mark.parametrize(("change", "fragments"), [(trim_the_fragment, [10]), (claim, [0, 20])])
def test_a_repair_does_not_move_a_fragment_that_no_longer_equals_the_copied_one(
    change: Change, fragments: list[int]
) -> None:
    """The claim drops the bound between two fragments: the first one then has more entries than were copied."""

    async def work(client: LedgerClient, _cluster: LedgerCluster) -> None:
        first, spare = await beside_a_ledger(client)
        await fill(first, 10)
        ledger = await client.claim("ledger")
        await fill(ledger, 10)
        await client.world.clock.sleep(1)  # every bookie has removed orphans by then
        assert len(ledger.record.fragments) == 2
        assert not await moved_while(client, first.record.bookies[0], lambda: change(client, ledger))
        assert not await named(client, spare)
        ((_, record),) = await list_ledgers(client.metadata)
        assert [fragment.first_entry for fragment in record.fragments] == fragments

    with_cluster(work)


def test_an_entry_is_listed_once_no_power_loss_can_take_it() -> None:
    """The entry store, invariant 11: an auditor deleted a report because of entries that a bookie then lost."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        slow = ledger.record.bookies[0]
        conditions = cluster.bookies[slow].disk.conditions
        durable_at = client.world.clock.monotonic() + 2.0
        conditions.visible_early_rate, conditions.still_until = 1.0, durable_at
        await fill(ledger, 1)
        bookie = known_bookie(client.bookies, slow)
        assert (await bookie.read(ledger.id, EntryId(0), SessionId(0))).session == ledger.session
        assert client.world.clock.monotonic() < durable_at, "readers see the entry before"
        assert await bookie.present(ledger.id, EntryId(0), EntryId(0), SessionId(0)) == [(0, 0)]
        assert client.world.clock.monotonic() >= durable_at

    with_cluster(work)
