"""The metadata record of a ledger, and its change by a claim. Pure.

1. A ledger's id is its record's create revision; its session is the record's version at the last claim. Both are
   counters of the metadata service: they are unique, they only grow, and counting needs no further write.
2. A fragment says that the entries from `first_entry` on are on `bookies`, and were written by `session` or a later
   session. Copies of lower sessions there are orphans: an earlier writer left them, and they do not count.
3. A claim starts a fragment right after the last recovered entry, in the same write that makes its session valid. So an
   entry that recovery found absent can never reappear. All entries before a fragment are durable on their ack quorums
   when the fragment is recorded, so a new fragment never begins below the last one.
4. Fragments without effect are dropped: those that end below `start_entry`, and those whose orphans every bookie of the
   ensemble has removed. So the record stays small even if the ledger is opened a thousand times.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgpack

from gnomon.bookie.digest import Secret, password_digest
from gnomon.bookie.errors import UnreadableRecord
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, SessionId

LEDGERS: Final = "ledgers/"
"""Prefix of the metadata keys that hold ledger records."""
RECORDS_PER_TURN: Final = 200
"""A loop over all records yields to other tasks after this many: decoding one takes some 15 us."""

_FORMAT: Final = 1


class DigestType(Enum):
    """The protection of entries (`digest`)."""

    CRC32C = "crc32c"
    MAC = "mac"


class LedgerState(Enum):
    """The state of a ledger: open for appends, or sealed."""

    OPEN = "open"
    SEALED = "sealed"


class Quorum(NamedTuple):
    """Numbers of copies: an entry is on `write_quorum` of `ensemble_size` bookies; `ack_quorum` of them confirm it."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1

    def check(self) -> Quorum:
        """Itself, if E >= Qw >= Qa >= 1.

        Raises:
            ValueError: it is not.
        """
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(f"a quorum needs ensemble >= write quorum >= ack quorum >= 1, not {tuple(self)}")
        return self

    @property
    def fences_needed(self) -> int:
        """Bookies of an ensemble to fence so that no older session can have an entry acknowledged any more."""
        return self.ensemble_size - self.ack_quorum + 1

    @property
    def negatives_needed(self) -> int:
        """Explicit negative answers from an entry's bookies that prove that it was never acknowledged."""
        return self.write_quorum - self.ack_quorum + 1

    def write_set(self, entry: EntryId) -> tuple[int, ...]:
        """Indexes into the ensemble of the bookies that hold `entry`."""
        return tuple((entry + copy) % self.ensemble_size for copy in range(self.write_quorum))

    def lacking(self, index: int, entries: range, runs: Iterable[tuple[EntryId, EntryId]]) -> list[EntryId]:
        """The entries of a range that a bookie should store and lacks.

        Args:
            index: the bookie's index in the ensemble.
            runs: the first and the last entry of each run of entries that the bookie has.
        """
        there = {entry for first, last in runs for entry in range(first, last + 1)}
        return [entry for entry in map(EntryId, entries) if entry not in there and index in self.write_set(entry)]


class Fragment(NamedTuple):
    """A run of entries on one ensemble, up to the next fragment's first."""

    first_entry: EntryId
    session: SessionId
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One ledger's record; `length_bytes` is the payload of all its entries as of the owner's last metadata write."""

    quorum: Quorum
    fragments: tuple[Fragment, ...]
    session: SessionId = FIRST_SESSION
    state: LedgerState = LedgerState.OPEN
    start_entry: EntryId = FIRST_ENTRY
    last_entry: EntryId = NO_ENTRY
    length_bytes: int = 0
    digest_type: DigestType = DigestType.CRC32C
    password_digest: bytes = b""
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def sealed(self) -> bool:
        """Whether it accepts no more appends, so that `last_entry` is final."""
        return self.state is LedgerState.SEALED

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Every bookie that a fragment names, each once."""
        return tuple(dict.fromkeys(name for fragment in self.fragments for name in fragment.bookies))

    @property
    def confirmed(self) -> EntryId:
        """The last entry that the record alone proves to be confirmed: all below the last fragment (invariant 3)."""
        return self.last_entry if self.sealed else EntryId(max(self.start_entry, self.fragments[-1].first_entry) - 1)

    def with_properties(self, properties: dict[str, Any] | None) -> LedgerRecord:
        """The same with other properties; None keeps them."""
        return self if properties is None else replace(self, properties=properties)

    def fragment_of(self, entry: EntryId) -> Fragment:
        """The fragment of an entry."""
        for fragment in reversed(self.fragments):
            if entry >= fragment.first_entry:
                return fragment
        return self.fragments[0]

    def encode(self) -> bytes:
        """The value of the metadata key."""
        encoded: bytes = msgpack.packb(
            [
                _FORMAT,
                self.state.value,
                tuple(self.quorum),
                self.session,
                self.start_entry,
                self.last_entry,
                self.length_bytes,
                [list(fragment) for fragment in self.fragments],
                self.digest_type.value,
                self.password_digest,
                self.properties,
            ]
        )
        return encoded


