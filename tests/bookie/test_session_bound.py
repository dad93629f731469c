"""Ledgers and sessions that the metadata has not given (numbers: invariants of `session_bound`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from numbered_entries import contents, entries, fill
from with_cluster import with_cluster

from gnomon.bookie.errors import Fenced, InvalidCall, SessionUnknown
from gnomon.bookie.ids import ANY_SESSION, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import LEDGERS, Quorum, ledger_key
from gnomon.bookie.storage.session_bound import READ_AT_ONCE, SessionBound
from gnomon.metadata.client import Delete, Get, MetadataUnavailable, Put, RangeResult, Revision, TxnOutcome
from gnomon.testing.storms.ledgers.ledger_cluster import METADATA, LedgerClient, LedgerCluster

WIDE = Quorum(3, 3, 2)
FIRST, SECOND = LedgerId(1), LedgerId(2)
"""The ids of the ledgers of `Records`."""


class Records:
    """A metadata store with two ledgers, that notes what a bookie reads."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.reads: list[str] = []
        self.away = False

    async def create(self) -> None:
        for name in ("first", "second"):
            await self.write(name)

    async def write(self, name: str, times: int = 1) -> None:
        """Writes the next versions of a record."""
        for _ in range(times):
            await self.metadata.txn((), (Put(ledger_key(name), b"%d" % self.metadata.revision),))

    async def range(self, prefix: str) -> RangeResult:
        self._note("list" if prefix == LEDGERS else "revision")
        found: RangeResult = await self.metadata.range(prefix)
        return found

    async def txn(self, compare: Sequence[Any], then: Sequence[Get]) -> TxnOutcome:
        assert len(then) <= READ_AT_ONCE
        self._note(" ".join(operation.key.removeprefix(LEDGERS) for operation in then))
        found: TxnOutcome = await self.metadata.txn(compare, then)
        return found

    def _note(self, read: str) -> None:
        self.reads.append(read)
        if self.away:
            raise MetadataUnavailable("no answer")


async def bounded(
    make_metadata: Any, promised: dict[LedgerId, SessionId] | None = None
) -> tuple[Records, SessionBound]:
    """A bookie that knows the revision of a metadata store with two ledgers."""
    records = Records(make_metadata())
    await records.create()
    known: dict[LedgerId, SessionId] = promised or {}
    metadata: Any = records
    bound = SessionBound(metadata, BookieId("b"), Revision(2), lambda ledger: known.get(ledger, ANY_SESSION))
    return records, bound


async def check(bound: SessionBound, ledger: LedgerId, session: int) -> None:
    await bound.check([(ledger, session)])


def test_a_session_is_at_most_the_version_of_the_record_and_one(make_metadata: Any) -> None:
    """1."""

    async def main() -> None:
        records, bound = await bounded(make_metadata)
        await records.write("first", 4)
        for number in range(1000):
            await records.metadata.txn((), (Put(f"{number}", b""),))
        await check(bound, FIRST, 6)
        for forged in (7, 500, 1 << 40):
            with pytest.raises(
                SessionUnknown, match=f"not given session {forged} of ledger 1: the version of its record"
            ):
                await check(bound, FIRST, forged)
        with pytest.raises(SessionUnknown, match="the version of its record is 1"):
            await bound.check([(FIRST, 6), (SECOND, 3)])
        with pytest.raises(SessionUnknown, match="not given session 1 of ledger 1007: its revision is 1006"):
            await check(bound, LedgerId(1007), 1)

    trio.run(main)


def test_a_late_bookie_reads_the_record_before_it_refuses_its_next_session(make_metadata: Any) -> None:
    """2."""

    async def main() -> None:
        records, bound = await bounded(make_metadata)
        await records.write("first", 2)
        await check(bound, FIRST, 4)
        for session in range(5, 20):  # one claim after the other, each by a caller that has read the newest version
            await records.write("first")
            await check(bound, FIRST, session)
        await records.write("third")
        await records.write("third", 3)
        await check(bound, LedgerId(records.metadata.keys[ledger_key("third")].create_revision), 5)

    trio.run(main)


def test_while_the_metadata_does_not_answer_a_session_beyond_the_bound_is_no_answer(make_metadata: Any) -> None:
    """3."""

    async def main() -> None:
        records, bound = await bounded(make_metadata, {SECOND: SessionId(9)})
        await records.write("first", 2)
        records.away = True
        await check(bound, FIRST, 2)
        await check(bound, SECOND, 9)
        for ledger, session in ((FIRST, 3), (SECOND, 10), (LedgerId(40), 1)):
            with pytest.raises(SessionUnknown, match="could not be checked: no answer: try again"):
                await check(bound, ledger, session)
        records.away = False
        await check(bound, FIRST, 4)

    trio.run(main)


