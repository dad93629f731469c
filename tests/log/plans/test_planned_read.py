"""Reading a range of offsets from the bookies of a plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

import pytest
import trio
import trio.testing
from planned_log import OFFSETS, PlannedLog, Read, entry_of, expected, with_log

from gnomon.bookie import record as records
from gnomon.bookie.bookie import Bookie, RangeRead
from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.ids import ANY_SESSION, BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.ledgers.catalog import ListedBookies, Quorum
from gnomon.bookie.ledgers.copies import SPECULATIVE_SECONDS
from gnomon.bookie.remote import RemoteBookie
from gnomon.log.entry import Offset, unpack_header
from gnomon.log.plans.planned_entries import PlanOutdated, UnreadableEntry
from gnomon.log.plans.planned_read import read_planned
from gnomon.log.plans.read_plan import PlannedSegment
from gnomon.runtime.rpc.client import RpcClient
from gnomon.testing.storms.ledgers.ledger_cluster import LedgerClient

REPLICATED, STRIPED, SINGLE = Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(1, 1, 1)
BOOKIES = [BookieId(f"bookie-{number}") for number in range(1, 4)]
SECOND = BookieId("bookie-2")
START_SECONDS = 3.0
"""After this time a bookie that was started serves."""


async def written(log: PlannedLog) -> None:
    """Three ledgers of 60 offsets together: a sealed one, a striped one with snapshots, an open one."""
    await log.write(7, REPLICATED)
    await log.ledgers[0].seal()
    await log.write(6, STRIPED, snapshots=True)
    await log.write(7, REPLICATED)


def test_each_range_of_a_plan_is_read_without_metadata() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        log.cluster.metadata.kill()
        for start in range(log.end):
            for stop in {start, start + 1, min(start + 17, log.end), log.end}:
                assert await log.read(start, stop) == Read(expected(start, stop), [])

    with_log(work)


def test_a_range_is_read_while_a_bookie_is_dead_or_silent() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        log.cluster.simulation.network.block("client", BOOKIES[0])
        assert await log.read(0, log.end) == Read(expected(0, log.end), [])
        log.cluster.simulation.network.unblock("client", BOOKIES[0])
        log.cluster.bookies[SECOND].kill()
        began = log.client.world.clock.monotonic()
        assert await log.read(0, log.end) == Read(expected(0, log.end), [])
        assert log.client.world.clock.monotonic() - began < 10 * SPECULATIVE_SECONDS

    with_log(work)


def test_a_range_is_read_while_a_copy_of_each_entry_is_damaged() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        for number, segment in enumerate(log.segments):
            for entry in range(segment.last + 1):
                log.damage(number, entry, [BOOKIES[entry % 3]])
        await log.client.world.clock.sleep(0.1)
        for start in range(log.end):
            assert await log.read(start, log.end) == Read(expected(start, log.end), [])

    with_log(work)


def test_an_entry_without_a_sound_copy_is_an_error_of_the_ranges_that_need_it() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        log.damage(0, 4, BOOKIES)
        await log.client.world.clock.sleep(0.1)
        ledger = log.segments[0].ledger
        for start in range(15):
            for stop in (start + 1, log.end):
                if stop <= 12:
                    assert await log.read(start, stop) == Read(expected(start, stop), [])
                    continue
                at = max(start, 12)
                place = f"orders-0: entry 4 of ledger {ledger}, with offsets from {at} on and below 21, cannot be read"
                with pytest.raises(UnreadableEntry, match=f"{place}: entry 4 of ledger {ledger} is damaged") as caught:
                    await log.read(start, stop)
                assert type(caught.value) is UnreadableEntry, "no other plan helps"
        for start in range(15, 22):
            assert await log.read(start, log.end) == Read(expected(start, log.end), [])

    with_log(work)


def test_deleted_entries_are_reported_as_lost_and_the_rest_is_read() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        await log.ledgers[0].shrink(EntryId(3), force=True)
        assert await log.read(0, 30) == Read(expected(9, 30), [(0, 9)])
        assert await log.read(8, 30) == Read(expected(9, 30), [(8, 9)])
        assert await log.read(1, 8) == Read([], [(1, 8)])
        assert await log.read(9, 30) == Read(expected(9, 30), [])
        await log.ledgers[0].shrink(EntryId(7), force=True)
        await log.ledgers[1].shrink(EntryId(3), force=True)  # its entries 0 and 2 are snapshots
        assert await log.read(4, 30) == Read(expected(24, 30), [(4, 24)])
        assert await log.read(4, 20) == Read([], [(4, 20)])

    with_log(work)


def test_a_loss_that_is_not_accepted_ends_the_read() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        await log.ledgers[0].shrink(EntryId(3), force=True)

        def refuse(first: int, stop: int) -> None:
            raise LookupError(f"{first} to {stop}")

        reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(30), refuse)
        with pytest.raises(LookupError, match="0 to 9"):
            await anext(reading)

    with_log(work)


def moved(log: PlannedLog) -> None:
    """Has the plan name another bookie than the one with the copies."""
    old = log.segments[1].record
    new = next(name for name in BOOKIES if name not in old.bookies)
    log.segments[1] = log.segments[1]._replace(record=records.replace_bookie(old, EntryId(0), old.bookies[0], new))


def unknown(log: PlannedLog) -> None:
    """Has the plan name a bookie that it does not list."""
    old = log.segments[1].record
    record = records.replace_bookie(old, EntryId(0), old.bookies[0], BookieId("bookie-9"))
    log.segments[1] = log.segments[1]._replace(record=record)


def killed(log: PlannedLog) -> None:
    """Kills the bookie with the copies."""
    log.cluster.bookies[log.segments[1].record.bookies[0]].kill()


@pytest.mark.parametrize("change", [moved, unknown, killed])
def test_an_entry_that_is_not_where_the_plan_says_asks_for_a_new_plan(change: Callable[[PlannedLog], None]) -> None:
    async def work(log: PlannedLog) -> None:
        await log.write(3, SINGLE)
        await log.write(4, SINGLE)
        change(log)
        assert await log.read(0, 9) == Read(expected(0, 9), [])
        for start, offset in ((0, 9), (16, 16)):
            with pytest.raises(PlanOutdated, match=f"entry . of ledger {log.segments[1].ledger}, with") as caught:
                await log.read(start, 21)
            assert caught.value.offset == offset

    with_log(work)


def test_an_entry_is_not_given_up_while_a_bookie_with_a_sound_copy_may_be_elsewhere() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        for entry in range(7):  # the bookie that is asked first differs
            log.damage(0, entry, [SECOND])
        await log.client.world.clock.sleep(0.1)
        record = log.segments[0].record
        for name in (BOOKIES[0], BOOKIES[2]):
            record = records.replace_bookie(record, EntryId(0), name, BookieId(f"former-{name}"))
        for entry in map(EntryId, range(7)):
            end = Offset((entry + 1) * OFFSETS)
            run = log.segments[0]._replace(record=record, first=entry, last=entry, next_offset=end)
            with pytest.raises(PlanOutdated, match=f"entry {entry} of"):
                await log.read(end - 1, end, [run])

    with_log(work)


async def left_by_a_fenced_writer(log: PlannedLog) -> None:
    """Adds a ledger whose entry 2 has a copy of a fenced writer on one bookie, and that of its successor on two.

    The successor never reaches that bookie. The batch of the fenced writer would begin at another offset.
    """
    await log.write(2, REPLICATED)
    network, clock, old = log.cluster.simulation.network, log.client.world.clock, log.ledgers[0]
    left = old.record.bookies[2]
    for name in BOOKIES:
        if name != left:
            network.block("client", name)
        else:
            network.block("successor", name)
    with trio.move_on_after(0.1) as waited:
        await old.add(entry_of(900))
    assert waited.cancelled_caught, "one copy confirms no entry"

    async def succeed(client: LedgerClient) -> None:
        ledger = await client.claim(old.name)
        for _ in range(2):
            await ledger.add(entry_of(log.end))
            log.end += OFFSETS
        log.ledgers.append(ledger)

    await log.cluster.run_client("successor", succeed)
    for name in BOOKIES:
        network.unblock("client", name)
    await clock.sleep(1)
    new = log.ledgers[1]
    assert new.record.fragments[-1].first_entry == 2
    run = EntryId(0), new.last_add_confirmed
    log.segments = [PlannedSegment(Offset(0), new.id, new.record, *run, Offset(log.end), new.length_bytes)]
    bookie = log.bookies.get(left)
    assert bookie is not None
    orphan = await bookie.read(new.id, EntryId(2), ANY_SESSION)
    assert unpack_header(orphan.payload).base_offset == 900


def test_an_entry_that_a_fenced_writer_left_on_a_bookie_is_not_read() -> None:
    async def work(log: PlannedLog) -> None:
        await left_by_a_fenced_writer(log)
        for start in range(log.end):
            assert await log.read(start, log.end) == Read(expected(start, log.end), [])

    with_log(work)


def test_an_entry_whose_only_copy_at_hand_is_of_a_fenced_writer_asks_for_a_new_plan() -> None:
    async def work(log: PlannedLog) -> None:
        await left_by_a_fenced_writer(log)
        for name in log.segments[0].record.bookies[:2]:
            log.cluster.bookies[name].kill()
        assert await log.read(0, 2 * OFFSETS) == Read(expected(0, 2 * OFFSETS), [])
        with pytest.raises(PlanOutdated, match="entry 2 of ledger"):
            await log.read(2 * OFFSETS, log.end)

    with_log(work)


def test_a_deleted_ledger_asks_for_a_new_plan() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        for name in BOOKIES:
            bookie = log.bookies.get(name)
            assert bookie is not None
            await bookie.delete(log.segments[0].ledger)
        with pytest.raises(PlanOutdated, match="no such entry: 0 of ledger"):
            await log.read(0, 30)

    with_log(work)


@pytest.mark.parametrize("seed", range(8))
def test_each_range_is_read_while_bookies_die_and_return_and_connections_break(seed: int) -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        await log.write(7, REPLICATED, payload_bytes=50_000)
        random, network = log.client.world.random("faults"), log.cluster.simulation.network

        async def disturb() -> None:
            while True:
                await log.client.world.clock.sleep(random.random())
                machine = log.cluster.bookies[random.choice(BOOKIES)]
                if random.random() < 0.5 and network.streams():
                    network.reset(random.choice(network.streams()))
                else:
                    machine.kill()
                    await log.client.world.clock.sleep(random.random())
                    machine.start()
                    await log.client.world.clock.sleep(START_SECONDS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturb)
            for _ in range(60):
                start = random.randrange(log.end)
                stop = random.randint(start + 1, log.end)
                assert await log.read(start, stop) == Read(expected(start, stop), [])
                await log.client.world.clock.sleep(random.random())
            nursery.cancel_scope.cancel()

    with_log(work, seed=seed)


def test_a_plan_that_ends_too_early_is_refused() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        for segments, end in ((log.segments, 60), ([], 5)):
            text = f"orders-0: the plan ends at offset {end}, the range at 61"
            with pytest.raises(ValueError, match=re.escape(text)):
                await log.read(5, 61, segments)

    with_log(work)


class Counted:
    """A bookie that notes the entries that it is asked for, and gives few of them at a time."""

    def __init__(self, log: PlannedLog, bytes_max: int = 1 << 20) -> None:
        assert isinstance(log.bookies, ListedBookies)
        inner = log.bookies.get(log.segments[0].record.bookies[0])
        assert isinstance(inner, RemoteBookie)
        assert inner.client is not None
        self._log, self._inner, self._bytes_max = log, inner, bytes_max
        self.client = inner.client
        self.asked: list[int] = []
        self.silent = False
        """Whether runs, as opposed to the search before them, get no answer."""
        log.bookies.get = lambda name: cast(Bookie, self)  # type: ignore[method-assign]

    async def read(self, ledger: LedgerId, entry: EntryId, minimum_session: SessionId) -> StoredEntry:
        return await self._inner.read(ledger, entry, minimum_session)

    async def read_range(
        self, ledger: LedgerId, first: EntryId, last: EntryId, minimum_session: SessionId, bytes_max: int
    ) -> RangeRead:
        self.asked.append(first)
        if self.silent and last > first:
            self._log.cluster.simulation.network.block("client", self._log.segments[0].record.bookies[0])
        return await self._inner.read_range(ledger, first, last, minimum_session, min(bytes_max, self._bytes_max))


def test_exactly_one_run_is_read_ahead_and_none_after_the_range() -> None:
    async def work(log: PlannedLog) -> None:
        await log.write(60, SINGLE, payload_bytes=100)
        counted = Counted(log, 1_000)
        reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(180), lambda *each: None)
        async with aclosing(reading) as runs:
            await anext(runs)
            await trio.testing.wait_all_tasks_blocked()
            first = list(counted.asked)
            assert len(first) == 3, "the search, a run and the next one"
            await log.client.world.clock.sleep(10)
            assert counted.asked == first
            batches = await anext(runs)
            await trio.testing.wait_all_tasks_blocked()
            assert (len(counted.asked), len(batches)) == (4, counted.asked[-1] - counted.asked[-2])
            assert len(batches) > 1
            assert sum(map(len, batches)) < 2_000
        await log.client.world.clock.sleep(10)
        assert len(counted.asked) == 4
        assert await log.read(0, 180) == Read(expected(0, 180), [])
        counted.asked.clear()
        await log.read(2, 5)
        assert counted.asked == [0, 0]

    with_log(work)


def test_runs_are_large_and_deleted_entries_are_passed_at_once() -> None:
    async def work(log: PlannedLog) -> None:
        await log.write(60, SINGLE, payload_bytes=100)
        counted = Counted(log)
        await log.read(0, 180)
        assert counted.asked == [0, 0]
        await log.ledgers[0].shrink(EntryId(50), force=True)
        counted.asked.clear()
        assert await log.read(0, 180) == Read(expected(150, 180), [(0, 150)])
        assert counted.asked[-2:] == [0, 50]
        assert len(counted.asked) < 10

    with_log(work)


def test_a_long_range_is_read_in_runs_of_one_mebibyte() -> None:
    async def work(log: PlannedLog) -> None:
        await log.write(60, SINGLE, payload_bytes=25_000)
        reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(180), lambda *each: None)
        async with aclosing(reading) as runs:
            sizes = [sum(map(len, batches)) async for batches in runs]
        batch = sum(sizes) // 60
        assert sum(sizes) > 4 << 20
        assert max(sizes) <= 1 << 20
        assert min(sizes[:-1]) > (1 << 20) - batch

    with_log(work)


class Altering:
    """Has the bookies in `names` change the last byte of each entry that they send, after their own checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[BookieId] = []
        self.changed = 0
        exchange = RpcClient.exchange

        async def altered(client: RpcClient, method: str, *args: Any, **given: Any) -> tuple[Any, bytes]:
            answer, attachment = await exchange(client, method, *args, **given)
            if client.address.partition(":")[0] not in self.names or method not in ("read", "read_range"):
                return answer, attachment
            found, end = bytearray(attachment), 0
            for size in [size for _, size in answer[1]] if method == "read_range" else [len(found)]:
                end += size
                found[end - 1] ^= 1
                self.changed += 1
            return answer, bytes(found)

        monkeypatch.setattr(RpcClient, "exchange", altered)


