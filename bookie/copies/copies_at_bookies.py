"""Reads the copies of a ledger's entries at all bookies that should have them, side by side, for an audit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

import trio

from gnomon.bookie.bookie import PRESENT_ENTRIES_MAX, Bookie, Bookies
from gnomon.bookie.copies.compared_copies import Copy, EntryCopies
from gnomon.bookie.copies.copy_cursor import CopyCursor, SilentBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import Fragment, LedgerRecord

T = TypeVar("T")


class AuditedLedger(NamedTuple):
    """A ledger, by its record as it was read."""

    name: str
    id: LedgerId
    record: LedgerRecord


async def durable_entry(bookies: Bookies, silent: SilentBookies, ledger: AuditedLedger) -> EntryId:
    """The last entry of a ledger that every recovery finds; fences no writer.

    Such an entry is confirmed by the record or a bookie, or follows such an entry and is at an ack quorum of bookies: a
    bookie that has started again knows only the last add confirmed that its entries name.

    Args:
        silent: the bookies that have given no answer; gets those that give none now.
    """
    record = ledger.record
    if record.sealed:
        return record.confirmed
    names = record.fragments[-1].bookies
    confirmed = await _answers(bookies, silent, ledger, lambda bookie: bookie.last_add_confirmed(ledger.id))
    last = max([record.confirmed, *(each.entry for each in confirmed.values())])
    first, end = EntryId(last + 1), EntryId(last + PRESENT_ENTRIES_MAX)
    session = record.fragments[-1].session
    present = await _answers(bookies, silent, ledger, lambda bookie: bookie.present(ledger.id, first, end, session))
    there = {names.index(name): set(_entries(runs)) for name, runs in present.items()}

    def holders(entry: EntryId) -> list[int]:
        return [index for index in record.quorum.write_set(entry) if entry in there.get(index, ())]

    while len(holders(EntryId(last + 1))) >= record.quorum.ack_quorum:
        last = EntryId(last + 1)
    return last


async def _answers(
    bookies: Bookies, silent: SilentBookies, ledger: AuditedLedger, call: Callable[[Bookie], Awaitable[T]]
) -> dict[BookieId, T]:
    """The answers of the bookies of an open ledger's last fragment; silent ones are missing."""
    found: dict[BookieId, T] = {}

    async def ask(name: BookieId) -> None:
        answer = await silent.ask(bookies, name, call)
        if answer is None:
            silent.skip(name, ledger.name)
        else:
            found[name] = answer

    async with trio.open_nursery() as nursery:
        for name in ledger.record.fragments[-1].bookies:
            nursery.start_soon(ask, name)
    return found


def _entries(runs: Sequence[tuple[EntryId, EntryId]]) -> Iterator[int]:
    return (entry for first, last in runs for entry in range(first, last + 1))


def stretches(record: LedgerRecord, first: EntryId, last: EntryId) -> Iterator[tuple[Fragment, EntryId, EntryId]]:
    """The parts of the entries from `first` to `last` by fragment, each with its first and its last entry."""
    ends = [fragment.first_entry for fragment in record.fragments[1:]] + [last + 1]
    for fragment, end in zip(record.fragments, ends, strict=True):
        begin, stop = max(first, fragment.first_entry), min(last, end - 1)
        if begin <= stop:
            yield fragment, begin, EntryId(stop)


async def copies_at_bookies(
    bookies: Bookies,
    silent: SilentBookies,
    ledger: AuditedLedger,
    first: EntryId,
    last: EntryId,
    only: Collection[BookieId] | None = None,
) -> AsyncGenerator[Sequence[EntryCopies], None]:
    """The entries from `first` to `last` with their copies at each bookie of their write sets, in runs.

    A bookie that becomes silent is left out from there on.

    Args:
        silent: the bookies that have given no answer; gets those that give none now.
        only: the bookies to ask; None for all.
    """
    for fragment, at, end in stretches(ledger.record, first, last):
        asked = [bookie for bookie in fragment.bookies if only is None or bookie in only]
        cursors = {bookie: CopyCursor(bookies, silent, bookie, ledger.id, fragment.session) for bookie in asked}
        while at <= end and cursors:
            async with trio.open_nursery() as nursery:
                for cursor in cursors.values():
                    if cursor.known_to <= at:
                        nursery.start_soon(cursor.fill, at, end)
            for bookie in [bookie for bookie, cursor in cursors.items() if cursor.silent]:
                silent.skip(bookie, ledger.name)
                del cursors[bookie]
            if cursors:
                stop = min(cursor.known_to for cursor in cursors.values())
                yield [
                    (entry, _of_entry(ledger.record, fragment, cursors, entry))
                    for entry in map(EntryId, range(at, stop))
                ]
                at = stop


def _of_entry(
    record: LedgerRecord, fragment: Fragment, cursors: dict[BookieId, CopyCursor], entry: EntryId
) -> Sequence[tuple[BookieId, Copy]]:
    names = [fragment.bookies[index] for index in record.quorum.write_set(entry)]
    return [(name, cursors[name].take(entry)) for name in names if name in cursors]
