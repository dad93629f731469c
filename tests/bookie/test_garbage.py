from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from ledger_house import House, Run
from store_calls import stored_entries
from turns import turns_during

from gnomon.bookie.entry import encode_entry
from gnomon.bookie.errors import NoSuchEntry
from gnomon.bookie.ids import EntryId
from gnomon.bookie.ledgers.catalog import delete_ledgers
from gnomon.bookie.local_bookie import LocalBookie
from gnomon.bookie.record import ledger_key
from gnomon.bookie.storage.garbage import GarbageCollector
from gnomon.metadata.client import MetadataUnavailable, Revision


class Trusting:
    """Believes any metadata."""

    async def check(self, revision: Revision) -> None:
        pass


TRUST = Trusting()


def collector_of(house: House) -> GarbageCollector:
    return GarbageCollector(house.store, house.metadata, TRUST, house.clock, interval_seconds=60)


def test_entries_of_deleted_ledgers_and_shrunk_entries_are_removed(run: Run) -> None:
    async def scenario(house: House) -> None:
        collector = collector_of(house)
        ledgers = [await house.create(name) for name in "abc"]
        for ledger in ledgers:
            for _ in range(4):
                await ledger.add([b"payload"])
        await ledgers[1].shrink(EntryId(3))
        await delete_ledgers(house.metadata, [house.metadata.keys[ledger_key("a")]])
        assert await collector.collect() == (1, 7)
        assert await house.store.ledgers.all() == [ledgers[1].id, ledgers[2].id]
        assert await ledgers[1].read(EntryId(3), EntryId(3)) == [b"payload"]
        assert await collector.collect() == (0, 0)
        assert collector.total == (1, 7)

    run(scenario)


def test_a_ledger_created_while_a_collection_runs_is_kept(run: Run) -> None:
    async def scenario(house: House) -> None:
        read = house.metadata.range

        async def range_with_a_creation_around_it(prefix: str) -> Any:
            await (await house.create("before")).add([b"kept"])
            found = await read(prefix)
            await (await house.create("after")).add([b"kept"])
            return found

        house.metadata.range = range_with_a_creation_around_it
        assert await collector_of(house).collect() == (0, 0)
        assert stored_entries(house.environment) == 2

    run(scenario)


def test_a_collection_forgets_deleted_ledgers_that_peers_have_asked_for(run: Run) -> None:
    async def scenario(house: House) -> None:
        collector = collector_of(house)
        ledgers = [await house.create(name) for name in "ab"]
        for ledger in ledgers:
            await ledger.add([b"payload"])
        await delete_ledgers(house.metadata, [house.metadata.keys[ledger_key("a")]])
        await collector.collect()
        house.store.confirm(ledgers[0].id, ledgers[0].session, EntryId(0))  # a late one
        await collector.collect()
        assert list(house.store.ledgers.known) == [ledgers[1].id]

    run(scenario)


def test_a_collection_forgets_a_deleted_ledger_whose_removal_was_cancelled_behind_its_last_commit(run: Run) -> None:
    async def scenario(house: House) -> None:
        ledgers = [await house.create(name) for name in "ab"]
        for ledger in ledgers:
            await ledger.add([b"payload"])
        await delete_ledgers(house.metadata, [house.metadata.keys[ledger_key("a")]])
        await house.store.delete(ledgers[0].id)
        with trio.CancelScope() as call, pytest.MonkeyPatch.context() as patch:
            patch.setattr(house.store.ledgers, "removed", lambda ledger: call.cancel())
            await house.store.remove(ledgers[0].id)
        assert house.store.ledgers.given_up() == []
        assert ledgers[0].id in house.store.ledgers.known
        await collector_of(house).collect()
        assert list(house.store.ledgers.known) == [ledgers[1].id]

    run(scenario)


def test_a_copy_that_arrives_below_the_start_of_its_ledger_is_removed_by_the_next_collection(run: Run) -> None:
    async def scenario(house: House) -> None:
        collector = collector_of(house)
        ledger = await house.create()
        for _ in range(4):
            await ledger.add([b"payload"])
        copy = encode_entry(ledger.id, EntryId(1), ledger.session, EntryId(0), 0, [b"payload"])
        await ledger.shrink(EntryId(3))
        assert await collector.collect() == (0, 3)
        await LocalBookie(house.store).put_copies(ledger.id, ledger.session, [(EntryId(1), copy)])
        assert stored_entries(house.environment) == 2
        assert await collector.collect() == (0, 1)
        assert stored_entries(house.environment) == 1
        assert await collector.collect() == (0, 0)

    run(scenario)


