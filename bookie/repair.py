"""Bringing the copies of a ledger's closed fragments back to their write quorum.

1. Only what is permanent is copied: entries of closed fragments, and of the last one up to the last add confirmed that
   its bookies have heard of. A tail that was not recovered is never copied.
2. A copy keeps the session that wrote it, and is there durably before the record names its new bookie.
3. The record is changed by comparing its version. The ledger's writer makes its own changes on the newer record, and so
   does repair where the fragment still is what was copied, up to the same last entry: a claim may have made it longer.
4. What is copied is bounded in bytes a second.
5. What a bookie has of a fragment that does not name it is overwritten: it may be a dead writer's, left there while the
   bookie was away, and the bounds that excluded it were dropped once those that are named had removed theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from gnomon.bookie.client import PRESENT_ENTRIES_MAX, Bookie, Bookies, known_bookie
from gnomon.bookie.copies import BATCH_BYTES_MAX, read_run
from gnomon.bookie.errors import EntryShrunk
from gnomon.bookie.held_record import replace_record
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, Session
from gnomon.bookie.lac import ask_confirmed
from gnomon.bookie.placement import place
from gnomon.bookie.record import Fragment, decode_record, replace_bookie
from gnomon.metadata.client import Compare, KeyValue, Metadata, Put
from gnomon.runtime.world import Clock

MISSING: Final = "missing/"
"""Prefix of the metadata keys that name ledgers of which a bookie may lack entries, for the auditor."""


def missing_report(ledger: LedgerId, name: str) -> Put:
    """Tells the auditor that a bookie may lack entries of a ledger."""
    return Put(f"{MISSING}{ledger}", name.encode())


class Throttle:
    """So many bytes a second, over all that an auditor copies."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.copied_bytes = 0
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0

    async def spend(self, count: int) -> None:
        """Waits until `count` bytes more may be copied."""
        self.copied_bytes += count
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + count / self._bytes_per_second
        if self._free_at > now:
            await self._clock.sleep(self._free_at - now)


