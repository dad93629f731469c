"""A ledger's metadata record as one handle of this process holds it, and the handle's changes of the record.

1. Each change is one transaction that compares the record's version with the held one. So a writer can change nothing
   after another writer's claim was recorded.
2. The held record is replaced only by a newer version of itself, never by the record of a new ledger with the same
   name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import trio

from gnomon.bookie.errors import LedgerFenced, NoSuchLedger
from gnomon.bookie.ids import EntryId, LedgerId, SessionId
from gnomon.bookie.record import LEDGERS, LedgerRecord, decode_record
from gnomon.metadata.client import (
    Compare,
    Get,
    HistoryCompacted,
    KeyField,
    KeyValue,
    Metadata,
    Operation,
    Put,
    Revision,
)

Results: TypeAlias = tuple[KeyValue | int | None, ...]

VERSIONS_BEHIND_MAX: Final = 1000
"""The most versions by which a restored record is advanced: a bookie promises SESSION_MAX for a deleted ledger, which
no record can reach."""


class HeldRecord:
    """The record of one ledger; see the module's invariants."""

    def __init__(self, metadata: Metadata, stored: KeyValue) -> None:
        """Holds the record in `stored`, as it was last read or written."""
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
        """The lock for changes of the record; created on demand, because it takes as much memory as the handle."""
        if self._changes is None:
            self._changes = trio.Lock()
        return self._changes

    @property
    def session(self) -> SessionId:
        """The session of the last claim known to this handle: its own, if it writes."""
        return self.record.session

    @property
    def properties(self) -> dict[str, Any]:
        """The record's properties; change them with `update`."""
        return self.record.properties

    @property
    def start_entry(self) -> EntryId:
        """The first entry after all shrinks."""
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
            NoSuchLedger: the ledger was deleted.
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
        """Puts the record as changed by `modify` if its session is still this handle's; returns the results of `also`.

        Others may change a record beside its writer (the auditor does): then `modify` is applied to their version.

        Args:
            joining: returns further comparisons, which depend on the record of the attempt.
        """
        while True:
            compared = (*joining(), *compare)
            written = await replace_record(self._metadata, self._stored, modify(self.record), compared, also)
            if written is not None:
                self._refresh(written[0])
                return written[1:]
            stored = await self._read()
            if not self._still_this_session(stored):
                raise LedgerFenced(
                    f"ledger {self.name!r} was not changed: another writer has claimed it, or something else that was"
                    " compared had changed; open it again"
                )
            self._refresh(stored)

    def _still_this_session(self, stored: KeyValue) -> bool:
        """Whether a record was changed meanwhile, and has the same writer as the one held."""
        changed = stored.version != self._stored.version
        return changed and decode_record(stored.value).session == self.record.session

    async def _changed(self) -> KeyValue | None:
        """Waits for another version of the record than the one held; None when it was deleted.

        The version held may be older than the history of the metadata: the watch starts at the revision of a fresh
        read.
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
            except HistoryCompacted:
                pass
            found = await self._metadata.txn((), (Get(key),))  # also returns the revision
            (current,) = found.results
            if not isinstance(current, KeyValue) or current.mod_revision != held:
                return current if isinstance(current, KeyValue) else None
            since = found.revision

    async def _read(self) -> KeyValue:
        """Reads the current record, for `_refresh`; raises the same errors."""
        return self._living(await self._metadata.get(self._stored.key))

    def _refresh(self, stored: KeyValue | None) -> None:
        """Holds a record that was read, if it is newer than the one held.

        Raises:
            NoSuchLedger: the ledger does not exist any more.
        """
        stored = self._living(stored)
        if stored.mod_revision > self._stored.mod_revision:  # otherwise another task was quicker
            self.record, self._stored = decode_record(stored.value), replace(stored, value=b"")

    def _living(self, stored: KeyValue | None) -> KeyValue:
        if stored is None or LedgerId(stored.create_revision) != self.id:
            raise NoSuchLedger(f"ledger {self.name!r} was deleted")
        return stored


async def pass_promise(metadata: Metadata, stored: KeyValue, promised: SessionId) -> KeyValue | None:
    """Rewrites a record unchanged until a claim of it has a session above one that a bookie has promised.

    A claimer makes bookies promise the version of the record plus one. If a bookie has promised more than that for a
    current record, the record was restored from an older copy of the metadata. Without this function its ledger could
    never be claimed again.

    Returns:
        The record as it was written last; None if it was changed since it was read, or would need too many versions.
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
    """Replaces `stored` by `record`, in one transaction that `compare` and `also` join.

    Returns:
        The record as it was written, and the results of `also`; None if it was changed since it was read, or a
        `compare` failed: nothing changed.
    """
    unchanged = Compare.version(stored.key, stored.version)
    same_life = Compare(stored.key, KeyField.CREATE_REVISION, stored.create_revision)
    result = await metadata.txn((unchanged, same_life, *compare), (Put(stored.key, record.encode()), *also))
    if not result.succeeded:
        return None
    written, *others = result.results
    assert isinstance(written, KeyValue), f"a transaction did not return the item that it put at {stored.key!r}"
    return written, *others
