"""Asks a ledger's bookies for the last add confirmed, or waits for it to advance; for ledgers that another process may
be writing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import inf

import trio

from gnomon.bookie.bookie import PRESENT_ENTRIES_MAX, Bookie, Bookies, Confirmed, StoreError, known_bookie
from gnomon.bookie.errors import LedgerError, NoSuchEntry
from gnomon.bookie.ids import BookieId, EntryId, LedgerId
from gnomon.bookie.record import Fragment
from gnomon.metadata.client import KeyValue, MetadataError
from gnomon.runtime.rpc.errors import RpcFailed
from gnomon.runtime.world import WorldError

LISTEN_AGAIN_SECONDS = 0.5
REFUSED_AGAIN_SECONDS = 4.0
"""Pause after a bookie refused a waiting call because it has too many; as long as a waiting call lasts."""


async def ask_confirmed(
    bookies: Bookies, ledger: LedgerId, names: Iterable[BookieId], seconds: float = inf
) -> list[Confirmed]:
    """Asks all bookies at once for the last add confirmed; returns the answers within `seconds`."""
    answers = await ask_each(bookies, ledger, names, seconds)
    return [answer for answer in answers.values() if isinstance(answer, Confirmed)]


async def ask_each(
    bookies: Bookies, ledger: LedgerId, names: Iterable[BookieId], seconds: float = inf
) -> Mapping[BookieId, Confirmed | StoreError]:
    """Asks all bookies at once for the last add confirmed; returns each one's answer or error within `seconds`."""
    answers: dict[BookieId, Confirmed | StoreError] = {}

    async def ask(name: BookieId) -> None:
        try:
            answers[name] = await known_bookie(bookies, name).last_add_confirmed(ledger)
        except (LedgerError, WorldError) as error:
            answers[name] = error

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)
    return answers


async def ask_stored(bookies: Bookies, ledger: LedgerId, fragment: Fragment, confirmed: EntryId) -> EntryId | None:
    """The last entry that any bookie of a ledger's last fragment has, at least `confirmed`; None if one of the bookies
    did not answer."""
    last = confirmed
    try:
        for name in fragment.bookies:
            bookie = known_bookie(bookies, name)
            while True:
                newer = await last_present(bookie, ledger, fragment, last)
                if newer > last:
                    last = newer
                    continue
                try:  # a bookie that may have lost entries has no runs, and yet does not say that there are no more
                    await bookie.read(ledger, EntryId(last + 1), fragment.session)
                except NoSuchEntry:
                    break
    except (LedgerError, WorldError):
        return None
    return last


async def last_present(bookie: Bookie, ledger: LedgerId, fragment: Fragment, after: EntryId) -> EntryId:
    """The last entry that a bookie has among the PRESENT_ENTRIES_MAX after `after`; `after` if it has none of them.

    Raises:
        LedgerError, WorldError: the bookie did not answer.
    """
    first, last = EntryId(after + 1), EntryId(after + PRESENT_ENTRIES_MAX)
    runs = await bookie.present(ledger, first, last, fragment.session)
    return runs[-1][1] if runs else after


async def wait_for_news(
    bookies: Bookies,
    ledger: LedgerId,
    names: Iterable[BookieId],
    entry: EntryId,
    record_changed: Callable[[], Awaitable[KeyValue | None]],
) -> tuple[list[Confirmed], list[KeyValue | None]]:
    """Waits until a bookie reports `entry` as confirmed, or the metadata another record.

    Returns:
        The first report, of a bookie or of `record_changed`.

    Raises:
        NotEnoughBookies: one of the bookies is unknown to this process.
        MetadataError: the record could not be watched.
    """
    known = [known_bookie(bookies, name) for name in names]
    heard: list[Confirmed] = []
    changed: list[KeyValue | None] = []
    problems: list[MetadataError] = []
    async with trio.open_nursery() as nursery:

        async def listen(bookie: Bookie) -> None:
            while True:
                try:
                    heard.append(await bookie.wait_for_lac(ledger, entry))
                except RpcFailed:
                    await bookies.clock.sleep(REFUSED_AGAIN_SECONDS)
                except (LedgerError, WorldError):
                    await bookies.clock.sleep(LISTEN_AGAIN_SECONDS)  # it may come back before the record changes
                else:
                    nursery.cancel_scope.cancel()
                    return

        for bookie in known:
            nursery.start_soon(listen, bookie)
        try:
            changed.append(await record_changed())
        except MetadataError as error:
            problems.append(error)
        nursery.cancel_scope.cancel()
    if problems:
        raise problems[0]
    return heard, changed
