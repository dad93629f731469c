"""Judges the store of a bookie at rest, on its disk and in its memory.

1. Every ledger of the disk, with entries or with facts alone, exists.
2. No entry is below its ledger's start, and no removal is unfinished.
3. The ledgers in memory exist, also those that the collector remembers.
4. No add waits for the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gnomon.bookie.storage.entry_store import ENTRIES, STATES
from gnomon.bookie.storage.removal import ENTRY_KEY, GOING, NUMBER
from gnomon.testing.storms.rest.finding import Facts, StateFinding
from gnomon.testing.storms.rest.roll import StoreOnDuty
from gnomon.testing.storms.rest.sizes import sizes_of

EMPTY = ("AddQueue.waiting", "AddQueue._promises")
"""The containers of a store that are empty at rest."""


def audit_store(on_duty: StoreOnDuty, facts: Facts) -> Iterator[StateFinding]:
    """The findings about one store."""
    name, held = on_duty.machine.name, sizes_of(on_duty.store).held
    for thing, count in _on_disk(on_duty, facts).items():
        yield StateFinding(f"{name}: {thing}", f"{name} has on its disk {count} {thing}")
    for where in EMPTY:
        if held[where]:
            yield StateFinding(f"{name}: {where}", f"{where} of {name} holds {held[where]} items")
    for ledger in sorted({*on_duty.store.ledgers.known, *on_duty.garbage._seen} - facts.ledgers.keys()):
        text = f"{name} has ledger {ledger} in its memory, which does not exist"
        yield StateFinding(f"{name}: memory of ledger {ledger}", text)


def _on_disk(on_duty: StoreOnDuty, facts: Facts) -> Counter[str]:
    found: Counter[str] = Counter()
    environment = on_duty.environment
    with environment.read() as transaction:
        entries: Any = transaction.cursor(db=environment.databases[ENTRIES])
        for key, _ in entries:
            ledger, entry = ENTRY_KEY.unpack(key)
            record = facts.ledgers.get(ledger)
            if record is None:
                found[f"entries of ledger {ledger}, which does not exist"] += 1
            elif entry < record.start_entry:
                found[f"entries of ledger {ledger} below its start"] += 1
        states: Any = transaction.cursor(db=environment.databases[STATES])
        for view, _ in states:
            key = bytes(view)
            if len(key) != 1 + NUMBER.size:
                continue  # a fact about the disk, not about a ledger
            (ledger,) = NUMBER.unpack(key[1:])
            if ledger not in facts.ledgers:
                found[f"facts about ledger {ledger}, which does not exist"] += 1
            elif key[:1] == GOING:
                found[f"unfinished removals in ledger {ledger}"] += 1
    return found
