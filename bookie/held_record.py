"""A ledger's record as this process knows it, and how it is changed.

1. Each change is one transaction that compares the version read before, so a writer that was claimed away from can
   change nothing.
2. What is held goes forward only, and never over to another life of the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import trio

from gnomon.bookie.errors import LedgerFenced, NoSuchLedger
from gnomon.bookie.ids import EntryId, LedgerId, Session
from gnomon.bookie.record import LEDGERS, LedgerRecord, decode_record
from gnomon.metadata.client import Compacted, Compare, Field, Get, KeyValue, Metadata, Operation, Put, Revision

Results: TypeAlias = tuple[KeyValue | int | None, ...]

VERSIONS_BEHIND_MAX: Final = 1000
"""What a record that was put back is made up for: a bookie that was told to delete a ledger promises all there are."""


class HeldRecord:
    """The record of one ledger; see the module's invariants."""

    def __init__(self, metadata: Metadata, stored: KeyValue) -> None:
        """Holds the record as it was read or written last, in `stored`."""
        self.id = LedgerId(stored.create_revision)
        self.record = decode_record(stored.value)
        self._metadata = metadata
        self._stored = replace(stored, value=b"")  # it is in `record`
        self._changes: trio.Lock | None = None

    @property
    def name(self) -> str:
        """The ledger's name."""
        return self._stored.key.removeprefix(LEDGERS)

    @property
    def _changing(self) -> trio.Lock:
        """Held by whoever changes the record; most are never changed, and a lock takes as much as the handle."""
        if self._changes is None:
            self._changes = trio.Lock()
        return self._changes

    @property
    def session(self) -> Session:
        """The session of the last claim known to this handle: its own, where it writes."""
        return self.record.session

    @property
    def properties(self) -> dict[str, Any]:
        """The record's properties; change them with `update`."""
        return self.record.properties

    @property
    def start_entry(self) -> EntryId:
        """The first entry that was not shrunk away."""
        return self.record.start_entry

    async def update(
        self,
        properties: dict[str, Any],
        *,
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
    ) -> None:
        """Replaces the properties; `compare` and `also` join the transaction.

        Raises:
            LedgerFenced: the record was changed by another since it was read, or a `compare` failed; nothing changed.
        """
        async with self._changing:
            await self._change(lambda record: record.with_properties(properties), compare, also)

    async def _change(
        self,
        modify: Callable[[LedgerRecord], LedgerRecord],
        compare: Sequence[Compare] = (),
        also: Sequence[Operation] = (),
        *,
        joining: Callable[[], Sequence[Compare]] = tuple,
    ) -> Results:
        """Puts the record as `modify` makes it if its session is still this one's; gives the results of `also`.

        Others may change a record beside its writer (the auditor does): then the change is made to theirs.

        Args:
            joining: gives what is compared, too, because of what stands in the record then.
        """
        while True:
            compared = (*joining(), *compare)
            written = await replace_record(self._metadata, self._stored, modify(self.record), compared, also)
            if written is not None:
                self._refresh(written[0])
                return written[1:]
            stored = await self._metadata.get(self._stored.key)
            if not self._still_this_session(stored):
                raise LedgerFenced(
                    f"ledger {self.name!r} was not changed: another writer has claimed it, or something else that was"
                    " compared had changed; open it again"
                )
            self._refresh(stored)

    def _still_this_session(self, stored: KeyValue | None) -> bool:
        """Whether a record that was changed meanwhile has the same writer as the one held."""
        if stored is None or LedgerId(stored.create_revision) != self.id or stored.version == self._stored.version:
            return False
        return decode_record(stored.value).session == self.record.session

    async def _changed(self) -> KeyValue | None:
        """Waits for another version of the record than the one held; None when it was deleted.

        A record that has not changed for long is older than the history that is kept: it is watched from when that was
        seen.
        """
        key, held = self._stored.key, self._stored.mod_revision
        since = held
        while True:
            try:
                async with self._metadata.watch(key, Revision(since + 1)) as batches:
                    async for batch in batches:
                        for event in batch.events:
                            if event.key == key:
                                return event.current
            except Compacted:
                pass
            found = await self._metadata.txn((), (Get(key),))  # tells the revision, too
            (current,) = found.results
            if not isinstance(current, KeyValue) or current.mod_revision != held:
                return current if isinstance(current, KeyValue) else None
            since = found.revision

    async def _read(self) -> KeyValue:
        """The record as it is now, for `_refresh`; raises as that does."""
        return self._living(await self._metadata.get(self._stored.key))

    def _refresh(self, stored: KeyValue | None) -> None:
        """Holds a record that was read, if it is newer than the one held.

        Raises:
            NoSuchLedger: the ledger is not there any more.
        """
        stored = self._living(stored)
        if stored.mod_revision > self._stored.mod_revision:  # else somebody else was quicker
            self.record, self._stored = decode_record(stored.value), replace(stored, value=b"")

    def _living(self, stored: KeyValue | None) -> KeyValue:
        if stored is None or LedgerId(stored.create_revision) != self.id:
            raise NoSuchLedger(f"ledger {self.name!r} was deleted")
        return stored


async def pass_promise(metadata: Metadata, stored: KeyValue, promised: Session) -> KeyValue | None:
    """Writes a record again as it is until a claim of it has a session above one that a bookie has promised.

    A bookie promises no session before a record's version gave it: one that is behind was put back from an older copy
    of the metadata, and nobody could claim its ledger ever again.

    Returns:
        The record as it was written last; None where it was changed since it was read, or is too far behind.
    """
    if promised - stored.version > VERSIONS_BEHIND_MAX:
        return None
    record = decode_record(stored.value)
    while stored.version < promised:
        written = await replace_record(metadata, stored, record)
        if written is None:
            return None
        stored = written[0]
    return stored


async def replace_record(
    metadata: Metadata,
    stored: KeyValue,
    record: LedgerRecord,
    compare: Sequence[Compare] = (),
    also: Sequence[Operation] = (),
) -> tuple[KeyValue, *Results] | None:
    """Puts `record` in the place of `stored`, in one transaction that `compare` and `also` join.

    Returns:
        The record as it was written, and the results of `also`; None where it was changed since it was read, or a
        `compare` failed: nothing changed.
    """
    unchanged = Compare.version(stored.key, stored.version)
    same_life = Compare(stored.key, Field.CREATE_REVISION, stored.create_revision)
    result = await metadata.txn((unchanged, same_life, *compare), (Put(stored.key, record.encode()), *also))
    if not result.succeeded:
        return None
    written, *others = result.results
    assert isinstance(written, KeyValue), f"a transaction did not say what it put at {stored.key!r}"
    return written, *others
