"""Ledgers whose entries say their numbers."""

from __future__ import annotations

from gnomon.bookie.ledgers.catalog import Ledger


async def fill(ledger: Ledger, count: int) -> None:
    """Appends so many entries, one after the other."""
    for _ in range(count):
        await ledger.add([b"entry ", b"%d" % ledger.next_entry])


async def contents(ledger: Ledger) -> list[bytes]:
    """All that may be read."""
    return await ledger.read(ledger.start_entry, ledger.last_add_confirmed)


def entries(count: int) -> list[bytes]:
    """What `fill` appends to an empty ledger."""
    return [b"entry %d" % number for number in range(count)]