def ledger_key(name: str) -> str:
    """The metadata key of a ledger's record."""
    return LEDGERS + name


def decode_record(value: bytes) -> LedgerRecord:
    """The record that `encode` wrote.

    Raises:
        UnreadableRecord: the value is not a record, or one of a newer format.
    """
    try:
        known, *fields = msgpack.unpackb(value)
        if known != _FORMAT:
            raise ValueError(f"it is of format {known}, this version reads format {_FORMAT}; upgrade it")
        state, quorum, session, start, last, length, fragments, digest, password, properties = fields
        return LedgerRecord(
            quorum=_quorum(*quorum),
            fragments=_fragments(tuple((first, at, tuple(bookies)) for first, at, bookies in fragments)),
            session=session,
            state=LedgerState(state),
            start_entry=start,
            last_entry=last,
            length_bytes=length,
            digest_type=DigestType(digest),
            password_digest=password,
            properties=properties,
        )
    except (TypeError, ValueError) as error:
        raise UnreadableRecord(f"the record of a ledger cannot be read: {error}") from error


@lru_cache
def _quorum(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Quorum:
    return Quorum(ensemble_size, write_quorum, ack_quorum)


@lru_cache
def _fragments(listed: tuple[tuple[EntryId, SessionId, tuple[BookieId, ...]], ...]) -> tuple[Fragment, ...]:
    """The fragments; ledgers with equal fragments share one tuple, as nearly all of thousands of small ledgers do."""
    return tuple(Fragment(*each) for each in listed)


def password_fits(record: LedgerRecord, name: str, secret: Secret) -> bool:
    """Whether `secret` comes from the password that the ledger was created with."""
    return hmac.compare_digest(record.password_digest, password_digest(name, secret))


def claim(
    record: LedgerRecord,
    session: SessionId,
    last_entry: EntryId,
    *,
    bookies: tuple[BookieId, ...] | None = None,
    without_orphans: bool = False,
) -> LedgerRecord:
    """The record of the writer that continues after `last_entry` under `session` (invariants 3 and 4).

    Args:
        bookies: the ensemble from there on, None for the last one.
        without_orphans: every bookie of the last ensemble has removed the copies that the record's bounds exclude.
    """
    assert session > record.session, f"session {session} is not above {record.session}"
    first_entry = EntryId(last_entry + 1)
    kept = list(record.fragments)
    assert first_entry >= max(kept[-1].first_entry, record.start_entry), (
        f"a ledger whose last fragment begins at {kept[-1].first_entry} was found to end at {last_entry}"
    )
    if without_orphans:
        while len(kept) > 1 and kept[-2].bookies == kept[-1].bookies:
            del kept[-1]
    ensemble = bookies or record.fragments[-1].bookies
    return _with_fragment(replace(record, session=session, fragments=tuple(kept)), first_entry, ensemble)


def change_ensemble(record: LedgerRecord, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> LedgerRecord:
    """The record of a writer that replaces bookies: its entries from `first_entry` on are on `bookies`."""
    assert first_entry >= record.fragments[-1].first_entry, "an ensemble cannot change below its own fragment"
    return _with_fragment(record, first_entry, bookies)


def closes_entries(record: LedgerRecord, first_entry: EntryId) -> bool:
    """Whether a change of the ensemble at `first_entry` closes a fragment that has entries."""
    return first_entry > max(record.fragments[-1].first_entry, record.start_entry)


def replace_bookie(record: LedgerRecord, first_entry: EntryId, old: BookieId, new: BookieId) -> LedgerRecord:
    """The record after the entries of the fragment that begins at `first_entry` were copied from `old` to `new`."""
    fragments = tuple(
        fragment._replace(bookies=tuple(new if name == old else name for name in fragment.bookies))
        if fragment.first_entry == first_entry
        else fragment
        for fragment in record.fragments
    )
    return replace(record, fragments=fragments)


def _with_fragment(record: LedgerRecord, first_entry: EntryId, bookies: tuple[BookieId, ...]) -> LedgerRecord:
    kept = [fragment for fragment in record.fragments if fragment.first_entry < first_entry]
    fragments = (*kept, Fragment(first_entry, record.session, bookies))
    return replace(record, fragments=_above(fragments, record.start_entry))


def shrink(record: LedgerRecord, end_entry: EntryId, length_bytes: int) -> LedgerRecord:
    """The record after the entries below `end_entry` are deleted; never moves back."""
    start_entry = max(record.start_entry, end_entry)
    fragments = _above(record.fragments, start_entry)
    return replace(record, start_entry=start_entry, fragments=fragments, length_bytes=length_bytes)


def seal(record: LedgerRecord, last_entry: EntryId, length_bytes: int) -> LedgerRecord:
    """The record of a finished ledger."""
    return replace(record, state=LedgerState.SEALED, last_entry=last_entry, length_bytes=length_bytes)


def _above(fragments: tuple[Fragment, ...], start_entry: EntryId) -> tuple[Fragment, ...]:
    first = 0
    while first + 1 < len(fragments) and fragments[first + 1].first_entry <= start_entry:
        first += 1
    return fragments[first:]
