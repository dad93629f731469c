"""Judges ledgers by their clients' observations, by the history of their records and by the bookies' copies. Pure.

    history = StormHistory()
    life = history.life(ledger.id, ledger.name)
    append = life.append("writer-1#1/3", session, payload)        # unknown until it is answered
    life.saw("reader-1", entry, payload)
    life.final = {entry: payload, ...}                            # the whole ledger, read after the faults healed
    assert history.check(records) == []

1. Payloads are unique, so that a payload names its append and the life of its ledger.
2. An acknowledged append is readable at its entry id. An append that certainly failed is never read; others may be.
3. An entry id has one payload for all readers. Every entry that was confirmed to a client is there in the end.
4. The appends of one handle are acknowledged in order. No entry is appended after the end of a sealed ledger.
5. The record's sessions, fragments and start only grow. A client's version of the record is one that the metadata had.
6. After the deletion of a name, the name never refers to the old ledger again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ids import ANY_SESSION, NO_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import LedgerRecord, decode_record
from gnomon.metadata.client import KeyValue, Revision

FINDINGS_MAX = 10


class AppendOutcome(Enum):
    """The outcome of an append, as its caller knows it."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


@dataclass(slots=True)
class TracedAppend:
    """One append of one handle, given to `Ledger.append` as its `done`."""

    handle: str
    session: SessionId
    payload: bytes
    acknowledged: list[EntryId]
    """The entries of the handle that were acknowledged, in order."""
    entry: EntryId = NO_ENTRY
    outcome: AppendOutcome = AppendOutcome.UNKNOWN
    answers: int = 0

    def done(self, entry: EntryId, error: LedgerError | None) -> None:
        """The ledger has answered."""
        self.answers += 1
        if error is None:
            self.outcome = AppendOutcome.ACKNOWLEDGED
            self.acknowledged.append(entry)
        elif not error.outcome_unknown:
            self.outcome = AppendOutcome.FAILED


@dataclass(slots=True)
class LedgerLife:
    """One ledger from its creation to its deletion."""

    id: LedgerId
    name: str
    appends: list[TracedAppend] = field(default_factory=list)
    acknowledged: dict[str, list[EntryId]] = field(default_factory=dict)
    """By handle, its acknowledged entries in the order of the answers."""
    seen: dict[EntryId, tuple[bytes, str]] = field(default_factory=dict)
    confirmed: EntryId = NO_ENTRY
    """The highest last add confirmed that a client got."""
    denied: dict[EntryId, str] = field(default_factory=dict)
    """Confirmed entries that a reader got as non-existent, with the reader's name."""
    believed: dict[Revision, bytes] = field(default_factory=dict)
    claimed: SessionId = ANY_SESSION
    """The highest session that a client got for writing."""
    sealed_at: EntryId | None = None
    """The last entry, once a client knows that the ledger is sealed."""
    deleted: float | None = None
    """The time of the answer to a client's deletion."""
    final: dict[EntryId, bytes] | None = None
    """All entries as read at the end; None if nobody has read the whole ledger."""
    wrong: list[str] = field(default_factory=list)

    def append(self, handle: str, session: SessionId, payload: bytes) -> TracedAppend:
        """A client is about to append."""
        append = TracedAppend(handle, session, payload, self.acknowledged.setdefault(handle, []))
        self.appends.append(append)
        return append

    def saw(self, who: str, entry: EntryId, payload: bytes) -> None:
        """A client has read an entry."""
        before = self.seen.setdefault(entry, (payload, who))
        if before[0] != payload:
            self.wrong.append(f"entry {entry} was {before[0][:40]!r} for {before[1]} and {payload[:40]!r} for {who}")

    def was_confirmed(self, entry: EntryId) -> None:
        """A client got a last add confirmed."""
        self.confirmed = max(self.confirmed, entry)

    def believes(self, who: str, revision: Revision, record: LedgerRecord) -> None:
        """A client has this record for a revision."""
        value = record.encode()
        if self.believed.setdefault(revision, value) != value:
            self.wrong.append(f"{who} has another record for revision {revision} than other clients")
        if record.sealed:
            self.was_sealed(who, record.last_entry)

    def was_sealed(self, who: str, last_entry: EntryId) -> None:
        """A client knows that the ledger is sealed with this last entry."""
        if self.sealed_at is None:
            self.sealed_at = last_entry
        elif self.sealed_at != last_entry:
            self.wrong.append(f"sealed at {self.sealed_at}, and for {who} at {last_entry}")