def test_the_metadata_is_asked_only_if_a_session_rises(make_metadata: Any) -> None:
    """4."""

    async def main() -> None:
        promised = {SECOND: SessionId(7)}
        records, bound = await bounded(make_metadata, promised)
        await records.write("first", 9)
        await records.write("second", 9)
        for ledger, session in ((FIRST, 1), (FIRST, 2), (SECOND, 3), (SECOND, 7)):
            assert bound.allows(ledger, session)
            await check(bound, ledger, session)
        assert records.reads == []
        await check(bound, FIRST, 3)
        assert records.reads == ["list"]
        for session in range(1, 12):
            await check(bound, FIRST, session)
        assert records.reads == ["list"]
        await records.write("first", 2)
        await check(bound, FIRST, 12)
        await check(bound, FIRST, 13)
        assert records.reads == ["list", "first"]

    trio.run(main)


def test_one_read_serves_all_calls_that_wait_for_it(make_metadata: Any) -> None:
    """4."""

    async def main() -> None:
        records, bound = await bounded(make_metadata)
        for reads in (["list"], ["list", "first second"]):
            async with trio.open_nursery() as nursery:
                for ledger in (FIRST, SECOND):
                    for session in (3, 4, 5):
                        nursery.start_soon(refused, bound, ledger, session)
            assert records.reads == reads

    async def refused(bound: SessionBound, ledger: LedgerId, session: int) -> None:
        with pytest.raises(SessionUnknown):
            await check(bound, ledger, session)

    trio.run(main)


def test_a_cancelled_call_leaves_its_read_to_the_calls_that_wait_with_it(make_metadata: Any) -> None:
    """2, 4."""

    async def main() -> None:
        records, bound = await bounded(make_metadata)
        await records.write("first", 2)
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(check, bound, FIRST, 4)
                scope.cancel()
                await check(bound, FIRST, 3)
        await check(bound, FIRST, 4)

    trio.run(main)


def test_a_ledger_without_a_record_is_fenced_as_deleted(make_metadata: Any) -> None:
    """5."""

    async def main() -> None:
        records, bound = await bounded(make_metadata)
        await records.write("first", 5)
        await check(bound, FIRST, 4)
        await records.metadata.txn((), (Delete(ledger_key("first")),))
        await records.write("first")
        for _ in range(2):
            with pytest.raises(Fenced) as fenced:
                await check(bound, FIRST, 9)
            assert fenced.value.deleted
        assert records.reads == ["list", "first"]

    trio.run(main)


def test_a_forged_session_bars_no_honest_writer() -> None:
    """1, 2."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 3)
        for number in range(300):
            await client.metadata.txn((), (Put(f"{number}", b""),))
        bookie = client.bookies.get(cluster.names[0])
        assert bookie is not None
        for forged in map(SessionId, (3, 290, 1 << 40)):  # 290 is far below the revision
            with pytest.raises(SessionUnknown):
                await bookie.fence(ledger.id, forged)
            with pytest.raises(SessionUnknown):
                await bookie.put_copies(ledger.id, forged, [])
            with pytest.raises(SessionUnknown):
                await bookie.begin_session(ledger.id, forged, [(EntryId(0), forged)])
        with pytest.raises(SessionUnknown):
            await bookie.fence(LedgerId(1 << 40), SessionId(1))
        with pytest.raises(InvalidCall, match="session 1 has a bound of a later one"):
            await bookie.begin_session(ledger.id, SessionId(1), [(EntryId(0), SessionId(290))])
        await fill(ledger, 3)
        for count in range(6, 12):
            heir = await client.claim("ledger")
            assert await contents(heir) == entries(count)
            await fill(heir, 1)

    with_cluster(work, bookies=3)


def test_entries_of_known_ledgers_are_stored_while_the_metadata_is_away() -> None:
    """3, 4."""

    async def work(client: LedgerClient, cluster: LedgerCluster) -> None:
        ledger = await client.create("ledger", WIDE)
        await fill(ledger, 1)
        for _ in range(3):
            ledger = await client.claim("ledger")
            await fill(ledger, 1)
        cluster.simulation.machine(METADATA).kill()
        await fill(ledger, 3)
        cluster.simulation.machine(METADATA).start()
        await client.world.clock.sleep(5)
        assert await contents(await client.claim("ledger")) == entries(7)

    with_cluster(work, bookies=3)