class LedgerRepair:
    """The repair of one ledger, by its record as it was read."""

    def __init__(self, metadata: Metadata, bookies: Bookies, stored: KeyValue, name: str, throttle: Throttle) -> None:
        self.name = name
        self.id = LedgerId(stored.create_revision)
        self.record = decode_record(stored.value)
        self._metadata = metadata
        self._bookies = bookies
        self._stored = stored
        self._throttle = throttle

    def closed_fragments(self) -> Iterator[tuple[Fragment, EntryId]]:
        """Each fragment that takes no entries any more, with its last entry."""
        fragments = self.record.fragments
        for fragment, after in pairwise(fragments):
            yield fragment, EntryId(after.first_entry - 1)
        if self.record.sealed:
            yield fragments[-1], self.record.last_entry

    def can_replace_in_open_fragment(self, lost: Collection[BookieId]) -> bool:
        """Whether the fragment that is written to names one of these, and another bookie can take its place."""
        fragment = self.record.fragments[-1]
        named = [name for name in fragment.bookies if name in lost]
        return not self.record.sealed and any(self._target(fragment, name) is not None for name in named)

    async def move_from(self, lost: BookieId) -> bool:
        """Copies what `lost` has of the closed fragments to other bookies, and names those in its place.

        Returns:
            Whether no closed fragment names it any more; not where no other bookie takes entries, or the fragment was
            changed meanwhile.

        Raises:
            LedgerError, WorldError: entries could not be read or copied.
            MetadataError: the record could not be written.
        """
        for fragment, last in list(self.closed_fragments()):
            if lost not in fragment.bookies:
                continue
            target = self._target(fragment, lost)
            if target is None:
                return False
            stays = self._bookies.membership((target,))  # it has what is copied now
            await self._copy(fragment, last, fragment.bookies.index(lost), target)
            if not await self._replace(fragment, last, lost, target, stays):
                return False
        return True

    def _target(self, fragment: Fragment, lost: BookieId) -> BookieId | None:
        available = self._bookies.available()
        beside = [(name, available.get(name, "")) for name in fragment.bookies]
        chosen = place(self.name, available, 1, beside=beside, without=(lost,))
        return chosen[0] if chosen else None

    async def _replace(
        self, fragment: Fragment, last: EntryId, lost: BookieId, target: BookieId, compare: Sequence[Compare]
    ) -> bool:
        """Names `target` there, also where the record was changed meanwhile, but for this fragment: see invariant 3."""
        while (fragment, last) in self.closed_fragments():
            changed = replace_bookie(self.record, fragment.first_entry, lost, target)
            written = await replace_record(self._metadata, self._stored, changed, compare)
            if written is not None:
                self._stored, self.record = written[0], changed
                return True
            stored = await self._metadata.get(self._stored.key)
            if stored is None or LedgerId(stored.create_revision) != self.id or stored.version == self._stored.version:
                return False
            self._stored, self.record = stored, decode_record(stored.value)
        return False

    async def fill_gaps(self) -> bool:
        """Copies to each bookie what it lacks of its own entries.

        Returns:
            Whether every bookie of the record was asked and has all that is known to be confirmed.

        Raises:
            LedgerError, WorldError: as `move_from`.
        """
        complete = True
        for fragment, last in [*self.closed_fragments(), *await self._open_fragment()]:
            for index, name in enumerate(fragment.bookies):
                if name not in self._bookies.available():
                    complete = False
                    continue
                await self._copy(fragment, last, index, name)
        return complete

    async def _open_fragment(self) -> list[tuple[Fragment, EntryId]]:
        if self.record.sealed:
            return []
        fragment = self.record.fragments[-1]
        heard = EntryId(fragment.first_entry - 1)
        for told in await ask_confirmed(self._bookies, self.id, fragment.bookies):
            if told.session <= self.record.session:
                heard = max(heard, told.entry)
        return [(fragment, heard)]

    async def _copy(self, fragment: Fragment, last: EntryId, index: int, target: BookieId) -> None:
        """Brings the entries of one index of a fragment to `target`, but those that it is known to have."""
        bookie = known_bookie(self._bookies, target)
        named = target in fragment.bookies  # else nothing that it has counts: invariant 5
        first = EntryId(max(fragment.first_entry, self.record.start_entry))
        while first <= last:
            end = EntryId(min(last, first + PRESENT_ENTRIES_MAX - 1))
            runs = await bookie.present(self.id, first, end, fragment.session) if named else []
            there = {entry for start, stop in runs for entry in range(start, stop + 1)}
            wanted = [
                entry
                for entry in map(EntryId, range(first, end + 1))
                if entry not in there and index in self.record.quorum.write_set(entry)
            ]
            for stretch in _stretches(wanted, self.record.quorum.ensemble_size):
                await self._copy_entries(bookie, stretch)
            first = EntryId(end + 1)

    async def _copy_entries(self, bookie: Bookie, wanted: list[EntryId]) -> None:
        """Copies entries that lie together, many in one read.

        Those that were read one by one would be asked for at the bookie that is gone first, each with a wait: 1 MB/s.
        """
        at = 0
        while at < len(wanted):
            first = wanted[at]
            try:
                run = await read_run(self._bookies, self.id, self.record, first, wanted[-1], BATCH_BYTES_MAX)
            except EntryShrunk:
                at += 1  # given up meanwhile
                continue
            batch: list[tuple[EntryId, bytes]] = []
            while at < len(wanted) and wanted[at] < first + len(run):
                batch.append((wanted[at], bytes(run[wanted[at] - first].value)))
                at += 1
            await bookie.put_copies(self.id, Session(self.record.session), batch)
            await self._throttle.spend(sum(len(value) for _, value in batch))


def _stretches(entries: list[EntryId], gap_max: int) -> list[list[EntryId]]:
    """The same in lists whose neighbours are at most `gap_max` apart: what is striped leaves gaps."""
    stretches: list[list[EntryId]] = []
    for entry in entries:
        if not stretches or entry - stretches[-1][-1] > gap_max:
            stretches.append([])
        stretches[-1].append(entry)
    return stretches