class StormHistory:
    """The history of all ledgers of a storm."""

    def __init__(self) -> None:
        self.lives: dict[LedgerId, LedgerLife] = {}
        self._deleted: dict[str, tuple[LedgerId, float]] = {}
        self._wrong: list[str] = []

    def life(self, ledger: LedgerId, name: str) -> LedgerLife:
        """The ledger of this id."""
        return self.lives.setdefault(ledger, LedgerLife(ledger, name))

    def deleted(self, ledger: LedgerId, name: str, now: float) -> None:
        """A client's deletion of the ledger succeeded."""
        self.life(ledger, name).deleted = now
        before = self._deleted.get(name)
        if before is None or before[0] < ledger:
            self._deleted[name] = (ledger, now)

    def gone(self, life: LedgerLife) -> bool:
        """Whether the ledger was deleted: a deletion succeeded, or a later ledger has its name."""
        return life.deleted is not None or any(
            later.name == life.name and later.id > life.id for later in self.lives.values()
        )

    def opened(self, ledger: LedgerId, name: str, called: float) -> None:
        """A client that called `open` at `called` got a handle."""
        deleted = self._deleted.get(name)
        if deleted is not None and deleted[1] <= called and ledger <= deleted[0]:
            self._wrong.append(f"{name!r} opened ledger {ledger} after {deleted[0]} was deleted")

    def check(self, records: Mapping[str, Sequence[KeyValue | None]]) -> list[str]:
        """The anomalies of the history, as texts; at most ten of each ledger.

        Args:
            records: by name, every version of the record in the metadata, None for a deletion; empty if the records
                could not be read.
        """
        versions = _versions(records)
        wrong = list(self._wrong)
        for ledger, life in self.lives.items():
            found = [*life.wrong, *_check_life(life)]
            if records:
                found += _check_versions(life, versions.get(ledger, []))
            wrong += [f"{life.name} ({ledger}): {text}" for text in found[:FINDINGS_MAX]]
        return wrong


def _versions(records: Mapping[str, Sequence[KeyValue | None]]) -> dict[LedgerId, list[KeyValue]]:
    versions: dict[LedgerId, list[KeyValue]] = {}
    for values in records.values():
        for stored in values:
            if stored is not None:
                versions.setdefault(LedgerId(stored.create_revision), []).append(stored)
    return versions


def _check_life(life: LedgerLife) -> list[str]:
    wrong = []
    by_payload = {append.payload: append for append in life.appends}
    known = {entry: payload for entry, (payload, _) in life.seen.items()}
    for entry, payload in (life.final or {}).items():
        if known.setdefault(entry, payload) != payload:
            wrong.append(
                f"entry {entry} is {payload[:40]!r} in the end; {life.seen[entry][1]} had read another payload"
            )
    for entry, payload in known.items():
        append = by_payload.get(payload)
        if append is None:
            wrong.append(f"entry {entry} holds {payload[:40]!r}, which nobody appended to this ledger")
        elif append.outcome is AppendOutcome.FAILED:
            wrong.append(f"entry {entry} holds {payload[:40]!r}, whose append certainly failed")
        elif append.entry != entry:
            wrong.append(f"entry {entry} holds {payload[:40]!r}, which was given entry {append.entry}")
    for append in life.appends:
        other = known.get(append.entry, append.payload)
        if append.outcome is AppendOutcome.ACKNOWLEDGED and other != append.payload:
            wrong.append(f"entry {append.entry} was acknowledged to {append.handle} and is {other[:40]!r}")
        if append.answers > 1:
            wrong.append(f"entry {append.entry} was answered {append.answers} times to {append.handle}")
    for handle, entries in life.acknowledged.items():
        if entries != sorted(set(entries)):
            wrong.append(f"the entries of {handle} were acknowledged out of order")
    wrong += _check_handles(life)
    return wrong


def _check_handles(life: LedgerLife) -> list[str]:
    """Checks that entries of a handle are consecutive, and that none before an acknowledged one is open or failed."""
    last: dict[str, TracedAppend] = {}
    wrong = []
    for append in life.appends:
        before = last.get(append.handle)
        if before is not None and before.entry + 1 != append.entry:
            wrong.append(f"{append.handle} was given entry {append.entry} after {before.entry}")
        if before is not None and append.outcome is AppendOutcome.ACKNOWLEDGED is not before.outcome:
            wrong.append(f"{append.handle}: entry {append.entry} is acknowledged, {before.entry} before it is not")
        last[append.handle] = append
    return wrong


