"""All copies of a ledger, read for an audit (numbers: invariants of `copy_cursor`)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing

import pytest
import trio
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import Bookies
from gnomon.bookie.copies import copy_cursor
from gnomon.bookie.copies.compared_copies import ComparedEntry
from gnomon.bookie.copies.copies_at_bookies import AuditedLedger, copies_at_bookies, durable_entry, stretches
from gnomon.bookie.copies.copy_cursor import SilentBookies
from gnomon.bookie.ids import BookieId, EntryId, SessionId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, compare_copies
from gnomon.bookie.record import Fragment, LedgerRecord
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster


def audited(ledger: Ledger) -> AuditedLedger:
    return AuditedLedger(ledger.name, ledger.id, ledger.record)


async def read(
    bookies: Bookies, ledger: Ledger, silent: SilentBookies, only: Collection[BookieId] | None = None
) -> list[ComparedEntry]:
    """Every entry of a ledger after the comparison of its copies."""
    found: list[ComparedEntry] = []
    runs = copies_at_bookies(bookies, silent, audited(ledger), ledger.start_entry, ledger.last_add_confirmed, only)
    async with aclosing(runs):
        async for run in runs:
            found += [compare_copies(*each) for each in run]
    return found


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(4, 2, 2), Quorum(4, 3, 2)])
@pytest.mark.parametrize("run_entries", [3, 512])
def test_each_bookie_of_a_write_set_is_asked_for_its_copy(
    quorum: Quorum, run_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # 1
    monkeypatch.setattr(copy_cursor, "RUN_ENTRIES", run_entries)

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("striped", quorum)
        await fill(ledger, 40)
        await ledger.seal()
        found = await read(client.bookies, ledger, SilentBookies())
        assert [each.entry for each in found] == list(range(40))
        for each in found:
            names = [ledger.record.fragments[0].bookies[index] for index in quorum.write_set(each.entry)]
            assert (list(each.asked), dict(each.faults)) == (names, {})
            assert each.payload == b"entry %d" % each.entry

    with_cluster(work)


def test_a_run_has_few_bytes_and_a_large_entry_has_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:  # 3
    monkeypatch.setattr(copy_cursor, "RUN_BYTES", 1000)

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("large", Quorum(3, 3, 2))
        for size in (300, 300, 300, 5000, 300):
            await ledger.add([bytes(size)])
        await ledger.seal()
        runs = copies_at_bookies(client.bookies, SilentBookies(), audited(ledger), EntryId(0), EntryId(4))
        async with aclosing(runs):
            assert [[entry for entry, _ in run] async for run in runs] == [[0, 1, 2], [3], [4]]

    with_cluster(work)


def test_a_changed_ensemble_is_asked_by_fragment() -> None:  # 1
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("changed", Quorum(3, 3, 2))
        await fill(ledger, 5)
        lost = ledger.record.fragments[0].bookies[0]
        cluster.bookies[lost].kill()
        await fill(ledger, 5)
        await client.bookies.clock.sleep(10.0)
        await fill(ledger, 5)
        await ledger.seal()
        assert len(ledger.record.fragments) == 2
        silent = SilentBookies()
        found = await read(client.bookies, ledger, silent)
        assert set(silent.reasons) == {lost}
        assert silent.unread == {lost: {"changed"}}
        assert [each.entry for each in found] == list(range(15))
        assert all(not each.faults for each in found)
        assert {len(each.asked) for each in found} == {2, 3}

    with_cluster(work)


def test_a_silent_bookie_is_not_asked_again() -> None:  # 2
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 3, 2))
        await fill(ledger, 5)
        await ledger.seal()
        lost = ledger.record.fragments[0].bookies[0]
        cluster.bookies[lost].power_off()
        silent = SilentBookies()
        await read(client.bookies, ledger, silent)
        started = trio.current_time()
        assert len(await read(client.bookies, ledger, silent)) == 5
        assert trio.current_time() - started < 0.5
        assert await read(client.bookies, ledger, silent, only=[lost]) == []

    with_cluster(work)


def test_a_bookie_that_answers_the_second_time_is_not_silent() -> None:  # 2
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 3, 2))
        await fill(ledger, 5)
        await ledger.seal()
        machine = cluster.bookies[ledger.record.fragments[0].bookies[0]]
        machine.kill()
        machine.start()
        silent = SilentBookies()
        assert all(len(each.asked) == 3 for each in await read(client.bookies, ledger, silent))
        assert silent.reasons == {}

    with_cluster(work)


def test_the_last_durable_entry_comes_from_the_bookies_or_the_record_of_a_sealed_ledger() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 3, 2))
        await fill(ledger, 5)
        await client.bookies.clock.sleep(1.0)
        silent = SilentBookies()
        assert await durable_entry(client.bookies, silent, audited(ledger)) == 4
        await ledger.seal()
        for machine in cluster.bookies.values():
            machine.power_off()
        assert await durable_entry(client.bookies, silent, audited(ledger)) == 4
        assert silent.reasons == {}

    with_cluster(work)


def test_stretches_end_where_the_next_fragment_begins() -> None:
    bookies = (BookieId("b1"),)
    fragments = [Fragment(EntryId(first), SessionId(1), bookies) for first in (0, 4, 9)]
    record = LedgerRecord(Quorum(), tuple(fragments))
    assert list(stretches(record, EntryId(2), EntryId(5))) == [(fragments[0], 2, 3), (fragments[1], 4, 5)]
    assert list(stretches(record, EntryId(9), EntryId(20))) == [(fragments[2], 9, 20)]
    assert list(stretches(record, EntryId(5), EntryId(4))) == []
