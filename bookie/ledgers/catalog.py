"""Ledgers by name: create, open, claim, delete, list.

In the metadata, opening for append costs one read and one write transaction, creating costs one write transaction, and
opening for reading costs one read. A function that takes a `KeyValue` uses the ledger's record as its caller has read
it: a partition reads the records of all its ledgers at once. The arguments `compare` and `also` are further comparisons
and operations for a function's transaction.

A claim makes this process the writer of a ledger. It has four steps (`claim`): fence the bookies, with the number of
the record's next version as the session; find the end of the ledger; make the entries after the last add confirmed
durable; write the record, if its version is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Flag, auto
from typing import Any

from gnomon.bookie import record as records
from gnomon.bookie.bookie import Bookie, Bookies, ensemble_of, known_bookie
from gnomon.bookie.copies.compared_copies import ComparedEntry, EntryCopies, compare_copies
from gnomon.bookie.copies.copies_at_bookies import AuditedLedger, copies_at_bookies, durable_entry
from gnomon.bookie.copies.copy_cursor import SilentBookies
from gnomon.bookie.digest import password_digest, secret_of
from gnomon.bookie.entry import decode_entry
from gnomon.bookie.errors import (
    LedgerError,
    LedgerExists,
    LedgerFenced,
    LedgerSealed,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
    WrongDigestType,
)
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, NO_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.addresses import live_addresses
from gnomon.bookie.ledgers.claim import Recovered, recover
from gnomon.bookie.ledgers.copies import RUN_BYTES_MAX, next_run_bytes, read_run
from gnomon.bookie.ledgers.entry_cache import CachedView, EntryCache, EntryView, NotInMemory, Reading, read_from_memory
from gnomon.bookie.ledgers.held_record import pass_promise, replace_record
from gnomon.bookie.ledgers.ledger import Ledger
from gnomon.bookie.ledgers.listed_bookies import ListedBookie, ListedBookies
from gnomon.bookie.ledgers.local_view import LocalView, LocalViews, is_local
from gnomon.bookie.missing_report import MISSING, missing_report
from gnomon.bookie.placement import ensemble_for
from gnomon.bookie.record import (
    LEDGERS,
    DigestType,
    Fragment,
    LedgerRecord,
    Quorum,
    decode_record,
    ledger_key,
    password_fits,
)
from gnomon.metadata.client import Compare, Delete, KeyField, KeyValue, Metadata, Operation, Put
from gnomon.runtime.world import WorldError

__all__ = [
    "MISSING",
    "RUN_BYTES_MAX",
    "AuditedLedger",
    "Bookies",
    "CachedView",
    "ComparedEntry",
    "DigestType",
    "EntryCache",
    "EntryCopies",
    "EntryId",
    "EntryView",
    "Ledger",
    "LedgerId",
    "ListedBookie",
    "ListedBookies",
    "LocalView",
    "LocalViews",
    "NotInMemory",
    "OpenMode",
    "Quorum",
    "Reading",
    "SessionId",
    "SilentBookies",
    "adopt_ledger",
    "check_copy",
    "claim_ledger",
    "compare_copies",
    "copies_at_bookies",
    "create_ledger",
    "delete_ledger",
    "delete_ledgers",
    "durable_entry",
    "end_fragment",
    "is_local",
    "list_ledgers",
    "live_addresses",
    "next_run_bytes",
    "open_ledger",
    "read_from_memory",
    "read_run",
    "take_back_ledger",
]

SINGLE = Quorum()


class OpenMode(Flag):
    """The purpose of opening a ledger."""

    O_CREATE = auto()
    """Create it and append to it; fails if the name exists."""
    O_APPEND = auto()
    """Fence other writers, recover the tail and continue in the same ledger."""
    O_RDONLY = auto()
    """Read confirmed entries and follow the tail; changes nothing, fences no writer."""


async def open_ledger(
    metadata: Metadata,
    bookies: Bookies,
    name: str,
    digest_type: DigestType | None = None,
    password: bytes = b"",
    mode: OpenMode = OpenMode.O_RDONLY,
    properties: dict[str, Any] | None = None,
    quorum: Quorum = SINGLE,
) -> Ledger:
    """Opens the ledger `name`.

    Args:
        bookies: the bookies known to this process, by their names in records.
        digest_type: of the ledger; None for its own, and for CRC32C of a new one.
        properties, quorum: of a new ledger; `properties`, if given, replace those of one opened with O_APPEND.
        mode: O_CREATE (with or without O_APPEND), O_APPEND, or O_RDONLY alone.

    Raises:
        LedgerExists, NoSuchLedger, LedgerSealed (O_APPEND), UnauthorizedAccess, WrongDigestType.
        ValueError: an inconsistent quorum, or a MAC without a password.
        LedgerFenced: another writer claimed it at the same time.
        NotEnoughBookies: too few bookies answered to recover the tail.
    """
    if OpenMode.O_RDONLY in mode and mode is not OpenMode.O_RDONLY:
        raise ValueError(f"{mode!r}: O_RDONLY goes alone")
    if OpenMode.O_CREATE in mode:
        digest = DigestType.CRC32C if digest_type is None else digest_type
        return await create_ledger(
            metadata, bookies, name, digest_type=digest, password=password, properties=properties, quorum=quorum
        )
    stored = await metadata.get(ledger_key(name))
    if stored is None:
        raise NoSuchLedger(f"there is no ledger {name!r}", "create it with O_CREATE")
    _checked(stored, password, digest_type)
    if OpenMode.O_APPEND in mode:
        return await claim_ledger(metadata, bookies, stored, password=password, properties=properties)
    ledger = adopt_ledger(metadata, bookies, stored, password=password)
    await ledger.ask_bookies()
    return ledger


async def create_ledger(
    metadata: Metadata,
    bookies: Bookies,
    name: str,
    *,
    digest_type: DigestType = DigestType.CRC32C,
    password: bytes = b"",
    properties: dict[str, Any] | None = None,
    quorum: Quorum = SINGLE,
    compare: Sequence[Compare] = (),
    also: Sequence[Operation] = (),
    followed: bool = True,
) -> Ledger:
    """Creates a ledger and opens it for append, in one write transaction that `compare` and `also` join.

    Args:
        followed: whether others may read the ledger while this handle writes. If not, the final last add confirmed is
            not sent to bookies: readers see the last entry only after the next add, and a claimer copies it again.

    Raises:
        LedgerExists: the name is taken, a bookie is about to leave, or a `compare` failed; nothing changed.
        NotEnoughBookies: fewer bookies than the ensemble needs.
    """
    quorum.check()
    secret = secret_of(password)
    if digest_type is DigestType.MAC and not secret:
        raise ValueError("DigestType.MAC takes its key from the password: give one")
    ensemble = ensemble_for(name, quorum, bookies.available(), bookies.known())
    if ensemble is None:
        raise NotEnoughBookies(
            f"ledger {name!r} needs {quorum.ensemble_size} bookies, {len(bookies.known())} are known and"
            f" {len(bookies.available())} take entries: start more of them"
        )
    places = ensemble_of(bookies, ensemble)
    record = LedgerRecord(
        quorum,
        (Fragment(FIRST_ENTRY, FIRST_SESSION, ensemble),),
        digest_type=digest_type,
        password_digest=password_digest(name, secret),
        properties=properties or {},
    )
    key = ledger_key(name)
    compare = (Compare.absent(key), *bookies.membership(ensemble), *compare)
    result = await metadata.txn(compare, (Put(key, record.encode()), *also))
    if not result.succeeded:
        raise LedgerExists(f"ledger {name!r} was not created: the name is taken, or a compared key has changed")
    created = result.results[0]
    assert isinstance(created, KeyValue), f"a transaction did not return the item that it put at {key!r}"
    ledger = Ledger(metadata, bookies, created, NO_ENTRY, secret)
    ledger.write_on(0, places, followed=followed)
    return ledger


def adopt_ledger(metadata: Metadata, bookies: Bookies, stored: KeyValue, *, password: bytes = b"") -> Ledger:
    """A reading handle from a record that was read before; sends no request.

    A sealed ledger can be read at once. In an open one, entries written since its last claim or change of bookies are
    not known to be confirmed before `refresh_lac` or `wait_for_lac`.

    Raises:
        UnauthorizedAccess: the password is not the ledger's.
    """
    record = _checked(stored, password)
    return Ledger(metadata, bookies, stored, record.confirmed, secret_of(password))


async def claim_ledger(
    metadata: Metadata,
    bookies: Bookies,
    stored: KeyValue,
    *,
    password: bytes = b"",
    properties: dict[str, Any] | None = None,
    compare: Sequence[Compare] = (),
    also: Sequence[Operation] = (),
    followed: bool = True,
) -> Ledger:
    """Opens for append the ledger whose record was read as `stored`: one write transaction, joined by `also`.

    Args:
        properties: the new properties, None to keep them.
        followed: see `create_ledger`.

    Raises:
        LedgerSealed, UnauthorizedAccess: nothing was read, written or fenced.
        LedgerFenced: another writer claimed it since `stored` was read, or a `compare` failed; read it and try again.
        NoSuchLedger: it was deleted since `stored` was read.
        NotEnoughBookies: too few bookies answered.
    """
    _checked(stored, password)
    written, found, places = await _claim(metadata, bookies, stored, properties, compare, also)
    ledger = Ledger(metadata, bookies, written, found.last_entry, secret_of(password))
    ledger.write_on(found.length_bytes, places, followed=followed)
    return ledger


async def end_fragment(metadata: Metadata, bookies: Bookies, stored: KeyValue) -> KeyValue:
    """Claims a ledger only to close its last fragment: needs no password, and fences the writer.

    Returns:
        The record as it was written.

    Raises:
        LedgerSealed, LedgerFenced, NotEnoughBookies: as `claim_ledger`.
    """
    written, *_ = await _claim(metadata, bookies, stored, None, (), ())
    return written


async def _claim(
    metadata: Metadata,
    bookies: Bookies,
    stored: KeyValue,
    properties: dict[str, Any] | None,
    compare: Sequence[Compare],
    also: Sequence[Operation],
) -> tuple[KeyValue, Recovered, Mapping[BookieId, Bookie]]:
    name, record = stored.key.removeprefix(LEDGERS), decode_record(stored.value)
    if record.sealed:
        raise LedgerSealed(f"ledger {name!r} is sealed", "open it with O_RDONLY")
    stored, found = await _recover(metadata, bookies, stored)
    session, ledger_id = SessionId(stored.version + 1), LedgerId(stored.create_revision)
    places = ensemble_of(bookies, found.bookies)  # raises for an unknown bookie before the record is changed
    claimed = records.claim(
        record, session, found.last_entry, bookies=found.bookies, without_orphans=found.without_orphans
    ).with_properties(properties)
    reports = () if found.complete else (missing_report(ledger_id, name),)
    stay = bookies.membership(name for name in found.bookies if name not in record.bookies)
    written = await replace_record(metadata, stored, claimed, (*stay, *compare), (*reports, *also))
    if written is None:
        raise LedgerFenced(f"ledger {name!r} was changed by another meanwhile: read its record and try again")
    return written[0], found, places


async def _recover(metadata: Metadata, bookies: Bookies, stored: KeyValue) -> tuple[KeyValue, Recovered]:
    """Finds a ledger's end under the session that its record's version gives; returns the record and the end."""
    name, record = stored.key.removeprefix(LEDGERS), decode_record(stored.value)
    while True:
        try:
            session = SessionId(stored.version + 1)
            return stored, await recover(bookies, LedgerId(stored.create_revision), name, record, session)
        except LedgerFenced as error:
            again = error.promised and await pass_promise(metadata, stored, error.promised)
            if not again:
                raise
            stored = again


def _checked(stored: KeyValue, password: bytes, digest_type: DigestType | None = None) -> LedgerRecord:
    name, record = stored.key.removeprefix(LEDGERS), decode_record(stored.value)
    if not password_fits(record, name, secret_of(password)):
        raise UnauthorizedAccess(f"wrong password for ledger {name!r}: nothing was read, written or fenced")
    if digest_type is not None and digest_type is not record.digest_type:
        raise WrongDigestType(
            f"ledger {name!r} has the digest type {record.digest_type.name}, not {digest_type.name}",
            "give that one, or none",
        )
    return record


def check_copy(ledger: Ledger, entry: EntryId, value: bytes) -> memoryview:
    """The payload of an entry in its stored form that did not come from a bookie; `EntryCache.keeper` then accepts it.

    Raises:
        DigestMismatch: the value is another entry, or damaged.
        NoSuchEntry: the value is an orphan of a dead writer; the ledger has another entry under this id.
    """
    stored = decode_entry(ledger.id, entry, memoryview(value))
    if stored.session < ledger.record.fragment_of(entry).session:
        raise NoSuchEntry(ledger.id, entry)
    return stored.payload if ledger.mac is None else ledger.mac.open(entry, stored.payload)


async def delete_ledger(metadata: Metadata, bookies: Bookies, name: str, password: bytes = b"") -> None:
    """Deletes a ledger; its bytes are freed before this returns at reachable bookies, otherwise by collection.

    Raises:
        NoSuchLedger, UnauthorizedAccess.
    """
    ledger: LedgerId | None = None
    while True:
        stored = await metadata.get(ledger_key(name))
        if stored is None or ledger not in (None, LedgerId(stored.create_revision)):
            raise NoSuchLedger(f"there is no ledger {name!r} to delete")
        ledger, record = LedgerId(stored.create_revision), _checked(stored, password)
        if await delete_ledgers(metadata, (stored,)):
            break  # otherwise its record was changed meanwhile
    for bookie in record.bookies:
        with suppress(LedgerError, WorldError):
            await known_bookie(bookies, bookie).delete(ledger)


async def take_back_ledger(metadata: Metadata, ledger: Ledger) -> None:
    """Deletes a ledger that was just created and is not wanted, unless somebody has claimed it since."""
    key = ledger_key(ledger.name)
    same = Compare(key, KeyField.CREATE_REVISION, ledger.id)
    await metadata.txn((same, Compare.version(key, FIRST_SESSION)), (Delete(key),))


async def delete_ledgers(
    metadata: Metadata,
    stored: Sequence[KeyValue],
    *,
    compare: Sequence[Compare] = (),
    also: Sequence[Operation] = (),
) -> bool:
    """Deletes several ledgers' records, as they were read, in one transaction; their bytes go at the next collection.

    Returns:
        False if one was changed since, or a `compare` failed: nothing was deleted.
    """
    unchanged = [Compare(item.key, KeyField.MOD_REVISION, item.mod_revision) for item in stored]
    result = await metadata.txn((*unchanged, *compare), (*(Delete(item.key) for item in stored), *also))
    return result.succeeded


async def list_ledgers(metadata: Metadata, prefix: str = "") -> list[tuple[str, LedgerRecord]]:
    """Names and records of the ledgers whose name begins with `prefix`, in order of name."""
    found = await metadata.range(ledger_key(prefix))
    return [(item.key.removeprefix(LEDGERS), decode_record(item.value)) for item in found.items]
