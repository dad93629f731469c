"""Reads entries from any bookie that has a copy.

A single entry is requested from the first bookie of its write set (the bookies that should have it). After
SPECULATIVE_SECONDS without an answer, or an answer without the entry, the next bookie is asked as well. The first copy
to arrive is used (speculative reading, as in BookKeeper). Adjacent entries are read from several bookies at once.
`have_entries` only asks whether each bookie has its copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import inf

import trio

from gnomon.bookie.bookie import PRESENT_ENTRIES_MAX, Bookies, RangeRead, known_bookie
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import LedgerError, NoSuchEntry, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.reader import EntryRead, ReadVerdict
from gnomon.bookie.protocol import COPIES_MAX
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.runtime.world import WorldError

SPECULATIVE_SECONDS = 0.2
"""Silence of a bookie after which the next one is asked as well."""

BATCH_BYTES_MAX = 1 << 20
"""The most bytes of entries copied with one call, except for a single larger entry."""

RUN_BYTES_MAX = 1 << 20
RUN_BYTES_MIN = 1 << 14
"""The bounds of `next_run_bytes`."""

TAIL_ENTRIES = 16
"""Entries of a tail that are requested at the same time."""

Answer = StoredEntry | LedgerError | WorldError


def batches(entries: Iterable[tuple[EntryId, bytes]]) -> Iterator[list[tuple[EntryId, bytes]]]:
    """Splits entries into batches that fit one call."""
    batch: list[tuple[EntryId, bytes]] = []
    size_bytes = 0
    for entry, value in entries:
        if batch and (size_bytes + len(value) > BATCH_BYTES_MAX or len(batch) == COPIES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append((entry, value))
        size_bytes += len(value)
    if batch:
        yield batch


async def read_entry(bookies: Bookies, ledger: LedgerId, record: LedgerRecord, entry: EntryId) -> StoredEntry:
    """One entry, which must be confirmed.

    Raises:
        NoSuchEntry: enough bookies explicitly do not have it.
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
                nursery.start_soon(ask_entry, bookies, fragment, index, ledger, entry, send)
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
    if search.verdict is ReadVerdict.ABSENT:
        raise NoSuchEntry(ledger, entry)
    if isinstance(problem, LedgerError):
        raise problem
    raise NotEnoughBookies(f"no copy of entry {entry} of ledger {ledger} could be read: {problem}")


async def ask_entry(
    bookies: Bookies,
    fragment: Fragment,
    index: int,
    ledger: LedgerId,
    entry: EntryId,
    send: trio.MemorySendChannel[Answer],
) -> None:
    """Asks one bookie of a fragment for an entry; `send` gets the copy or the error."""
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

    A minimal set of bookies that together have all entries is asked, each for its own share; if one does not answer,
    another set is asked. If no set has the first entry, it is read alone.

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
                    nursery.start_soon(ask_range, bookies, bookie, arguments, record.quorum, found, answered, index)
        if len(answered) == len(indexes) and first in found:
            break
        share_bytes //= 8  # the share may have been too large for the given time
    run: list[StoredEntry] = []
    while (stored := found.get(EntryId(first + len(run)))) is not None:
        run.append(stored)
    return run or [await read_entry(bookies, ledger, record, first)]


