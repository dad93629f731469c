"""The age of a bookie's store: an older copy of the store, or of the metadata, is seen before it does harm.

1. The store and the metadata both keep the age of the store, a number that grows with each start, and once in
   GROW_SECONDS while entries are added. The store has a new age before the metadata has it. A bookie starts although
   the metadata has no room for the new age, and writes it there as soon as it has.
2. A store that is younger than the metadata knows it to be is an older copy: it may lack entries and promises that it
   has acknowledged. `older_copy` says how it serves. In its next run it is older than the metadata knows.
3. The store remembers the highest revision of the metadata that its bookie has seen; the id of a stored ledger is one,
   too. Metadata of a lower revision is an older copy: the bookie does not serve with such metadata, and keeps the
   ledgers that such metadata does not list.
4. A bookie removes nothing while the metadata does not list it as a member with this disk: otherwise metadata without
   content would say that no ledger exists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

from gnomon.bookie.errors import ForeignDisk
from gnomon.bookie.ids import BookieId
from gnomon.bookie.registration import AGES, COOKIES
from gnomon.bookie.storage.entry_store import ENTRIES, STATES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.metadata.client import Compare, KeyField, Metadata, MetadataError, MetadataFull, Put, Revision
from gnomon.runtime.world import Clock, DiskFull, Environment, Freeing

GROW_SECONDS: Final = 60.0
"""An older copy that was made in the same run is seen if the store grew older since."""

TELL_SECONDS: Final = 1.0
"""The time until an age that the metadata may not know is sent to it again."""
AGE_KEY: Final = b"age"
"""The record without which a store is an older copy."""
_SEEN: Final = b"seen"
_NUMBER: Final = struct.Struct(">Q")


class OlderStore(ForeignDisk):
    """The store is an older copy of itself, and there is no other one to repair it from."""


class OlderMetadata(ForeignDisk):
    """The metadata is an older copy of itself, or does not list the bookie any more."""


class Trust(Protocol):
    """Says whether the metadata may be believed."""

    async def check(self, revision: Revision) -> None:
        """Checks the metadata, of which `revision` was read, before data is removed on its word.

        Raises:
            OlderMetadata: nothing may be removed on its word.
            MetadataError: it cannot be read.
            DiskFull, DiskFailed: the revision could not be stored.
        """


class StoreAge:
    """The age of one store."""

    def __init__(self, metadata: Metadata, environment: Environment, bookie: BookieId, disk: Revision) -> None:
        self._metadata = metadata
        self._environment = environment
        self._states: Any = environment.databases[STATES]
        self._bookie = bookie
        self._disk = disk
        self._age = self._stored(AGE_KEY)
        self._told = True
        """Whether the metadata knows the age that the store has."""
        self._seen = max(self._stored(_SEEN), self._newest_ledger())

    def _stored(self, key: bytes) -> int:
        with self._environment.read() as transaction:
            found = transaction.get(key, db=self._states)
            return 0 if found is None else int(_NUMBER.unpack(found)[0])

    def _newest_ledger(self) -> int:
        with (
            self._environment.read() as transaction,
            transaction.cursor(db=self._environment.databases[ENTRIES]) as cursor,
        ):
            return ENTRY_KEY.unpack(cursor.key())[0] if cursor.last() else 0

    async def _store(self, key: bytes, number: int) -> None:
        value = _NUMBER.pack(number)
        # Like an operation that frees space, because it takes next to none: a bookie on a full disk starts too.
        await self._environment.commit(Freeing(lambda transaction: transaction.put(key, value, db=self._states)))

    async def compare(self, revision: Revision, *, accept_older_metadata: bool = False) -> str | None:
        """Checks whether the store or the metadata is an older copy; writes nothing.

        Args:
            revision: of the metadata, as read now.
            accept_older_metadata: an operator says that the metadata is to be believed although it is older.

        Returns:
            Why the store is an older copy; None if it is the newest one.

        Raises:
            OlderMetadata: the metadata is an older copy.
            MetadataError: they could not be compared.
        """
        item = await self._metadata.get(AGES + self._bookie)
        known = 0 if item is None else int(_NUMBER.unpack(item.value)[0])
        why = None
        if self._age < known:
            why = (
                f"the store of bookie {self._bookie!r} is an older copy: its age is {self._age}, the metadata knows "
                f"{known}: it may lack entries that were acknowledged"
            )
            self._age = known
        if accept_older_metadata:
            self._seen = min(self._seen, revision)
        self._check_revision(revision)
        return why

    async def begin(self, revision: Revision) -> None:
        """The store grows older, because a bookie starts on it.

        Raises:
            MetadataError, DiskFailed: the store may have grown older, and the metadata may not know it.
        """
        self._seen = revision  # lower than it was, if older metadata was accepted
        with suppress(DiskFull, MetadataFull):
            await self.grow()

    async def grow(self) -> None:
        """The store is older by one.

        Raises:
            MetadataError, DiskFull, DiskFailed: the store may have grown older, and the metadata may not know it.
        """
        self._age += 1
        await self._store(AGE_KEY, self._age)
        self._told = False
        await self._tell()

    async def _tell(self) -> None:
        # A bookie that was dismissed meanwhile must not leave an age: the next disk of its name would be an older copy.
        member = Compare(COOKIES + self._bookie, KeyField.CREATE_REVISION, self._disk)
        put = Put(AGES + self._bookie, _NUMBER.pack(self._age))
        found = await self._metadata.txn((member,), (put,))
        self._told = True
        await self._see(found.revision)

    async def grow_older(self, clock: Clock, entries_added: Callable[[], int]) -> NoReturn:
        """Grows older once in GROW_SECONDS while entries are added, until it is cancelled."""
        before = entries_added()
        while True:
            await clock.sleep(GROW_SECONDS if self._told else TELL_SECONDS)
            with suppress(MetadataError, DiskFull):  # it grows older, or the metadata is told, next time
                if not self._told:
                    await self._tell()
                elif entries_added() != before:
                    before = entries_added()
                    await self.grow()

    async def check(self, revision: Revision) -> None:
        """See `Trust.check`."""
        self._check_revision(revision)
        member = await self._metadata.get(COOKIES + self._bookie)
        if member is None or member.create_revision != self._disk:
            raise OlderMetadata(
                f"the metadata does not list this disk of bookie {self._bookie!r} any more: nothing is removed"
            )
        await self._see(revision)

    def _check_revision(self, revision: Revision) -> None:
        if revision < self._seen:
            raise OlderMetadata(
                f"the metadata is an older copy: its revision is {revision}, bookie {self._bookie!r} has seen "
                f"{self._seen}: put the newest copy back, or set bookie.accept_older_metadata; nothing is removed"
            )

    async def _see(self, revision: Revision) -> None:
        if revision > self._seen:
            self._seen = revision
            await self._store(_SEEN, revision)
