"""The payload bytes of a run of entries, from the headers of its first and last entry."""

from __future__ import annotations

import pytest
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers import followed_ledger
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, adopt_ledger
from gnomon.bookie.record import ledger_key
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

COUNT = 12
"""The payload of entry n is `entry n`."""


def size(first: int, last: int) -> int:
    return sum(len(b"entry %d" % number) for number in range(first, last + 1))


async def reopened(client: LedgerClient) -> Ledger:
    """A handle of another process, which knows the record alone."""
    stored = await client.metadata.get(ledger_key("ledger"))
    assert stored is not None
    return adopt_ledger(client.metadata, client.bookies, stored)


@pytest.mark.parametrize("sealed", [False, True])
def test_the_bytes_of_each_run_are_the_sum_of_its_payloads(sealed: bool) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 2, 2))
        await fill(ledger, COUNT)
        if sealed:
            await ledger.seal()
        for handle in (ledger, await reopened(client)):
            for first in range(COUNT):
                for last in range(first, COUNT):
                    assert await handle.payload_bytes(EntryId(first), EntryId(last)) == size(first, last)

    with_cluster(work)


def test_entries_that_are_left_after_a_shrink_count_alone() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 2, 2))
        await fill(ledger, COUNT)
        await ledger.shrink(EntryId(5), force=True)
        await ledger.seal()
        assert await (await reopened(client)).payload_bytes(EntryId(5), EntryId(COUNT - 1)) == size(5, COUNT - 1)

    with_cluster(work)


def test_a_whole_sealed_ledger_costs_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(3, 2, 2))
        await fill(ledger, COUNT)
        await ledger.seal()
        monkeypatch.delattr(followed_ledger, "read_entry")
        assert await ledger.payload_bytes(EntryId(0), EntryId(COUNT - 1)) == size(0, COUNT - 1)

    with_cluster(work)


def test_entries_that_were_moved_since_the_record_was_read_are_found_by_the_newer_record() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", Quorum(1, 1, 1))
        await fill(ledger, 3)
        handle = await reopened(client)
        cluster.bookies[ledger.record.bookies[0]].kill()
        with pytest.raises(LedgerError):
            await handle.payload_bytes(EntryId(1), EntryId(2))
        await fill(ledger, 3)
        assert len(ledger.record.fragments) == 2
        assert await handle.payload_bytes(EntryId(3), EntryId(5)) == sum(len(b"entry %d" % each) for each in (3, 4, 5))

    with_cluster(work)