def test_an_entry_that_is_changed_on_its_way_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookies send what they have checked; a reader checks the digests again."""
    altering = Altering(monkeypatch)

    async def work(log: PlannedLog) -> None:
        await written(log)
        sound = await log.contents(0, log.end)
        altering.names = [SECOND]
        assert await log.contents(0, log.end) == sound
        assert altering.changed
        altering.names = BOOKIES
        with pytest.raises(UnreadableEntry, match=f"entry 0 of ledger {log.segments[0].ledger} is damaged"):
            await log.contents(0, log.end)

    with_log(work)


def test_a_read_that_ends_early_withdraws_its_requests() -> None:
    async def work(log: PlannedLog) -> None:
        await log.write(60, SINGLE, payload_bytes=100)
        counted = Counted(log, 1_000)
        client = counted.client
        for waits in (False, True):
            reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(180), lambda *each: None)
            async with aclosing(reading) as runs:
                await anext(runs)
                await trio.testing.wait_all_tasks_blocked()
                assert client.waits
                log.cluster.simulation.network.block("client", log.segments[0].record.bookies[0])
                if waits:
                    with trio.move_on_after(0.01) as scope:
                        await anext(runs)
                    assert scope.cancelled_caught
            await trio.testing.wait_all_tasks_blocked()
            assert [client.waits] == [False]
            log.cluster.simulation.network.heal()
        reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(180), lambda *each: None)
        counted.silent = True
        with trio.move_on_after(0.01) as scope:
            await anext(reading)
        assert scope.cancelled_caught
        assert [client.waits] == [False]

    with_log(work)


def test_an_error_of_a_run_ahead_waits_for_its_turn() -> None:
    async def work(log: PlannedLog) -> None:
        await written(log)
        log.damage(1, 3, BOOKIES)
        await log.client.world.clock.sleep(0.1)
        found: list[int] = []
        reading = read_planned(log.bookies, "orders-0", log.segments, Offset(0), Offset(60), lambda *each: None)

        async def read() -> None:
            async for batches in reading:
                found.append(len(batches))
                await log.client.world.clock.sleep(1)

        with pytest.raises(UnreadableEntry):
            await read()
        assert sum(found) * OFFSETS == 24

    with_log(work)
