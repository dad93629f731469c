"""Ledgers and sessions that the metadata cannot have given (numbers: invariants of `session_bound`)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import SessionUnknown
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import Quorum
from gnomon.bookie.storage.session_bound import SessionBound
from gnomon.metadata.client import MetadataUnavailable, Put, Revision
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, LedgerClient, LedgerCluster

WIDE = Quorum(3, 3, 2)


def test_a_session_is_at_most_the_number_of_versions_that_a_record_can_have_had_and_one() -> None:
    """1."""
    bound = SessionBound(None, BookieId("b"), Revision(10))
    assert bound.allows(10, 2)
    assert bound.allows(7, 5)
    assert not bound.allows(10, 3)
    assert not bound.allows(7, 6)
    assert not bound.allows(11, 1)


def test_a_late_bookie_reads_the_metadata_before_it_refuses_and_one_read_serves_all_that_wait(
    make_metadata: Any,
) -> None:
    """2."""

    async def main() -> None:
        metadata = make_metadata()
        bound = SessionBound(metadata, BookieId("b"), Revision(1))
        for number in range(9):
            await metadata.txn((), (Put(f"{number}", b""),))
        async with trio.open_nursery() as nursery:
            for session in (1, 2, 3):
                nursery.start_soon(bound.check, [(LedgerId(8), SessionId(session))])
        assert metadata.reads == 1
        with pytest.raises(SessionUnknown, match="has not given session 4 of ledger 8: its revision is 9"):
            await bound.check([(LedgerId(8), SessionId(3)), (LedgerId(8), SessionId(4))])

    trio.run(main)


def test_while_the_metadata_does_not_answer_a_session_beyond_the_bound_is_no_answer(
    make_metadata: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3."""

    async def unavailable(prefix: str) -> None:
        raise MetadataUnavailable("no answer")

    async def main() -> None:
        metadata = make_metadata()
        monkeypatch.setattr(metadata, "range", unavailable)
        bound = SessionBound(metadata, BookieId("b"), Revision(5))
        await bound.check([(LedgerId(5), SessionId(2))])
        with pytest.raises(SessionUnknown, match="could not be checked: no answer: try again"):
            await bound.check([(LedgerId(6), SessionId(1))])

    trio.run(main)


def test_a_forged_session_bars_no_honest_writer() -> None:
    """2."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 3)
        bookie = client.bookies.get(cluster.names[0])
        assert bookie is not None
        forged = SessionId(1 << 40)
        with pytest.raises(SessionUnknown):
            await bookie.fence(ledger.id, forged)
        with pytest.raises(SessionUnknown):
            await bookie.put_copies(ledger.id, forged, [])
        with pytest.raises(SessionUnknown):
            await bookie.begin_session(ledger.id, forged, [(EntryId(0), forged)])
        with pytest.raises(SessionUnknown):
            await bookie.fence(LedgerId(1 << 40), SessionId(1))
        await fill(ledger, 3)
        heir = await client.claim("ledger")
        assert await contents(heir) == entries(6)
        await fill(heir, 1)

    with_cluster(work, bookies=3)


def test_entries_of_known_ledgers_are_stored_while_the_metadata_is_away() -> None:
    """2, 3."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 1)
        cluster.simulation.machine(METADATA).kill()
        await fill(ledger, 3)
        cluster.simulation.machine(METADATA).start()
        await client.world.clock.sleep(5)
        assert await contents(await client.claim("ledger")) == entries(4)

    with_cluster(work, bookies=3)
