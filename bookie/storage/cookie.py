"""Checks that a bookie's disk and the metadata belong together.

Each disk gets a random cookie at its first use, and the metadata keeps a copy under the bookie's name. A disk without a
cookie, under a name that has one, was replaced or wiped: its bookie may have lost synced entries, so it must never
answer that an entry does not exist. A disk that belongs to another name is an error, and so is a disk with ledgers if
the metadata does not know its name: serving it would delete or mix up the data of others.

After a bookie was decommissioned, its name may be used for a new disk. The old and the new disk differ in the metadata
revision at which each was first used under the name (`DiskMembership.disk`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from gnomon.bookie.errors import ForeignDisk
from gnomon.bookie.ids import BookieId, LedgerId
from gnomon.bookie.registration import COOKIES
from gnomon.bookie.storage.entry_store import ENTRIES, STATES
from gnomon.bookie.storage.removal import damaged_state, stored_ledgers
from gnomon.metadata.client import Compare, Get, KeyValue, Metadata, Put, Revision
from gnomon.runtime.world import Environment, RandomStream

_COOKIE_KEY: Final = b"cookie"
_COOKIE_BITS: Final = 128


class DiskMembership(NamedTuple):
    """The membership of a bookie's disk, from the metadata."""

    disk: Revision
    """The revision of the disk's first use under this name: no other disk of the name, before or after, has it."""
    lost: str | None
    """Why the checked disk may have lost synced entries (the store's `may_have_lost`), None for the right disk."""


async def check_cookie(
    metadata: Metadata, environment: Environment, bookie: BookieId, stream: RandomStream
) -> DiskMembership:
    """Checks, and at first use writes, the cookie of the disk in `environment` for the bookie of this name.

    Raises:
        ForeignDisk: it is another bookie's disk, or the metadata does not know it although it holds ledgers, or it is
            damaged.
        DiskFull, DiskFailed: the cookie could not be written.
    """
    states: Any = environment.databases[STATES]
    with environment.read() as transaction:
        damaged = damaged_state(transaction, states)
        if damaged is not None:
            raise ForeignDisk(
                f"the disk of bookie {bookie!r} is damaged: what it has stored about ledger {damaged} is not what was "
                "written; put a copy of it back, or give the bookie up with `gnomon bookie decommission`"
            )
        found = transaction.get(_COOKIE_KEY, db=states)
        on_disk = None if found is None else bytes(found)
        in_use = bool(stored_ledgers(transaction, environment.databases[ENTRIES], states, LedgerId(0), 1))
    known = await metadata.get(COOKIES + bookie)
    if known is None:
        if in_use:
            raise ForeignDisk(
                f"the disk of bookie {bookie!r} holds ledgers, but the metadata does not know it: point it to the"
                " metadata it was used with, or restore that; after a decommission, empty its directory"
            )
        cookie = on_disk or stream.getrandbits(_COOKIE_BITS).to_bytes(_COOKIE_BITS // 8, "big")
        await environment.commit(lambda transaction: transaction.put(_COOKIE_KEY, cookie, db=states))
        key = COOKIES + bookie
        result = await metadata.txn((Compare.absent(key),), (Put(key, cookie),), (Get(key),))
        there = result.results[0]  # written now, by another process, or by an unanswered attempt of ours
        assert isinstance(there, KeyValue), f"a transaction did not return the item at {key!r}"
        if there.value != cookie:
            raise ForeignDisk(f"another disk took the name {bookie!r} just now: give each bookie a name of its own")
        return DiskMembership(there.create_revision, None)
    if on_disk is None:
        why = f"bookie {bookie!r} was used before with another disk than this new one; put that back, or repair it"
        return DiskMembership(known.create_revision, why)
    if on_disk != known.value:
        raise ForeignDisk(f"this is not the disk of bookie {bookie!r}: its cookie is another one; check the directory")
    return DiskMembership(known.create_revision, None)
