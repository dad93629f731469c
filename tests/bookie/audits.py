"""Auditors of a simulated cluster, and queries that show the results of their work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from gnomon.bookie.bookie import known_bookie
from gnomon.bookie.entry import encode_entry
from gnomon.bookie.ids import BookieId, EntryId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.record import LEDGERS, decode_record, ledger_key
from gnomon.bookie.repair.auditor import Auditor, AuditSettings
from gnomon.metadata.client import Metadata
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient

WIDE = Quorum(3, 3, 2)
EAGER = AuditSettings(grace_seconds=5, interval_seconds=1, lease_seconds=3)


def auditor_of(client: LedgerClient, settings: AuditSettings = EAGER, metadata: Metadata | None = None) -> Auditor:
    """An auditor with the connections of a client; it uses `metadata` instead if that is given."""
    return Auditor(metadata or client.metadata, client.bookies, settings, "auditor", client.world.logger)


@asynccontextmanager
async def running(auditor: Auditor) -> AsyncIterator[None]:
    """Runs an auditor during the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(auditor.run)
        yield
        nursery.cancel_scope.cancel()


async def audited(client: LedgerClient, until: Callable[[Auditor], Awaitable[bool]]) -> Auditor:
    """Audits until a condition holds."""
    auditor = auditor_of(client)
    async with running(auditor):
        with trio.fail_after(120):
            while not await until(auditor):
                await client.world.clock.sleep(0.5)
    return auditor


async def rid_of(client: LedgerClient, bookie: BookieId) -> Auditor:
    """Audits until no record names a bookie."""

    async def nobody_names_it(_auditor: Auditor) -> bool:
        return not await named(client, bookie)

    return await audited(client, nobody_names_it)


async def named(client: LedgerClient, bookie: BookieId) -> bool:
    """Whether a ledger's record names a bookie."""
    records = [decode_record(item.value) for item in (await client.metadata.range(LEDGERS)).items]
    return any(bookie in fragment.bookies for record in records for fragment in record.fragments)


async def beside_a_ledger(client: LedgerClient) -> tuple[Ledger, BookieId]:
    """Creates a ledger; returns it with the one of four bookies that is not in its ensemble."""
    ledger = await client.create("ledger", WIDE)
    (spare,) = {*client.bookies.alive()} - {*ledger.record.bookies}
    return ledger, spare


async def copies_of(client: LedgerClient, name: str) -> dict[int, list[BookieId]]:
    """The bookies that have each confirmed entry of a ledger, among those that its record names."""
    stored = await client.metadata.get(ledger_key(name))
    assert stored is not None
    record = decode_record(stored.value)
    ledger = await client.follow(name)
    found: dict[int, list[BookieId]] = {}
    for entry in range(record.start_entry, ledger.last_add_confirmed + 1):
        fragment = record.fragment_of(EntryId(entry))
        for index in record.quorum.write_set(EntryId(entry)):
            bookie = client.bookies.get(fragment.bookies[index])
            assert bookie is not None
            if await bookie.present(ledger.id, EntryId(entry), EntryId(entry), fragment.session):
                found.setdefault(entry, []).append(fragment.bookies[index])
    return found


async def reported(client: LedgerClient) -> list[str]:
    """The ledgers that are reported."""
    return [item.value.decode() for item in (await client.metadata.range(MISSING)).items]


async def store(client: LedgerClient, ledger: Ledger, held: Mapping[int, range], confirmed: int) -> None:
    """Lets the bookie at each index have some entries, each with the last add confirmed `confirmed`."""
    for index, entries in held.items():
        copies = [
            (entry, encode_entry(ledger.id, entry, ledger.record.session, EntryId(confirmed), 0, [b"%d" % entry]))
            for entry in map(EntryId, entries)
        ]
        bookie = known_bookie(client.bookies, ledger.record.fragments[-1].bookies[index])
        await bookie.put_copies(ledger.id, ledger.record.session, copies)
        bookie.confirm(ledger.id, ledger.record.session, EntryId(confirmed))


async def settled(client: LedgerClient) -> Auditor:
    """Audits until no ledger is reported."""

    async def nothing_reported(_auditor: Auditor) -> bool:
        return not await reported(client)

    return await audited(client, nothing_reported)
