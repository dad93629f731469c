"""Ledgers whose payloads contain their entry ids."""

from __future__ import annotations

from gnomon.bookie.ledgers.catalog import Ledger


async def fill(ledger: Ledger, count: int) -> None:
    """Appends `count` entries, one after the other."""
    for _ in range(count):
        await ledger.add([b"entry ", b"%d" % ledger.next_entry])


async def contents(ledger: Ledger) -> list[bytes]:
    """All readable entries of a ledger."""
    return await ledger.read(ledger.start_entry, ledger.last_add_confirmed)


def entries(count: int) -> list[bytes]:
    """The payloads that `fill` appends to an empty ledger."""
    return [b"entry %d" % number for number in range(count)]
