from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
import trio

from gnomon.runtime.disk.commit import CommitQueue
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DiskFailed, DiskFull, Durability, WorldError


def run_with_queue(
    path: Path,
    main: Callable[[CommitQueue], Awaitable[None]],
    *,
    map_bytes: int = 1 << 30,
    durability: Durability = Durability.SYNCED,
) -> None:
    async def with_queue() -> None:
        with trio.fail_after(20):
            async with open_trio_world() as world:
                queue = world.disk.open_environment(
                    path / "store", databases=["entries"], map_bytes=map_bytes, durability=durability
                )
                assert isinstance(queue, CommitQueue)
                await main(queue)

    trio.run(with_queue)


def put(queue: CommitQueue, key: bytes, value: bytes = b"v") -> Callable[[Any], bool]:
    return lambda transaction: transaction.put(key, value, db=queue.databases["entries"])


def get(queue: CommitQueue, key: bytes) -> bytes | None:
    with queue.read() as transaction:
        value = transaction.get(key, db=queue.databases["entries"])
        return None if value is None else bytes(value)


class Faulty:
    """An LMDB environment whose commits fail with a given error."""

    def __init__(self, real: lmdb.Environment, error: Exception) -> None:
        self._real, self._error, self.commits = real, error, 0

    def begin(self, **options: Any) -> Any:
        return FaultyTransaction(self, self._real.begin(**options), self._error)

    def info(self) -> Any:
        return self._real.info()

    def close(self) -> None:
        self._real.close()


class FaultyTransaction:
    def __init__(self, owner: Faulty, real: Any, error: Exception) -> None:
        self._owner, self._real, self._error = owner, real, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self) -> None:
        self._owner.commits += 1
        self._real.abort()
        raise self._error


