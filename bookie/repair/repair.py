"""Copies a ledger's entries until each is again on as many bookies as its write quorum.

1. Only permanent entries are copied: those of closed fragments, and those of the open fragment up to the last add
   confirmed that its bookies know. Later entries are never copied: a claim decides whether they exist.
2. A copy keeps the session that wrote the entry, and is durable before the record names its new bookie.
3. Each change of the record compares the record's version. If the comparison fails, repair makes its change in the
   newer record, provided that the copied fragment is unchanged there and has the same last entry: a claim may have
   extended it.
4. Copying is limited to a number of bytes per second. An entry that is only listed counts as LISTED_ENTRY_BYTES.
5. Entries of a fragment at a bookie that the fragment does not name are overwritten. They may be an earlier writer's,
   left there when the bookie was away. The record possibly excludes such entries no longer: it drops their bound once
   the named bookies have removed theirs.
6. A bookie that has promised a higher session than the record's gets the entries under that one: a claim that was given
   up may have fenced it. It then makes no other promise.
7. An entry above the last add confirmed that a bookie has may be confirmed. A ledger is not complete while another
   bookie of its write set lacks it: once the entry is known to be confirmed, or was found by a claim, it is copied.
8. The gaps of a ledger are filled without a call to a bookie that is away or in `LedgerRepair.silent`: nothing waits
   for such a bookie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from gnomon.bookie.bookie import PRESENT_ENTRIES_MAX, Bookie, Bookies, Confirmed, known_bookie
from gnomon.bookie.errors import EntryShrunk, Fenced, LedgerError
from gnomon.bookie.ids import NO_ENTRY, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.copies import BATCH_BYTES_MAX, have_entries, read_run
from gnomon.bookie.ledgers.held_record import replace_record
from gnomon.bookie.ledgers.lac import ask_each, last_present
from gnomon.bookie.placement import place
from gnomon.bookie.record import Fragment, decode_record, replace_bookie
from gnomon.metadata.client import Compare, KeyValue, Metadata
from gnomon.runtime.world import Clock, Unreachable, WorldError

LISTED_ENTRY_BYTES: Final = 100
"""A listed entry counts as this many bytes. With the default limit of 32 MiB a second 335,000 entries are listed in a
second, which takes an eighth of the time of one bookie (3.8 ms for 10,000)."""


class Throttle:
    """A limit in bytes a second, over everything that an auditor copies and lists."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.copied_bytes = 0
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0

    async def copied(self, count: int) -> None:
        """Waits after `count` bytes were copied."""
        self.copied_bytes += count
        await self._spend(count)

    async def listed(self, count: int) -> None:
        """Waits after a bookie was asked which of `count` entries it has."""
        await self._spend(count * LISTED_ENTRY_BYTES)

    async def _spend(self, count: int) -> None:
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
        self.whole_to: dict[BookieId, EntryId] = {}
        """By bookie the entry up to which `fill_gaps` knows that it lacks none; it does not look there again."""
        self.silent: set[BookieId] = set()
        """Bookies that did not answer: `fill_gaps` adds to these, and calls none of them."""
        self._metadata = metadata
        self._bookies = bookies
        self._stored = stored
        self._throttle = throttle

    def closed_fragments(self) -> Iterator[tuple[Fragment, EntryId]]:
        """Each fragment that accepts no more entries, with its last entry."""
        fragments = self.record.fragments
        for fragment, after in pairwise(fragments):
            yield fragment, EntryId(after.first_entry - 1)
        if self.record.sealed:
            yield fragments[-1], self.record.last_entry

    def can_replace_in_open_fragment(self, lost: Collection[BookieId]) -> bool:
        """Whether the open fragment names one of `lost`, and another bookie can take its place."""
        fragment = self.record.fragments[-1]
        named = [name for name in fragment.bookies if name in lost]
        return not self.record.sealed and any(self._target(fragment, name) is not None for name in named)

    async def move_from(self, lost: BookieId) -> bool:
        """Copies the entries of `lost` in closed fragments to other bookies, which replace it in the record.

        Returns:
            Whether no closed fragment names `lost` any more; false if no other bookie accepts entries, or a fragment
            was changed meanwhile.

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
            # Taken before the copy: the target must still have the same disk when the record names it.
            stays = self._bookies.membership((target,))
            await self._copy(fragment, last, fragment.bookies.index(lost), target)
            if not await self.replace_bookie(fragment, last, lost, target, stays):
                return False
        return True

    def _target(self, fragment: Fragment, lost: BookieId) -> BookieId | None:
        available = self._bookies.available()
        beside = [(name, available.get(name, "")) for name in fragment.bookies]
        chosen = place(self.name, available, 1, beside=beside, without=(lost,))
        return chosen[0] if chosen else None

    async def replace_bookie(
        self, fragment: Fragment, last: EntryId, lost: BookieId, target: BookieId, compare: Sequence[Compare]
    ) -> bool:
        """Names `target` in the fragment, also if other parts of the record were changed meanwhile: see invariant 3."""
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
        """Copies to each bookie the entries that it should store and lacks.

        Returns:
            Whether every bookie of the record was asked and has all its entries: those known to be confirmed, and those
            up to the newest entry that a bookie had when this call began (invariant 7). False if a bookie is away,
            silent, or accepts no entries.

        Raises:
            LedgerError, WorldError: as `move_from`.
        """
        newest = await self._newest_entry() if all(map(self._accepts, self.record.bookies)) else None
        fragments = [*self.closed_fragments(), *await self._open_fragment()]
        for name in self.record.bookies:
            if not self._accepts(name):
                newest = None
                continue
            try:
                await self._fill_gaps_of(name, fragments)
            except Unreachable:
                self.silent.add(name)  # reading from others ends with another error
                newest = None
        return newest is not None and await self._has_each(range(fragments[-1][1] + 1, newest + 1))

    async def _has_each(self, entries: range) -> bool:
        """Whether each bookie of the last fragment has its share of `entries`."""
        await self._throttle.listed(len(entries) * len(self.record.fragments[-1].bookies))
        return await have_entries(self._bookies, self.id, self.record, entries)

    def _accepts(self, name: BookieId) -> bool:
        """Whether a bookie may be given copies and is not known to be silent."""
        return name in self._bookies.available() and name not in self.silent

    async def is_refused_by(self, name: BookieId) -> bool:
        """Whether a bookie of the open fragment refuses the record's session: it has promised a higher one.

        Raises:
            LedgerError, WorldError: it did not answer, or the ledger is deleted there.
        """
        if self.record.sealed or name not in self.record.fragments[-1].bookies:
            return False
        try:
            await known_bookie(self._bookies, name).put_copies(self.id, SessionId(self.record.session), ())
        except Fenced as error:
            if error.deleted:
                raise
            return True
        return False

    async def fill_gaps_of(self, name: BookieId) -> None:
        """Copies to one bookie the entries of closed fragments that it should store and lacks.

        Raises:
            LedgerError, WorldError: as `move_from`.
        """
        await self._fill_gaps_of(name, self.closed_fragments())

    async def _fill_gaps_of(self, name: BookieId, fragments: Iterable[tuple[Fragment, EntryId]]) -> None:
        for fragment, last in fragments:
            if name in fragment.bookies:
                await self._copy(fragment, last, fragment.bookies.index(name), name)
                self.whole_to[name] = max(last, self.whole_to.get(name, last))

    async def _open_fragment(self) -> list[tuple[Fragment, EntryId]]:
        if self.record.sealed:
            return []
        fragment = self.record.fragments[-1]
        heard = self.record.confirmed
        asked = [name for name in fragment.bookies if name not in self._bookies.absent() and name not in self.silent]
        for name, told in (await ask_each(self._bookies, self.id, asked)).items():
            if isinstance(told, Unreachable):
                self.silent.add(name)
            elif isinstance(told, Confirmed) and told.session <= self.record.session:
                heard = max(heard, told.entry)
        return [(fragment, heard)]

    async def _newest_entry(self) -> EntryId | None:
        """The newest entry that a bookie of the open fragment has; None if one of its bookies did not answer.

        Each bookie is asked once: a busy writer adds entries faster than they are found.
        """
        newest = self.record.last_entry
        for fragment, confirmed in await self._open_fragment():
            newest = confirmed
            for name in fragment.bookies:
                if name in self.silent:
                    return None
                try:
                    bookie = known_bookie(self._bookies, name)
                    last = await last_present(bookie, self.id, fragment, confirmed)
                except (LedgerError, WorldError) as error:
                    if isinstance(error, Unreachable):
                        self.silent.add(name)
                    return None
                await self._throttle.listed(last - confirmed)
                newest = max(newest, last)
        return newest

    async def _copy(self, fragment: Fragment, last: EntryId, index: int, target: BookieId) -> None:
        """Copies the entries of one index of a fragment to `target`, except entries that `target` has (invariant 5)."""
        bookie = known_bookie(self._bookies, target)
        async for wanted in self._lacking(fragment, last, index, target):
            for stretch in _stretches(wanted, self.record.quorum.ensemble_size):
                await self._copy_entries(bookie, stretch)

    async def _lacking(
        self, fragment: Fragment, last: EntryId, index: int, target: BookieId
    ) -> AsyncIterator[list[EntryId]]:
        """The entries of one index of a fragment that `target` lacks, some at a time."""
        bookie = known_bookie(self._bookies, target)
        whole_to = self.whole_to.get(target, NO_ENTRY)
        first = EntryId(max(fragment.first_entry, self.record.start_entry, whole_to + 1))
        while first <= last:
            end = EntryId(min(last, first + PRESENT_ENTRIES_MAX - 1))
            runs: list[tuple[EntryId, EntryId]] = []
            if counts(fragment, target):
                runs = await bookie.present(self.id, first, end, fragment.session)
                await self._throttle.listed(end - first + 1)
            yield self.record.quorum.lacking(index, range(first, end + 1), runs)
            first = EntryId(end + 1)

    async def count_missing(self) -> Mapping[BookieId, int]:
        """The numbers of confirmed entries that bookies should store and lack; copies nothing.

        Raises:
            LedgerError, WorldError: a bookie does not answer.
        """
        missing: Counter[BookieId] = Counter()
        for fragment, last in [*self.closed_fragments(), *await self._open_fragment()]:
            for index, name in enumerate(fragment.bookies):
                async for lacking in self._lacking(fragment, last, index, name):
                    missing[name] += len(lacking)
        return +missing

    async def _copy_entries(self, bookie: Bookie, wanted: list[EntryId]) -> None:
        """Copies adjacent entries, many in one read.

        Reading them one by one would ask the lost bookie first each time, with a wait: 1 MB/s.
        """
        at = 0
        while at < len(wanted):
            first = wanted[at]
            try:
                run = await read_run(self._bookies, self.id, self.record, first, wanted[-1], BATCH_BYTES_MAX)
            except EntryShrunk:
                at += 1  # shrunk away meanwhile
                continue
            batch: list[tuple[EntryId, bytes]] = []
            while at < len(wanted) and wanted[at] < first + len(run):
                batch.append((wanted[at], bytes(run[wanted[at] - first].value)))
                at += 1
            await self._put(bookie, batch)
            await self._throttle.copied(sum(len(value) for _, value in batch))

    async def _put(self, bookie: Bookie, batch: list[tuple[EntryId, bytes]]) -> None:
        try:
            await bookie.put_copies(self.id, SessionId(self.record.session), batch)
        except Fenced as error:
            if error.deleted:
                raise
            await bookie.put_copies(self.id, error.promised, batch)  # invariant 6


def counts(fragment: Fragment, bookie: BookieId) -> bool:
    """Whether the entries of a fragment that a bookie has count as copies (invariant 5)."""
    return bookie in fragment.bookies


def _stretches(entries: list[EntryId], gap_max: int) -> list[list[EntryId]]:
    """Splits entries into lists whose neighbours are at most `gap_max` apart, because striping leaves gaps."""
    stretches: list[list[EntryId]] = []
    for entry in entries:
        if not stretches or entry - stretches[-1][-1] > gap_max:
            stretches.append([])
        stretches[-1].append(entry)
    return stretches