def test_a_crash_between_the_metadata_change_and_the_removal_is_harmless(run: Run, make_environment: Any) -> None:
    async def scenario(house: House) -> None:
        ledger = await house.create()
        await ledger.add([b"payload"])
        await delete_ledgers(house.metadata, [house.metadata.keys[ledger_key("ledger")]])
        await house.store.delete(ledger.id)  # the process dies after the ledger is marked
        house.environment.crash()
        reopened = make_environment(house.environment.path)
        after = House(reopened, house.clock, house.metadata)
        with pytest.raises(Exception, match="shrunk away"), after.store.view() as view:
            view.get(ledger.id, EntryId(1))
        await collector_of(after).collect()
        assert (await after.store.ledgers.all(), after.store.ledgers.given_up()) == ([], [])
        with pytest.raises(NoSuchEntry), after.store.view() as view:
            view.get(ledger.id, EntryId(0))
        reopened.environment.close()

    run(scenario)


def test_without_metadata_nothing_is_dropped_and_the_collector_retries(run: Run) -> None:
    async def scenario(house: House) -> None:
        await (await house.create()).add([b"payload"])
        collector = collector_of(house)
        turns: list[str | None] = []
        answer = house.metadata.range

        async def range_that_fails_once(prefix: str) -> Any:
            turns.append(collector.problem)
            if len(turns) == 1:
                raise MetadataUnavailable("nobody answers")
            if len(turns) == 3:
                nursery.cancel_scope.cancel()
            return await answer(prefix)

        house.metadata.range = range_that_fails_once
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collector.run)
        assert turns == [None, "nobody answers", None]
        assert house.clock.now >= 180
        assert stored_entries(house.environment) == 1

    run(scenario)


def test_under_steady_retention_the_file_stops_growing_and_adds_continue(
    tmp_path: Path, clock: Any, make_metadata: Any, make_environment: Any
) -> None:
    """2 MiB are kept while 40 times as much is written, in entries of mixed sizes."""
    environment = make_environment(tmp_path / "bookie")
    sizes = (100, 1_000, 5_000, 30_000, 65_000)
    kept_bytes, rounds = 2 << 20, 40

    async def main() -> list[int]:
        house = House(environment, clock, make_metadata())
        ledger, collector = await house.create(), collector_of(house)
        appended: list[int] = []
        files = []
        for _ in range(rounds):
            before = ledger.length_bytes
            while ledger.length_bytes - before < kept_bytes:
                appended.append(sizes[len(appended) % len(sizes)])
                ledger.append([bytes(appended[-1])], lambda _entry, error: None)
                if len(appended) % 20 == 0:
                    await ledger.drained()
            await ledger.drained()
            last = ledger.next_entry - 1
            in_round = int((ledger.length_bytes - before) / sum(sizes) * len(sizes))
            await ledger.shrink(EntryId(max(0, last - in_round)))
            collected = trio.Event()

            async def collect(collected: trio.Event = collected) -> None:
                await collector.collect()
                collected.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect)
                added = 0
                while not collected.is_set():
                    await ledger.add([bytes(100)])
                    added += 1
            assert added >= 1, "an add waited for the whole collection"
            files.append(house.store.file_bytes())
        return files

    files = trio.run(main)
    environment.environment.close()
    print(f"file in MiB after 5, 10, 20, 40 rounds: {[round(files[at - 1] / 2**20, 1) for at in (5, 10, 20, 40)]}")
    assert files[-1] <= 1.25 * files[9], "the file grows on although what is kept does not"
    assert files[-1] <= 6 * kept_bytes


def test_a_collection_over_many_ledgers_yields_to_other_tasks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(house: House) -> None:
        for number in range(100):
            await (await house.create(str(number))).add([b"kept"])
        monkeypatch.setattr("gnomon.bookie.storage.garbage.RECORDS_PER_TURN", 5)
        assert await turns_during(collector_of(house).collect()) >= 20
        assert stored_entries(house.environment) == 100

    run(scenario)


def test_adds_continue_while_a_large_ledger_is_removed(run: Run) -> None:
    async def scenario(house: House) -> None:
        large, live = [await house.create(name) for name in ("large", "live")]
        for _ in range(20_000):
            large.append([b"x" * 100], lambda _entry, _error: None)
        await large.drained()
        await delete_ledgers(house.metadata, [house.metadata.keys[ledger_key("large")]])
        added = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collector_of(house).collect)
            while large.id in await house.store.ledgers.all():
                await live.add([b"y"])
                added += 1
        assert added >= 10, f"only {added} adds got in between 20 chunks"

    run(scenario)