def _check_versions(life: LedgerLife, versions: Sequence[KeyValue]) -> list[str]:
    wrong = []
    records = [decode_record(stored.value) for stored in versions]
    at = {stored.mod_revision: stored.value for stored in versions}
    for revision, value in life.believed.items():
        if at.get(revision) != value:
            wrong.append(f"a client had a record of revision {revision} that the metadata never had")
    for before, record in pairwise(records):
        wrong += _check_step(before, record)
    if not records:
        return wrong
    last = records[-1]
    if last.session < life.claimed:
        wrong.append(f"session {life.claimed} was claimed, the record has {last.session}")
    if life.sealed_at is not None and (not last.sealed or last.last_entry != life.sealed_at):
        wrong.append(f"sealed at {life.sealed_at}, the record is {last.state.value} at {last.last_entry}")
    if life.final is not None:  # entries acknowledged to a writer of a deleted ledger are seen nowhere
        wrong += _check_final(life, life.final, last)
    return wrong


def _check_final(life: LedgerLife, final: Mapping[EntryId, bytes], last: LedgerRecord) -> list[str]:
    wrong = []
    end = max(final, default=EntryId(last.start_entry - 1))
    for append in life.appends:
        if append.outcome is AppendOutcome.ACKNOWLEDGED and append.entry >= last.start_entry:
            if last.fragment_of(append.entry).session > append.session:
                wrong.append(f"entry {append.entry} was acknowledged in session {append.session} and is excluded")
            if append.entry not in final:
                wrong.append(f"entry {append.entry} was acknowledged to {append.handle} and is missing")
    if list(final) != list(range(last.start_entry, end + 1)):
        wrong.append(f"the entries in the end are not those from {last.start_entry} to {end}")
    if life.confirmed > end:
        wrong.append(f"entry {life.confirmed} was confirmed to a client, the ledger ends at {end}")
    if last.sealed and end != max(last.last_entry, last.start_entry - 1):
        wrong.append(f"the ledger was sealed at {last.last_entry} and ends at {end}")
    for entry, who in life.denied.items():
        if last.start_entry <= entry <= end:
            wrong.append(f"{who} got entry {entry} as non-existent")
    return wrong


def _check_step(before: LedgerRecord, record: LedgerRecord) -> list[str]:
    wrong = []
    if record.session < before.session:
        wrong.append(f"session {record.session} came after {before.session}")
    if record.fragments[-1].first_entry < before.fragments[-1].first_entry:
        first, later = before.fragments[-1].first_entry, record.fragments[-1].first_entry
        wrong.append(f"the last fragment began at {first} and then at {later}")
    if record.start_entry < before.start_entry:
        wrong.append(f"the start fell from {before.start_entry} to {record.start_entry}")
    if before.sealed:
        same = record.sealed and record.session == before.session and record.last_entry == before.last_entry
        if not same or record.fragments[-1][:2] != before.fragments[-1][:2]:
            wrong.append(f"the record of a ledger sealed at {before.last_entry} has changed")
    return wrong


class StoredCopy(NamedTuple):
    """One entry on one bookie: the session that wrote it, and its payload, or None if its digest does not match."""

    session: SessionId
    payload: bytes | None
    last_add_confirmed: EntryId = NO_ENTRY
    """The last add confirmed that the writer knew when it sent the entry."""


def check_copies(
    record: LedgerRecord,
    entries: Mapping[EntryId, bytes],
    copies: Mapping[BookieId, Mapping[EntryId, StoredCopy]],
    damaged: Iterable[tuple[BookieId, EntryId]],
    *,
    needed: int | None = None,
) -> list[str]:
    """Checks that enough of its bookies store each entry, with its payload and a session that counts.

    Args:
        needed: the copies that each entry needs; None for its ack quorum.
        entries: the confirmed entries.
        copies: by bookie, its copies of the ledger's entries.
        damaged: the copies in which bits were flipped, or which an older copy of a disk may lack; these copies count.
    """
    flipped = set(damaged)
    needed = record.quorum.ack_quorum if needed is None else needed
    wrong = []
    for entry, payload in entries.items():
        fragment = record.fragment_of(entry)
        holders = 0
        for index in record.quorum.write_set(entry):
            name = fragment.bookies[index]
            copy = copies.get(name, {}).get(entry)
            if (name, entry) in flipped:
                holders += 1
            elif copy is None or copy.session < fragment.session:
                continue
            elif copy.payload is None:
                wrong.append(f"entry {entry} is damaged at {name}, where no bit was flipped")
            elif copy.payload != payload:
                wrong.append(f"entry {entry} is {copy.payload[:40]!r} at {name} in session {copy.session}")
            else:
                holders += 1
        if holders < needed:
            where = ", ".join(fragment.bookies)
            wrong.append(f"{holders} bookies of {where} store entry {entry}, {needed} are needed")
    return wrong[:FINDINGS_MAX]