def next_run_bytes(bytes_max: int, seconds: float) -> int:
    """The bytes to request of the next run, after a run of `bytes_max` took `seconds`.

    Over a slow link less is requested at once, because late answers are discarded.
    """
    slow = seconds >= SPECULATIVE_SECONDS
    return max(bytes_max // 4, RUN_BYTES_MIN) if slow else min(2 * bytes_max, RUN_BYTES_MAX)


async def ask_range(
    bookies: Bookies,
    name: BookieId,
    arguments: tuple[LedgerId, EntryId, EntryId, SessionId, int],
    quorum: Quorum,
    found: dict[EntryId, StoredEntry],
    answered: list[int],
    index: int,
) -> None:
    """Asks one bookie for a range: its entries are put into `found`, its index into `answered`."""
    try:
        answer: RangeRead = await known_bookie(bookies, name).read_range(*arguments)
    except (LedgerError, WorldError):
        return  # another bookie may have the entries
    # Any other entry may be a dead writer's: repair overwrites only entries of the write set.
    found.update(read for read in answer.entries if index in quorum.write_set(read[0]))
    answered.append(index)


def _covers(quorum: Quorum, first: EntryId, fragment: Fragment, bookies: Bookies) -> list[list[int]]:
    """Sets of indexes that together have every entry, and each have `first`; sets of available bookies come first.

    Of each `ensemble_size` consecutive entries the bookie at an index has `write_quorum` adjacent ones. The last of
    these is the entry whose id, modulo `ensemble_size`, is the index.
    """
    size, width = quorum.ensemble_size, quorum.write_quorum
    available = bookies.available()
    covers = [[(first + shift + step) % size for step in range(0, size, width)] for shift in range(width)]
    return sorted(covers, key=lambda cover: sum(fragment.bookies[index] not in available for index in cover))


async def read_durable_tail(
    bookies: Bookies, ledger: LedgerId, record: LedgerRecord, first: EntryId
) -> list[StoredEntry]:
    """The entries of the last fragment from `first` on that an ack quorum of bookies has: every recovery finds these.

    Args:
        first: follows the last add confirmed.

    Raises:
        NotEnoughBookies: too few bookies answered to know whether there is one more such entry.
    """
    fragment, quorum = record.fragments[-1], record.quorum
    tail: list[StoredEntry] = []
    while True:
        start = EntryId(first + len(tail))
        answers: dict[int, RangeRead] = {}
        async with trio.open_nursery() as nursery:
            for index, name in enumerate(fragment.bookies):
                arguments = (ledger, start, EntryId(start + TAIL_ENTRIES - 1), fragment.session, BATCH_BYTES_MAX)
                nursery.start_soon(_ask_tail, bookies, name, arguments, answers, index)
        while (stored := _durable(EntryId(first + len(tail)), quorum, answers)) is not None:
            tail.append(stored)
        entry = EntryId(first + len(tail))
        if _never_acknowledged(entry, quorum, answers):
            return tail
        if entry == start:
            raise NotEnoughBookies(
                f"it is unknown whether ledger {ledger} has an entry {entry}: too few bookies answer"
            )


async def _ask_tail(
    bookies: Bookies,
    name: BookieId,
    arguments: tuple[LedgerId, EntryId, EntryId, SessionId, int],
    answers: dict[int, RangeRead],
    index: int,
) -> None:
    with suppress(LedgerError, WorldError):
        answers[index] = await known_bookie(bookies, name).read_range(*arguments)


def _durable(entry: EntryId, quorum: Quorum, answers: Mapping[int, RangeRead]) -> StoredEntry | None:
    """The entry, if there are enough copies; a dead writer may have left another one under the same id."""
    sessions: dict[SessionId, list[StoredEntry]] = {}
    for index in quorum.write_set(entry):
        for found, stored in answers[index].entries if index in answers else ():
            if found == entry:
                sessions.setdefault(stored.session, []).append(stored)
    return next((same[0] for same in sessions.values() if len(same) >= quorum.ack_quorum), None)


def _never_acknowledged(entry: EntryId, quorum: Quorum, answers: Mapping[int, RangeRead]) -> bool:
    """Whether enough bookies explicitly do not have the entry (`reader` invariant 3)."""
    said = [answers[index] for index in quorum.write_set(entry) if index in answers]
    negatives = [each for each in said if entry < each.scanned_to and entry not in dict(each.entries)]
    return len(negatives) >= quorum.negatives_needed


async def have_entries(
    bookies: Bookies, ledger: LedgerId, record: LedgerRecord, entries: range, seconds: float = inf
) -> bool:
    """Whether each bookie of a ledger's last fragment has those of `entries` that it should store.

    False also if a bookie does not list its entries within `seconds`, and for more than PRESENT_ENTRIES_MAX entries.
    """
    if len(entries) > PRESENT_ENTRIES_MAX:
        return False
    fragment = record.fragments[-1]
    whole: list[int] = []

    async def look(index: int, name: BookieId) -> None:
        with suppress(LedgerError, WorldError):
            bookie = known_bookie(bookies, name)
            runs = await bookie.present(ledger, EntryId(entries[0]), EntryId(entries[-1]), fragment.session)
            if not record.quorum.lacking(index, entries, runs):
                whole.append(index)

    if entries:
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for index, name in enumerate(fragment.bookies):
                    nursery.start_soon(look, index, name)
    return not entries or len(whole) == len(fragment.bookies)


def _last_of(record: LedgerRecord, fragment: Fragment, last: EntryId) -> EntryId:
    after = [each.first_entry for each in record.fragments if each.first_entry > fragment.first_entry]
    return EntryId(after[0] - 1) if after else last
