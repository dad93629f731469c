"""Refuses ledgers and sessions that the metadata has not given: a promise for one would bar every honest writer.

1. A ledger's id is a revision of the metadata. Its session is a version of its record, or the next one during a claim.
   So a ledger above the metadata's revision was not given, nor was a session above the record's version plus one.
2. A call beyond that is refused only by a revision or a record that was read after the call arrived: its caller has
   read no later one. So no honest caller is refused.
3. While the metadata does not answer, such a call ends with an error that says nothing about the ledger; the caller
   tries again.
4. The metadata is asked only if a session rises: not about a session that the store has promised already, and not about
   sessions 1 and 2, since every record has a version. One read serves all calls that wait for it.
5. A ledger without a record at a revision from its id on is deleted for good: ids are never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import trio

from gnomon.bookie.errors import Fenced, LedgerError, SessionUnknown
from gnomon.bookie.ids import FIRST_SESSION, SESSION_MAX, BookieId, LedgerId, SessionId
from gnomon.bookie.record import LEDGERS
from gnomon.bookie.registration import COOKIES
from gnomon.metadata.client import Get, KeyValue, Metadata, MetadataError, Revision

Given: TypeAlias = tuple[int, int]
"""A ledger and a session, as a peer has sent them."""

READ_AT_ONCE: Final = 100
"""Records read in one transaction: an etcd allows 128 operations."""
LISTED_PER_TURN: Final = 5_000
"""A loop over all records yields to other tasks after this many: one takes some 0.5 us."""


class _RecordRead:
    """One read of the metadata, for all calls that wait for it."""

    def __init__(self) -> None:
        self.asked: set[Given] = set()
        self.over = False
        self.failure: MetadataError | None = None


class SessionBound:
    """The sessions that are possible, as far as one bookie knows."""

    def __init__(
        self,
        metadata: Metadata,
        bookie: BookieId,
        revision: Revision,
        promised: Callable[[LedgerId], SessionId],
    ) -> None:
        """Knows that the metadata has reached `revision`; `promised` gives the promise of the bookie's store."""
        self._metadata, self._key = metadata, COOKIES + bookie
        self._revision = revision
        self._promised = promised
        self._listed_at = Revision(0)
        self._keys: dict[int, str] = {}
        """The keys of all records at the revision `_listed_at`; it is read when it is needed first."""
        self._versions: dict[int, int] = {}
        """Versions that records have had, where they are known to be above the first."""
        self._next = _RecordRead()
        self._reading = trio.Lock()

    def allows(self, ledger: int, session: int) -> bool:
        """Whether the metadata has given this session, by all that was read and by the promises of the store."""
        return ledger <= self._revision and (
            session <= self._versions.get(ledger, FIRST_SESSION) + 1 or session <= self._promised(LedgerId(ledger))
        )

    async def check(self, given: Iterable[Given]) -> None:
        """Checks ledgers and sessions of a call that has arrived, by records that are read now.

        Raises:
            SessionUnknown: the metadata has not given one of them, or does not answer.
            Fenced: the ledger is deleted.
        """
        unknown = [pair for pair in given if not self.allows(*pair)]
        if not unknown:
            return
        read = self._next
        read.asked.update(unknown)
        async with self._reading:
            if not read.over:
                if read is self._next:  # otherwise the call that began to read it was cancelled
                    self._next = _RecordRead()
                try:
                    await self._read(read.asked)
                except MetadataError as error:
                    read.failure = error
                read.over = True
        for pair in unknown:
            if not self.allows(*pair):
                raise self._refusal(*pair, read.failure)

    def _refusal(self, ledger: int, session: int, failure: MetadataError | None) -> LedgerError:
        if failure is not None:
            return SessionUnknown(f"session {session} of ledger {ledger} could not be checked: {failure}: try again")
        if ledger > self._revision:
            known = f"its revision is {self._revision}"
        elif ledger not in self._keys:
            return Fenced(LedgerId(ledger), SessionId(session), SESSION_MAX)
        else:
            known = f"the version of its record is {self._versions.get(ledger, FIRST_SESSION)}"
        return SessionUnknown(
            f"the metadata has not given session {session} of ledger {ledger}: {known}; open the ledger again"
        )

    async def _read(self, asked: Iterable[Given]) -> None:
        """Reads the revision, the records of these ledgers, or all records: as little as decides."""
        if any(ledger > self._revision for ledger, _ in asked):
            self._revision = (await self._metadata.range(self._key)).revision
        rising = {ledger for ledger, session in asked if not self.allows(ledger, session) and ledger <= self._revision}
        if any(ledger > self._listed_at for ledger in rising):
            await self._list()
        else:
            listed = sorted(rising & self._keys.keys())
            for at in range(0, len(listed), READ_AT_ONCE):
                await self._read_records(listed[at : at + READ_AT_ONCE])

    async def _read_records(self, ledgers: Sequence[int]) -> None:
        found = await self._metadata.txn((), [Get(self._keys[ledger]) for ledger in ledgers])
        for ledger, item in zip(ledgers, found.results, strict=True):
            if isinstance(item, KeyValue) and item.create_revision == ledger:
                self._versions[ledger] = item.version
            else:
                del self._keys[ledger]
                self._versions.pop(ledger, None)

    async def _list(self) -> None:
        found = await self._metadata.range(LEDGERS)
        keys: dict[int, str] = {}
        versions: dict[int, int] = {}
        for count, item in enumerate(found.items):
            if count % LISTED_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            ledger = item.create_revision
            keys[ledger] = item.key
            if item.version > FIRST_SESSION:
                versions[ledger] = item.version
        self._keys, self._versions = keys, versions
        self._revision = self._listed_at = found.revision
