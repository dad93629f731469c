"""The last durable entry of a ledger, read by a process that does not own the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from audits import WIDE
from numbered_entries import fill
from with_cluster import with_cluster

from gnomon.bookie.bookie import RangeRead
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.errors import EntryUnknown, NotEnoughBookies
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.catalog import Ledger, Quorum, adopt_ledger, create_ledger
from gnomon.bookie.ledgers.copies import TAIL_ENTRIES, read_durable_tail
from gnomon.bookie.record import Fragment, LedgerRecord, ledger_key
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient, LedgerCluster

LEDGER = LedgerId(7)


async def unfollowed(client: LedgerClient, count: int) -> Ledger:
    """A ledger whose bookies do not receive its last add confirmed."""
    ledger = await create_ledger(client.metadata, client.bookies, "positions", quorum=WIDE, followed=False)
    await fill(ledger, count)
    await client.world.clock.sleep(5.0)
    return ledger


async def last_of(client: LedgerClient) -> bytes | None:
    stored = await client.metadata.get(ledger_key("positions"))
    assert stored is not None
    return await adopt_ledger(client.metadata, client.bookies, stored).read_last()


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_the_last_entry_is_read_before_its_confirmation_is_sent_and_its_writer_continues(count: int) -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await unfollowed(client, count)
        assert await last_of(client) == (b"entry %d" % (count - 1) if count else None)
        await fill(ledger, 1)
        assert await last_of(client) == b"entry %d" % count

    with_cluster(work)


def test_the_last_entry_is_read_after_a_claim_and_an_ensemble_change() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await unfollowed(client, 3)
        assert await last_of(client) == b"entry 2"
        await client.claim("positions")
        assert await last_of(client) == b"entry 2"
        ledger = await client.claim("positions")
        cluster.bookies[ledger.record.fragments[-1].bookies[0]].kill()
        await fill(ledger, 2)
        await client.world.clock.sleep(5.0)
        await fill(ledger, 1)
        assert len({fragment.bookies for fragment in ledger.record.fragments}) > 1
        assert await last_of(client) == b"entry 5"

    with_cluster(work)


def test_the_last_entry_is_read_without_one_bookie_and_not_guessed_without_two() -> None:
    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await unfollowed(client, 3)
        first, second, _ = ledger.record.fragments[0].bookies
        cluster.bookies[first].kill()
        assert await last_of(client) == b"entry 2"
        cluster.bookies[second].kill()
        with pytest.raises(NotEnoughBookies):
            await last_of(client)

    with_cluster(work)


# --- the durable tail, from copies --------------------------------------------------------------------------------

Copies = Mapping[int, int]
"""The entries of one bookie, each with its session."""


class Answering:
    """Bookies that have these copies; a bookie with None does not answer."""

    def __init__(self, copies: Sequence[Copies | None], scanned_to: int | None = None) -> None:
        self.copies = copies
        self.scanned_to = scanned_to

    def get(self, name: BookieId) -> Any:
        return _Bookie(self.copies[int(name)], self.scanned_to)


class _Bookie:
    def __init__(self, copies: Copies | None, scanned_to: int | None) -> None:
        self._copies = copies
        self._scanned_to = scanned_to

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        if self._copies is None:
            raise EntryUnknown(ledger, first, "its disk was replaced")
        end = last + 1 if self._scanned_to is None else min(last + 1, first + self._scanned_to)
        entries = [
            (EntryId(entry), StoredEntry(SessionId(session), EntryId(-1), 0, memoryview(b""), memoryview(b"")))
            for entry, session in self._copies.items()
            if first <= entry < end and session >= minimum_session
        ]
        return RangeRead(entries, EntryId(end))


def sessions(copies: Sequence[Copies | None], *, first: int = 5, scanned_to: int | None = None) -> list[int]:
    """The sessions of the durable tail."""
    names = tuple(BookieId(str(number)) for number in range(len(copies)))
    quorum = Quorum(len(copies), 3, 2)
    record = LedgerRecord(quorum, (Fragment(EntryId(first), SessionId(4), names),), session=SessionId(4))
    bookies: Any = Answering(copies, scanned_to)
    return [stored.session for stored in trio.run(read_durable_tail, bookies, LEDGER, record, EntryId(first))]


def test_an_entry_is_durable_when_an_ack_quorum_has_it() -> None:
    assert sessions([{5: 4, 6: 4}, {5: 4}, {}]) == [4]
    assert sessions([{5: 4, 6: 4}, {5: 4, 6: 4}, {}]) == [4, 4]


def test_the_durable_tail_ends_before_the_first_entry_that_is_not_durable() -> None:
    assert sessions([{5: 4, 6: 4}, {6: 4}, {6: 4}]) == []


def test_copies_of_two_sessions_are_no_ack_quorum_and_copies_of_fenced_writers_do_not_count() -> None:
    with pytest.raises(NotEnoughBookies):  # only the record of the later session can decide
        sessions([{5: 4}, {5: 5}, {}])
    assert sessions([{5: 3}, {5: 3}, {5: 3}]) == []


def test_a_copy_outside_of_the_write_set_does_not_count() -> None:
    assert sessions([{}, {5: 4}, {}, {}, {5: 4}]) == []  # the write set of entry 5 is 0, 1 and 2


def test_the_end_of_the_tail_needs_explicit_answers() -> None:
    assert sessions([{5: 4}, {5: 4}, {}]) == [4]
    with pytest.raises(NotEnoughBookies):
        sessions([{5: 4}, {5: 4, 6: 4}, None])
    with pytest.raises(NotEnoughBookies):
        sessions([{}, None, None])
    with pytest.raises(NotEnoughBookies):
        sessions([{5: 4}, None, {}])
    assert sessions([{}, None, {}]) == []


def test_a_tail_longer_than_one_answer_is_read_to_its_end() -> None:
    entries = dict.fromkeys(range(5, 5 + 2 * TAIL_ENTRIES), 4)
    assert len(sessions([entries, entries, entries])) == 2 * TAIL_ENTRIES
    assert len(sessions([entries, entries, entries], scanned_to=1)) == 2 * TAIL_ENTRIES
