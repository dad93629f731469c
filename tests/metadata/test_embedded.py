"""The embedded metadata store: the times at which changes are durable and visible."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
from background_calls import calls, taken
from trio.testing import wait_all_tasks_blocked

from gnomon.metadata import records
from gnomon.metadata.client import (
    TXN_BYTES_MAX,
    Compare,
    Get,
    HistoryCompacted,
    InvalidRequest,
    LeaseNotFound,
    MetadataFull,
    MetadataUnavailable,
    Put,
    Revision,
    TxnOutcome,
)
from gnomon.metadata.embedded import DATABASES, REQUESTS_PER_COMMIT_MAX, EmbeddedMetadata
from gnomon.metadata.sealed import seal
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DiskFailed, DiskFull, Durability

FULL = DiskFull("no room")


BROKEN = DiskFailed("EIO")


def test_every_answered_change_survives_a_restart(machine: Any) -> None:
    async def main() -> None:
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            lease = await metadata.lease(10)
            await metadata.txn([], [Put("a", b"1"), Put("b", b"2", lease)])
            await metadata.txn([Compare.version("a", 1)], [Put("a", b"3")])
            before, history = await metadata.range(""), await taken(metadata, 1, 2)
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            assert await metadata.range("") == before
            assert await taken(metadata, 1, 2) == history
            assert await metadata.lease(10) == lease + 1

    machine.run(main)


def test_a_write_is_neither_answered_nor_visible_before_it_is_durable(machine: Any) -> None:  # invariants 2 and 3
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        async with calls() as start:
            put = await start(metadata.txn([], [Put("a", b"1")]))
            seen = await start(taken(metadata, 1, 1))
            assert await metadata.get("a") is None
            assert (await metadata.range("")).revision == 0
            assert not put.answered
            assert not seen.answered
            environment.release()
            await wait_all_tasks_blocked()
            assert put.result.revision == 1
            assert seen.result[0].events[0].current == await metadata.get("a") is not None

    machine.run_opened(main)


def test_requests_during_a_commit_become_one_commit_and_are_evaluated_in_order(machine: Any) -> None:  # invariant 1
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        async with calls() as start:
            claims = [
                await start(metadata.txn([Compare.absent("a")], [Put("a", b"%d" % n)], [Put(f"late/{n}", b"")]))
                for n in range(10)
            ]
            assert len(environment.waiting) == 1
            environment.release()
            assert len(environment.waiting) == 1
            await wait_all_tasks_blocked()
            assert [claim.answered for claim in claims] == [True] + [False] * 9
            environment.release()
            await wait_all_tasks_blocked()
            assert [claim.result.succeeded for claim in claims] == [True] + [False] * 9
            assert [claim.result.revision for claim in claims] == list(range(1, 11))
            assert environment.counts.groups == 2

    machine.run_opened(main)


def test_a_refusal_that_depends_on_an_unfinished_write_waits_for_that_write(machine: Any) -> None:  # invariant 3
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        async with calls() as start:
            await start(metadata.txn([], [Put("x", b"")]))
            first = await start(metadata.txn([Compare.absent("a")], [Put("a", b"1")]))
            second = await start(metadata.txn([Compare.absent("a")], [Put("a", b"2")]))
            environment.release()
            await wait_all_tasks_blocked()
            environment.failing = FULL
            environment.release()
            await wait_all_tasks_blocked()
            assert isinstance(first.error, MetadataFull)
            assert isinstance(second.error, MetadataFull)

    machine.run_opened(main)


def test_a_commit_answers_no_more_requests_than_a_turn_has_room_for(machine: Any) -> None:
    count = 2 * REQUESTS_PER_COMMIT_MAX + 1

    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        async with calls() as start:
            puts = [await start(metadata.txn([], [Put(f"{number}", b"")])) for number in range(count)]
            answered = []
            while not answered or answered[-1] < count:
                environment.release()
                await wait_all_tasks_blocked()
                answered.append(sum(put.answered for put in puts))
            assert answered == [1, 1 + REQUESTS_PER_COMMIT_MAX, count]

    machine.run_opened(main)


def test_a_request_without_changes_costs_no_commit(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        lease = await metadata.lease(10)
        commits = environment.counts.groups
        await metadata.keep_alive(lease)
        await metadata.txn([Compare.version("a", 1)], [Put("a", b"")])
        assert environment.counts.groups == commits == 1

    machine.run_opened(main)


def test_a_write_that_fails_on_a_full_disk_has_no_effect_on_later_requests(machine: Any) -> None:
    async def main() -> None:  # invariant 4
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            environment.held, environment.failing = True, FULL
            async with calls() as start:
                lost = await start(metadata.txn([], [Put("a", b"1")]))
                kept = await start(metadata.txn([Compare.absent("a")], [Put("a", b"2")]))
                environment.release()
                environment.failing = None
                environment.release()
                await wait_all_tasks_blocked()
            assert isinstance(lost.error, MetadataFull)
            assert "nothing was applied" in str(lost.error)
            assert kept.result == TxnOutcome(True, Revision(1), (await metadata.get("a"),))
            before = await metadata.range("")
        with machine.environment() as environment:
            assert await (await machine.open(environment)).range("") == before

    machine.run(main)


def test_a_failed_device_stops_the_store_and_all_its_callers_get_an_error(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:  # invariant 5
        environment.held, environment.failing = True, BROKEN
        outcome: list[DiskFailed] = []

        async def run() -> None:
            with pytest.raises(DiskFailed) as raised:
                await metadata.run()
            outcome.append(raised.value)

        async with calls() as start:
            running = await start(run())
            watching = await start(taken(metadata, 1, 1))
            under_way = await start(metadata.txn([], [Put("a", b"")]))
            waiting = await start(metadata.txn([], [Put("b", b"")]))
            environment.release()
            await wait_all_tasks_blocked()
            assert running.answered
            assert outcome == [BROKEN]
            for asked in (under_way, waiting, watching):
                assert type(asked.error) is MetadataUnavailable
            assert "may be lost" in str(under_way.error)
            assert "nothing was applied" in str(waiting.error)
            with pytest.raises(MetadataUnavailable):
                await metadata.txn([], [Put("c", b"")])
        assert environment.waiting == []

    machine.run_opened(main)


def test_a_closed_store_answers_all_waiting_callers(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        async with calls() as start:
            under_way = await start(metadata.txn([], [Put("a", b"")]))
            waiting = await start(metadata.txn([], [Put("b", b"")]))
            watching = await start(taken(metadata, 1, 1))
            metadata.close()
            await wait_all_tasks_blocked()
            assert isinstance(waiting.error, MetadataUnavailable)
            assert isinstance(watching.error, MetadataUnavailable)
            environment.release()
            await wait_all_tasks_blocked()
            assert under_way.result.succeeded
            with pytest.raises(MetadataUnavailable, match="closed"):
                await metadata.get("a")

    machine.run_opened(main)


def test_closing_the_store_ends_its_run_even_while_a_lease_is_due(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        await metadata.lease(10)
        environment.failing = FULL
        async with calls() as start:
            running = await start(metadata.run())
            await trio.sleep(10.5)
            metadata.close()
            await trio.sleep(2)
            assert running.answered
            assert running.error is None

    machine.run_opened(main)


def test_cancelling_the_run_closes_the_store(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        with trio.move_on_after(1):
            await metadata.run()
        with pytest.raises(MetadataUnavailable, match="closed"):
            await metadata.txn([], [Put("a", b"")])

    machine.run_opened(main)


def test_a_caller_that_is_cancelled_may_have_written(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        environment.held = True
        with trio.move_on_after(1) as scope:
            await metadata.txn([], [Put("a", b"")])
        assert scope.cancelled_caught
        environment.release()
        assert await metadata.get("a") is not None

    machine.run_opened(main)


def test_a_watcher_that_falls_behind_the_history_gets_an_error_and_the_others_miss_nothing(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:  # invariant 6
        seen: list[int] = []

        async def follow() -> None:
            async with metadata.watch("", Revision(1)) as watch:
                while True:
                    seen.append((await anext(watch)).revision)

        async with calls() as start, metadata.watch("", Revision(1)) as slow:
            await start(follow())
            for _ in range(10):
                await metadata.txn([], [Put("a", b"")])
                await wait_all_tasks_blocked()
            with pytest.raises(HistoryCompacted, match="oldest kept is 8"):
                await anext(slow)
        assert seen == list(range(1, 11))

    machine.run_opened(main, history_revisions=3)


def test_a_watch_of_a_quiet_prefix_does_not_fall_out_of_the_history(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        async with calls() as start, metadata.watch("quiet/", Revision(1)) as watch:
            waiting = await start(anext(watch))
            for _ in range(10):
                await metadata.txn([], [Put("a", b"")])
                await wait_all_tasks_blocked()
            await metadata.txn([], [Put("quiet/1", b"")])
            await wait_all_tasks_blocked()
            assert waiting.result.revision == 11

    machine.run_opened(main, history_revisions=2)


def test_a_watch_continues_at_its_position_after_a_cancelled_wait(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        async with metadata.watch("", Revision(1)) as watch:
            for expected in (1, 2, 3):
                with trio.move_on_after(1):
                    await anext(watch)
                await metadata.txn([], [Put("a", b"")])
                assert (await anext(watch)).revision == expected

    machine.run_opened(main)


def test_history_is_trimmed_also_on_disk_and_at_once_after_the_setting_is_lowered(machine: Any) -> None:
    def kept(environment: Any) -> int:
        with environment.read() as transaction:
            return int(transaction.stat(environment.databases[records.HISTORY])["entries"])

    async def main() -> None:
        with machine.environment() as environment:
            metadata = await machine.open(environment, history_revisions=5)
            for _ in range(8):
                await metadata.txn([], [Put("a", b"")])
            assert kept(environment) == 5
        for setting, expected in [(5, 5), (2, 2), (5, 2)]:
            with machine.environment() as environment:
                metadata = await machine.open(environment, history_revisions=setting)
                assert kept(environment) == expected
                assert [batch.revision for batch in await taken(metadata, 9 - expected, expected)][-1] == 8
                with pytest.raises(HistoryCompacted):
                    await taken(metadata, 8 - expected, 1)

    machine.run(main)


def test_leases_survive_a_restart_and_have_their_full_time_again(machine: Any) -> None:
    async def main() -> None:
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            lease = await metadata.lease(10)
            await metadata.txn([], [Put("a", b"", lease)])
        await trio.sleep(100)
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            async with calls() as start:
                await start(metadata.run())
                await trio.sleep(9)
                await metadata.keep_alive(lease)
                await trio.sleep(9)
                assert await metadata.get("a") is not None
                await trio.sleep(2)
                assert await metadata.get("a") is None
        with machine.environment() as environment:
            metadata = await machine.open(environment)
            with pytest.raises(LeaseNotFound):
                await metadata.keep_alive(lease)

    machine.run(main)


def test_a_slow_commit_ends_no_lease_that_was_kept_alive_in_time(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:  # invariant 7
        kept, due = await metadata.lease(6), await metadata.lease(6)
        await metadata.txn([], [Put("kept", b"", kept), Put("due", b"", due)])
        environment.held = True
        async with calls() as start:
            await start(metadata.run())
            await start(metadata.txn([], [Put("slow", b"")]))
            await trio.sleep(3)
            keep_alive = await start(metadata.keep_alive(kept))
            await trio.sleep(5)
            read = await start(metadata.txn([], [Get("kept"), Get("due")]))  # committed with the end of `due`
            environment.release()
            await trio.sleep(7)
            environment.held = False
            environment.release()
            await wait_all_tasks_blocked()
            assert keep_alive.error is None
            assert [item is not None for item in read.result.results] == [True, False]
            await trio.sleep(5.9)  # the full time counts from the answer
            assert await metadata.get("kept") is not None
            await trio.sleep(0.2)
            assert await metadata.get("kept") is None

    machine.run_opened(main)


def test_a_lease_lives_its_full_time_after_the_answer_of_a_slow_grant(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:  # invariant 7
        async with calls() as start:
            await start(metadata.run())
            environment.held = True
            granted = await start(metadata.lease(6))
            await trio.sleep(10)
            environment.held = False
            environment.release()
            await trio.sleep(5.9)
            await metadata.keep_alive(granted.result)

    machine.run_opened(main)


def test_a_keep_alive_is_evaluated_at_the_time_of_its_request_also_on_a_full_disk(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:  # invariants 4 and 7
        lease = await metadata.lease(6)
        environment.held, environment.failing = True, FULL
        async with calls() as start:
            await start(metadata.txn([], [Put("a", b"")]))
            kept = await start(metadata.keep_alive(lease))
            await start(metadata.txn([], [Put("b", b"")]))
            environment.release()
            await trio.sleep(7)
            environment.release()
            await wait_all_tasks_blocked()
            assert kept.answered
            assert kept.error is None
            environment.held, environment.failing = False, None
            await trio.sleep(5.9)
            await metadata.keep_alive(lease)

    machine.run_opened(main)


def test_a_lease_that_expires_on_a_full_disk_ends_when_there_is_room(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        lease = await metadata.lease(10)
        await metadata.txn([], [Put("a", b"", lease)])
        async with calls() as start:
            await start(metadata.run())
            environment.failing = FULL
            await trio.sleep(20)
            assert await metadata.get("a") is not None
            environment.failing = None
            await trio.sleep(2)
            assert await metadata.get("a") is None

    machine.run_opened(main)


def test_an_expired_lease_on_a_full_disk_does_not_end_leases_that_are_kept_alive(machine: Any) -> None:
    async def main(environment: Any, metadata: EmbeddedMetadata) -> None:
        due, kept = await metadata.lease(10), await metadata.lease(10)
        await metadata.txn([], [Put("due", b"", due), Put("kept", b"", kept)])
        async with calls() as start:
            await start(metadata.run())
            environment.failing = FULL
            for _ in range(10):
                await trio.sleep(4)
                await metadata.keep_alive(kept)
            with pytest.raises(MetadataFull):
                await metadata.keep_alive(due)
            environment.failing = None
            await trio.sleep(2)
            assert [item.key for item in (await metadata.range("")).items] == ["kept"]

    machine.run_opened(main)


def test_a_store_of_a_newer_format_is_refused(machine: Any) -> None:
    async def main() -> None:
        with machine.environment() as environment:
            await machine.open(environment)
            with environment.lmdb.begin(write=True, db=environment.databases[records.META]) as transaction:
                newer = seal(records.META, records.FORMAT_KEY, msgpack.packb(records.FORMAT + 1))
                transaction.put(records.FORMAT_KEY, newer)
            with pytest.raises(records.NewerFormat, match=f"has format {records.FORMAT + 1}"):
                await machine.open(environment)

    machine.run(main)


def test_concurrent_claims_share_commits_in_the_production_world(tmp_path: Path) -> None:
    async def opened(world: Any) -> tuple[Any, EmbeddedMetadata]:
        environment = world.disk.open_environment(
            tmp_path / "metadata", databases=DATABASES, map_bytes=1 << 26, durability=Durability.SYNCED
        )
        return environment, await EmbeddedMetadata.open(world, environment)

    async def main() -> None:
        async with open_trio_world() as world:
            environment, metadata = await opened(world)
            async with trio.open_nursery() as nursery:
                for number in range(300):
                    nursery.start_soon(metadata.txn, [Compare.absent(f"p/{number}")], [Put(f"p/{number}", b"")])
            found = await metadata.range("")
            assert len(found.items) == found.revision == 300
            assert environment.counts.operations < 30
            metadata.close()
            environment.close()
            _, metadata = await opened(world)
            assert await metadata.range("") == found
            metadata.close()

    trio.run(main)


def test_large_values_are_refused_with_the_number_and_take_no_memory(machine: Any) -> None:
    async def main(_environment: Any, metadata: EmbeddedMetadata) -> None:
        value = bytes(16 << 20)
        tracemalloc.start()
        try:
            for number in range(30):
                with pytest.raises(InvalidRequest, match=f"{len(value) + 1} bytes, {TXN_BYTES_MAX} are allowed"):
                    await metadata.txn([], [Put("%x" % (number % 16), value)])
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        largest = TXN_BYTES_MAX - 1
        assert (await metadata.txn([], [Put("a", value[:largest])])).succeeded

    machine.run_opened(main)
