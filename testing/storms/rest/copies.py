"""Judges the copies of all ledgers once a storm is over: each confirmed entry is on its write quorum.

1. Of each entry up to the last one that is known to be confirmed, every bookie of its write set has a copy, with the
   same payload and with a session that counts. A copy in which the storm flipped a bit counts.
2. An entry is known to be confirmed by the record of its ledger, by the entries that were written after it, and by the
   explicit last add confirmed that a bookie remembers.
3. The ledger of a snapshot that is not sealed was left by a crash: no record names it, and nobody reads it.

During a storm an ack quorum is enough: clients see no difference, until the next bookies fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import LedgerRecord
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.log.tables.snapshot_form import TABLES as SNAPSHOTS
from gnomon.testing.storms.ledgers.ledger_checker import StoredCopy, check_copies
from gnomon.testing.storms.ledgers.ledger_verdict import stored_copies
from gnomon.testing.storms.rest.finding import Facts, StateFinding
from gnomon.testing.storms.rest.roll import StoreOnDuty

Copies = Mapping[LedgerId, Mapping[EntryId, StoredCopy]]


def audit_copies(stores: Sequence[StoreOnDuty], facts: Facts) -> Iterator[StateFinding]:
    """The findings about all ledgers."""
    copies = {store.bookie: stored_copies(store.environment) for store in stores}
    flipped = [(store.bookie, *ENTRY_KEY.unpack(key)) for store in stores for key in store.flipped()]
    for ledger, record in facts.ledgers.items():
        if facts.names[ledger].startswith(SNAPSHOTS) and not record.sealed:
            continue
        held = {name: every.get(ledger, {}) for name, every in copies.items()}
        explicit = [store.explicit_lac(ledger, record.session) for store in stores]
        end = max(_confirmed(record, held), *explicit)
        entries = _payloads(record, held, end)
        damaged = [(name, EntryId(entry)) for name, at, entry in flipped if at == ledger]
        wrong = check_copies(record, entries, held, damaged, needed=record.quorum.write_quorum)
        for entry in range(record.start_entry, end + 1):
            if entry not in entries:
                wrong.append(f"no bookie has confirmed entry {entry}")
        for text in wrong:
            yield StateFinding(f"ledger {ledger}", f"ledger {ledger}: {text}")


def _confirmed(record: LedgerRecord, held: Mapping[BookieId, Mapping[EntryId, StoredCopy]]) -> EntryId:
    """The last entry that the record or a copy of a later entry says to be confirmed."""
    end = record.confirmed
    if record.sealed:
        return end
    for copies in held.values():
        for entry, copy in copies.items():
            if record.fragment_of(entry).session <= copy.session <= record.session:
                end = max(end, copy.last_add_confirmed)
    return end


def _payloads(
    record: LedgerRecord, held: Mapping[BookieId, Mapping[EntryId, StoredCopy]], end: EntryId
) -> dict[EntryId, bytes]:
    """The payload of each confirmed entry by the first bookie of its write set that has a copy that counts."""
    found: dict[EntryId, bytes] = {}
    for entry in map(EntryId, range(record.start_entry, end + 1)):
        fragment = record.fragment_of(entry)
        for index in record.quorum.write_set(entry):
            copy = held.get(fragment.bookies[index], {}).get(entry)
            if copy is not None and copy.payload is not None and copy.session >= fragment.session:
                found[entry] = copy.payload
                break
    return found
