"""Reading entries from whichever bookie has a copy.

The first copy of an entry's write set is asked; where it errs, or says nothing for a short while, the next one is asked
as well, and the first answer wins (speculative reading, as BookKeeper does it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import trio

from gnomon.bookie.client import Bookies, RangeRead, known_bookie
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import LedgerError, NoSuchEntry, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, Session
from gnomon.bookie.reader import EntryRead, Verdict
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.runtime.world import WorldError

SPECULATIVE_SECONDS = 0.2
"""How long a bookie may be silent before the next one is asked as well."""

BATCH_BYTES_MAX = 1 << 20
"""Of entries that are copied with one call, but for one that is larger alone."""

Answer = StoredEntry | LedgerError | WorldError


def batches(entries: Iterable[tuple[EntryId, bytes]]) -> Iterator[list[tuple[EntryId, bytes]]]:
    """The same in runs that a call takes."""
    batch: list[tuple[EntryId, bytes]] = []
    size_bytes = 0
    for entry, value in entries:
        if batch and size_bytes + len(value) > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append((entry, value))
        size_bytes += len(value)
    if batch:
        yield batch


async def read_entry(bookies: Bookies, ledger: LedgerId, record: LedgerRecord, entry: EntryId) -> StoredEntry:
    """One entry, which must be confirmed.

    Raises:
        NoSuchEntry: enough bookies said so explicitly.
        DigestMismatch, EntryShrunk, EntryUnknown: the only answers there were.
        NotEnoughBookies: too few bookies answered.
    """
    fragment = record.fragment_of(entry)
    search = EntryRead(record.quorum, entry)
    problem: LedgerError | WorldError | None = None
    send, receive = trio.open_memory_channel[Answer](record.quorum.write_quorum)
    asked = 0
    async with trio.open_nursery() as nursery:
        while True:
            index = search.next_bookie()
            if index is not None:
                nursery.start_soon(_ask, bookies, fragment, index, ledger, entry, send)
                asked += 1
            elif not asked:
                break
            answer: Answer | None = None
            with trio.move_on_after(SPECULATIVE_SECONDS if index is not None else float("inf")):
                answer = await receive.receive()
                asked -= 1
            if isinstance(answer, StoredEntry):
                nursery.cancel_scope.cancel()
                return answer
            if isinstance(answer, NoSuchEntry):
                search.negative()
            elif answer is not None:
                problem = answer
    if search.verdict is Verdict.ABSENT:
        raise NoSuchEntry(ledger, entry)
    if isinstance(problem, LedgerError):
        raise problem
    raise NotEnoughBookies(f"no copy of entry {entry} of ledger {ledger} could be read: {problem}")


async def _ask(
    bookies: Bookies,
    fragment: Fragment,
    index: int,
    ledger: LedgerId,
    entry: EntryId,
    send: trio.MemorySendChannel[Answer],
) -> None:
    try:
        bookie = known_bookie(bookies, fragment.bookies[index])
        answer: Answer = await bookie.read(ledger, entry, fragment.session)
    except (LedgerError, WorldError) as error:
        answer = error
    send.send_nowait(answer)


async def read_run(
    bookies: Bookies, ledger: LedgerId, record: LedgerRecord, first: EntryId, last: EntryId, bytes_max: int
) -> list[StoredEntry]:
    """Entries from `first` on without a gap, at least one, up to `last` and about `bytes_max` bytes.

    As few bookies are asked as have all of them between them, each for what it has; where one does not answer, others
    are asked instead. What nobody has there is read entry by entry.

    Raises:
        LedgerError: as `read_entry`, about `first`.
    """
    fragment = record.fragment_of(first)
    end = min(last, _last_of(record, fragment, last))
    share_bytes = bytes_max * record.quorum.write_quorum // record.quorum.ensemble_size
    found: dict[EntryId, StoredEntry] = {}
    for indexes in _covers(record.quorum, first, fragment, bookies):
        answered: list[int] = []
        with trio.move_on_after(SPECULATIVE_SECONDS):
            async with trio.open_nursery() as nursery:
                for index in indexes:
                    bookie, arguments = fragment.bookies[index], (ledger, first, end, fragment.session, share_bytes)
                    nursery.start_soon(_ask_range, bookies, bookie, arguments, record.quorum, found, answered, index)
        if len(answered) == len(indexes) and first in found:
            break
        share_bytes //= 8  # it may have been too much for the time that there was
    run: list[StoredEntry] = []
    while (stored := found.get(EntryId(first + len(run)))) is not None:
        run.append(stored)
    return run or [await read_entry(bookies, ledger, record, first)]


async def _ask_range(
    bookies: Bookies,
    name: BookieId,
    arguments: tuple[LedgerId, EntryId, EntryId, Session, int],
    quorum: Quorum,
    found: dict[EntryId, StoredEntry],
    answered: list[int],
    index: int,
) -> None:
    try:
        answer: RangeRead = await known_bookie(bookies, name).read_range(*arguments)
    except (LedgerError, WorldError):
        return  # another bookie may know better
    # What else is there may be a dead writer's: repair overwrites what is in the write set alone.
    found.update(read for read in answer.entries if index in quorum.write_set(read[0]))
    answered.append(index)


def _covers(quorum: Quorum, first: EntryId, fragment: Fragment, bookies: Bookies) -> list[list[int]]:
    """Sets of indexes that have every entry between them, and `first` each: those that are all there come first.

    The bookie at an index has the entries of `write_quorum` neighbours in the round, its own the last of them.
    """
    size, width = quorum.ensemble_size, quorum.write_quorum
    available = bookies.available()
    covers = [[(first + shift + step) % size for step in range(0, size, width)] for shift in range(width)]
    return sorted(covers, key=lambda cover: sum(fragment.bookies[index] not in available for index in cover))


def _last_of(record: LedgerRecord, fragment: Fragment, last: EntryId) -> EntryId:
    after = [each.first_entry for each in record.fragments if each.first_entry > fragment.first_entry]
    return EntryId(after[0] - 1) if after else last
