"""Refuses ledgers and sessions that the metadata cannot have given: a promise for one would bar every honest writer.

1. A ledger's id is a revision of the metadata. Its session is a version of its record, or the next one. So at revision
   R no ledger has an id above R, and none has a session above R - id + 2.
2. A call beyond that is refused only by a revision that was read after the call arrived: its caller has read a record
   of at most that revision. So no honest caller is refused.
3. While the metadata does not answer, such a call ends with an error that says nothing about the ledger; the caller
   tries again.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from gnomon.bookie.errors import SessionUnknown
from gnomon.bookie.ids import BookieId, LedgerId, SessionId
from gnomon.bookie.registration import COOKIES
from gnomon.metadata.client import Metadata, MetadataError, Revision


class SessionBound:
    """The sessions that are possible, as far as one bookie knows."""

    def __init__(self, metadata: Metadata, bookie: BookieId, revision: Revision) -> None:
        """Knows that the metadata has reached `revision`."""
        self._metadata, self._key = metadata, COOKIES + bookie
        self._revision = revision
        self._reading = trio.Lock()

    def allows(self, ledger: int, session: int) -> bool:
        """Whether the metadata can have given this session, by the revision that is known."""
        return ledger <= self._revision and session <= self._revision - ledger + 2

    async def check(self, given: Iterable[tuple[LedgerId, SessionId]]) -> None:
        """Checks ledgers and sessions of a call that has arrived, by a revision that is read now.

        Raises:
            SessionUnknown: the metadata has not given one of them, or does not answer.
        """
        async with self._reading:
            unknown = [pair for pair in given if not self.allows(*pair)]
            if not unknown:
                return
            ledger, session = unknown[0]
            try:
                self._revision = (await self._metadata.range(self._key)).revision
            except MetadataError as error:
                text = f"session {session} of ledger {ledger} could not be checked: {error}: try again"
                raise SessionUnknown(text) from error
            for ledger, session in unknown:
                if not self.allows(ledger, session):
                    raise SessionUnknown(
                        f"the metadata has not given session {session} of ledger {ledger}: its revision is"
                        f" {self._revision}; open the ledger again"
                    )
