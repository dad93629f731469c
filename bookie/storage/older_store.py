"""Makes an older copy of a bookie's store fit to serve, and waits until it is repaired; `older_copy` has the rule.

`bookies-older/<name>` in the metadata holds the reason while the copy is not repaired, and nothing after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gnomon.bookie.errors import ForeignDisk, UnreadableRecord
from gnomon.bookie.ids import ENTRY_MAX, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import LEDGERS, LedgerRecord, decode_record
from gnomon.bookie.registration import COOKIES, OLDER, REPAIRED
from gnomon.bookie.storage import removal
from gnomon.bookie.storage.entry_store import ENTRIES, STATES
from gnomon.bookie.storage.older_copy import OlderCopy, has_orphans, promise_again, remove_unproved
from gnomon.bookie.storage.stored_ledgers import LEDGERS_PER_TURN
from gnomon.metadata.client import Compare, KeyField, KeyValue, Metadata, MetadataError, Put, Revision
from gnomon.metadata.follower import RETRY_SECONDS
from gnomon.runtime.world import Clock, Environment, Freeing


async def copy_in_repair(metadata: Metadata, bookie: BookieId) -> OlderCopy | None:
    """The older copy that the bookie has served with before, and that is not repaired yet.

    Raises:
        MetadataError: it could not be read.
    """
    item = await metadata.get(OLDER + bookie)
    if item is None or item.value == REPAIRED:
        return None
    return OlderCopy(item.value.decode(), LedgerId(item.mod_revision))


async def admit(metadata: Metadata, environment: Environment, bookie: BookieId, disk: Revision, why: str) -> OlderCopy:
    """Makes an older copy fit to serve.

    Args:
        disk: see `DiskMembership.disk`.
        why: for operators.

    Raises:
        ForeignDisk: the bookie was dismissed meanwhile.
        MetadataError, DiskFull, DiskFailed: it is not; the next start begins again.
    """
    revision = await _say(metadata, bookie, disk, why.encode())
    records = await _promise_again(metadata, environment, bookie)
    for ledger in _stored(environment):
        if has_orphans(records.get(ledger)):
            await _examine(environment, ledger)
    return OlderCopy(why, LedgerId(revision))


async def accept(metadata: Metadata, environment: Environment, bookie: BookieId, disk: Revision) -> None:
    """Takes an older copy for the newest one, because an operator says so: the entries that it lacks are lost.

    Raises:
        ForeignDisk, MetadataError, DiskFull, DiskFailed: it is not accepted.
    """
    await _promise_again(metadata, environment, bookie)
    await _say(metadata, bookie, disk, REPAIRED)


async def _say(metadata: Metadata, bookie: BookieId, disk: Revision, value: bytes) -> Revision:
    """Writes the bookie's key, if it is a member with this disk: the next disk of its name is no older copy."""
    member = Compare(COOKIES + bookie, KeyField.CREATE_REVISION, disk)
    result = await metadata.txn((member,), (Put(OLDER + bookie, value),))
    if not result.succeeded:
        raise ForeignDisk(f"bookie {bookie!r} was dismissed just now: start it on an empty directory")
    return result.revision


async def _promise_again(
    metadata: Metadata, environment: Environment, bookie: BookieId
) -> Mapping[LedgerId, LedgerRecord | None]:
    """Makes the promises of `promise_again` durable; returns all records, None for those that cannot be read."""
    items = (await metadata.range(LEDGERS)).items
    records = {LedgerId(item.create_revision): _record(item) for item in items}
    for at in range(0, len(items), removal.CHUNK_ENTRIES):
        promises = []
        for item in items[at : at + removal.CHUNK_ENTRIES]:
            ledger = LedgerId(item.create_revision)
            promises.append((ledger, promise_again(records[ledger], item.version, bookie)))
        await environment.commit(Freeing(partial(_save, environment.databases[STATES], promises)))
    return records


def _save(states: Any, promises: Sequence[tuple[LedgerId, SessionId]], transaction: Any) -> None:
    for ledger, session in promises:
        removal.save_promise(transaction, states, ledger, session)


def _record(item: KeyValue) -> LedgerRecord | None:
    try:
        return decode_record(item.value)
    except UnreadableRecord:
        return None


def _stored(environment: Environment) -> list[LedgerId]:
    found: list[LedgerId] = []
    entries, states = environment.databases[ENTRIES], environment.databases[STATES]
    with environment.read() as transaction:
        while True:
            first = LedgerId(found[-1] + 1) if found else LedgerId(0)
            some = removal.stored_ledgers(transaction, entries, states, first, LEDGERS_PER_TURN)
            found += some
            if len(some) < LEDGERS_PER_TURN:
                return found


async def _examine(environment: Environment, ledger: LedgerId) -> None:
    entries: Any = environment.databases[ENTRIES]
    proved: dict[SessionId, EntryId] = {}
    end: EntryId | None = ENTRY_MAX
    while end is not None:
        chunk = partial(remove_unproved, entries=entries, ledger=ledger, end=end, proved=proved)
        _, end = await environment.commit(Freeing(chunk))


async def until_repaired(metadata: Metadata, clock: Clock, bookie: BookieId, copy: OlderCopy) -> None:
    """Waits until the metadata says that the copy is repaired."""
    key = OLDER + bookie
    while True:
        try:
            found = await metadata.range(key)
            item = next((item for item in found.items if item.key == key), None)
            if item is not None and item.mod_revision > copy.last_ledger and item.value == REPAIRED:
                return
            async with metadata.watch(key, Revision(found.revision + 1)) as batches:
                await anext(batches)
        except MetadataError:
            await clock.sleep(RETRY_SECONDS)