def test_a_commit_returns_its_result_and_can_be_read(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        assert await queue.commit(put(queue, b"a", b"1")) is True
        assert get(queue, b"a") == b"1"
        assert get(queue, b"b") is None
        assert queue.file_bytes() > 0

    run_with_queue(tmp_path, main)


def test_queued_operations_become_one_group_and_results_come_in_submit_order(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        gate, all_done, done = threading.Event(), trio.Event(), []
        queue.submit(lambda _: gate.wait(10), lambda result, error: done.append((-1, error)))
        # The first operation blocks the thread; the others queue up and join its group when it continues.
        for number in range(500):
            queue.submit(lambda _, number=number: number, lambda result, error: done.append((result, error)))
        queue.submit(lambda _: None, lambda result, error: all_done.set())
        gate.set()
        await all_done.wait()
        assert done == [(number, None) for number in range(-1, 500)]
        assert queue.counts.operations == 502
        assert queue.counts.groups < 20
        assert queue.counts.seconds > 0

    run_with_queue(tmp_path, main)


def test_a_result_is_handed_back_only_after_its_transaction_was_committed(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        seen: list[bytes | None] = []
        finished = trio.Event()

        def done(result: object, error: WorldError | None) -> None:
            seen.append(get(queue, b"%03d" % len(seen)))
            if len(seen) == 100:
                finished.set()

        for number in range(100):
            queue.submit(put(queue, b"%03d" % number), done)
        await finished.wait()
        assert seen == [b"v"] * 100

    run_with_queue(tmp_path, main)


def test_a_full_map_fails_the_group_stores_nothing_and_later_commits_succeed(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        await queue.commit(put(queue, b"first"))
        with pytest.raises(DiskFull, match="free disk space or enlarge the map"):
            await queue.commit(put(queue, b"big", bytes(1 << 20)))
        assert get(queue, b"big") is None
        assert get(queue, b"first") == b"v"
        await queue.commit(put(queue, b"small"))
        assert get(queue, b"small") == b"v"

    run_with_queue(tmp_path, main, map_bytes=256 << 10)


def test_no_space_on_the_device_at_commit_is_disk_full_and_not_sticky(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        real = queue._environment
        queue._environment = Faulty(real, lmdb.DiskError("mdb_txn_commit: No space left on device"))
        with pytest.raises(DiskFull, match="No space left"):
            await queue.commit(put(queue, b"a"))
        queue._environment = real
        await queue.commit(put(queue, b"b"))
        assert (get(queue, b"a"), get(queue, b"b")) == (None, b"v")

    run_with_queue(tmp_path, main)


def test_a_failed_sync_closes_the_environment_for_writing_for_ever(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        await queue.commit(put(queue, b"before"))
        real = queue._environment
        queue._environment = faulty = Faulty(real, lmdb.Error("mdb_txn_commit: Input/output error"))
        with pytest.raises(DiskFailed, match="Input/output error"):
            await queue.commit(put(queue, b"a"))
        queue._environment = real  # the device seems to work again: still nothing may be committed
        for _ in range(3):
            with pytest.raises(DiskFailed):
                await queue.commit(put(queue, b"b"))
        assert faulty.commits == 1
        assert get(queue, b"before") == b"v"
        assert get(queue, b"b") is None

    run_with_queue(tmp_path, main)


def test_a_failure_answers_every_operation_of_its_group(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        real = queue._environment
        queue._environment = Faulty(real, OSError(5, "Input/output error"))
        errors: list[WorldError | None] = []
        finished = trio.Event()
        for number in range(20):
            queue.submit(put(queue, b"%d" % number), lambda result, error: errors.append(error))
        queue.submit(put(queue, b"last"), lambda result, error: finished.set())
        await finished.wait()
        queue._environment = real
        assert len(errors) == 20
        assert all(isinstance(error, DiskFailed) for error in errors)

    run_with_queue(tmp_path, main)


def test_an_operation_that_raises_stops_the_node_and_its_group_is_not_answered(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        queue.submit(put(queue, b"a"), lambda result, error: pytest.fail("must not be answered"))
        queue.submit(lambda _: {}["bug"], lambda result, error: pytest.fail("must not be answered"))
        await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        run_with_queue(tmp_path, main)
    assert caught.value.subgroup(KeyError)


def test_a_callback_that_raises_stops_the_node(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        queue.submit(put(queue, b"a"), lambda result, error: 1 // 0)
        await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        run_with_queue(tmp_path, main)
    assert caught.value.subgroup(ZeroDivisionError)


def test_close_commits_and_answers_submitted_operations_and_is_idempotent(tmp_path: Path) -> None:
    answers: list[object] = []

    async def write(queue: CommitQueue) -> None:
        for number in range(200):
            queue.submit(put(queue, b"%d" % number), lambda result, error: answers.append((result, error)))
        queue.close()
        assert answers == [(True, None)] * 200
        queue.close()
        with pytest.raises(AssertionError, match="after it was closed"):
            queue.submit(put(queue, b"late"), lambda result, error: None)

    async def read(queue: CommitQueue) -> None:
        assert all(get(queue, b"%d" % number) == b"v" for number in range(200))

    run_with_queue(tmp_path, write)
    run_with_queue(tmp_path, read)
    assert len(answers) == 200


def test_a_cancelled_commit_may_still_happen(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        gate = threading.Event()
        with trio.CancelScope() as scope:
            scope.cancel()
            await queue.commit(lambda transaction: gate.wait(10) and put(queue, b"a")(transaction))
        assert scope.cancelled_caught
        gate.set()
        await queue.commit(lambda _: None)
        assert get(queue, b"a") == b"v"

    run_with_queue(tmp_path, main)


def test_durability_none_commits_and_survives_a_reopening(tmp_path: Path) -> None:
    async def write(queue: CommitQueue) -> None:
        assert queue._environment.flags()["sync"] is False
        await queue.commit(put(queue, b"a"))

    async def read(queue: CommitQueue) -> None:
        assert queue._environment.flags()["sync"] is True
        assert get(queue, b"a") == b"v"

    run_with_queue(tmp_path, write, durability=Durability.NONE)
    run_with_queue(tmp_path, read)


def test_a_file_that_is_no_lmdb_environment_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"not lmdb" * 2048)

    async def main(queue: CommitQueue) -> None:
        raise AssertionError

    with pytest.raises(DiskFailed, match=r"cannot open the store at .*store"):
        run_with_queue(tmp_path, main)


@pytest.mark.parametrize("left", [0, 5000, 1 << 20])
def test_a_truncated_file_is_refused_with_its_sizes(tmp_path: Path, left: int) -> None:
    async def main(queue: CommitQueue) -> None:
        for number in range(4):
            await queue.commit(put(queue, b"%d" % number, bytes(1 << 20)))

    run_with_queue(tmp_path, main)
    run_with_queue(tmp_path, main)
    file = tmp_path / "store" / "data.mdb"
    os.truncate(file, left)
    cut_short = rf"data\.mdb was cut short: it has {left} bytes, and what was written ends at \d+:"
    with pytest.raises(DiskFailed, match=cut_short):
        run_with_queue(tmp_path, main)
    assert file.stat().st_size == left


def test_a_file_whose_commits_freed_their_own_pages_is_not_refused_as_truncated(tmp_path: Path) -> None:
    async def main(queue: CommitQueue) -> None:
        entries = queue.databases["entries"]

        def take_and_give_back(transaction: Any) -> None:
            for size in (300_000, 50_000):
                transaction.put(b"a", bytes(size), db=entries)
            transaction.delete(b"a", db=entries)

        for _ in range(3):
            await queue.commit(take_and_give_back)

    for _ in range(3):
        run_with_queue(tmp_path, main)
