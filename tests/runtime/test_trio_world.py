from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from gnomon.runtime.disk.commit import CommitQueue
from gnomon.runtime.loop.sockets import SocketLoop
from gnomon.runtime.trio_world import TrioDisk, open_trio_world
from gnomon.runtime.world import DirectoryTaken, Durability, World, WorldError

HOLDER = """
import sys
from pathlib import Path
from gnomon.runtime.trio_world import TrioDisk
with TrioDisk(print, crash=print).lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def make_disk() -> TrioDisk:
    return TrioDisk(call_soon=lambda call: call(), crash=lambda error: pytest.fail(str(error)))


def test_a_directory_in_use_is_refused_with_the_process_id_until_that_process_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(DirectoryTaken, match=rf"{directory} is in use by process {holder.pid}: stop it or"),
            make_disk().lock(directory),
        ):
            pass
        holder.kill()
        holder.wait()
        with make_disk().lock(directory):
            assert (directory / "LOCK").read_text() == f"{os.getpid()}\n"


def test_a_directory_is_held_once_within_a_process_and_free_after_the_block(tmp_path: Path) -> None:
    disk = make_disk()
    with disk.lock(tmp_path), pytest.raises(DirectoryTaken), disk.lock(tmp_path):
        pass
    with disk.lock(tmp_path):
        pass


def test_a_small_file_is_replaced_whole_and_an_absent_one_reads_as_none(tmp_path: Path) -> None:
    disk = make_disk()
    assert disk.read_file(tmp_path / "format") is None
    disk.write_file(tmp_path / "format", b"1")
    disk.write_file(tmp_path / "format", b"two")
    assert disk.read_file(tmp_path / "format") == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["format"]


def test_the_space_of_the_file_system_is_reported_and_a_missing_path_is_an_error(tmp_path: Path) -> None:
    space = make_disk().space(tmp_path)
    assert 0 < space.usable_bytes <= space.total_bytes
    assert space.total_bytes == shutil.disk_usage(tmp_path).total
    with pytest.raises(WorldError, match="nowhere"):
        make_disk().space(tmp_path / "nowhere")


def test_the_clock_agrees_with_trio_deadlines() -> None:
    async def main() -> None:
        async with open_trio_world() as world:
            deadline = world.clock.monotonic() + 0.01
            with trio.move_on_at(deadline):
                await trio.sleep_forever()
            assert world.clock.monotonic() >= deadline
            before = world.clock.monotonic()
            await world.clock.sleep(0.001)
            assert world.clock.monotonic() - before >= 0.001
            assert world.clock.wall_ms() > 1_700_000_000_000

    trio.run(main)


def test_random_streams_are_independent_and_blocking_calls_run_in_another_thread() -> None:
    async def main() -> None:
        async with open_trio_world() as opened:
            world: World = opened
            draws = {world.random(name).getrandbits(64) for name in ("a", "a", "b")}
            assert len(draws) == 3
            assert await world.blocking(threading.get_ident) != threading.get_ident()
            assert await world.blocking(divmod, 7, 2) == (3, 1)

    trio.run(main)


def test_leaving_the_world_closes_open_environments(tmp_path: Path) -> None:
    answers: list[object] = []

    async def main() -> CommitQueue:
        async with open_trio_world() as world:
            queue = world.disk.open_environment(
                tmp_path / "store", databases=["a"], map_bytes=1 << 24, durability=Durability.SYNCED
            )
            queue.submit(lambda _: 7, lambda result, error: answers.append(result))
            assert isinstance(queue, CommitQueue)
            return queue

    queue = trio.run(main)
    assert answers == [7]
    assert not queue._thread.is_alive()


def test_an_exception_of_the_block_leaves_the_world_unchanged() -> None:
    async def main() -> None:
        async with open_trio_world():
            raise KeyError("x")

    with pytest.raises(KeyError):
        trio.run(main)


def test_warnings_do_not_go_to_standard_output_when_standard_error_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with open_trio_world() as world:
            assert isinstance(world.network, SocketLoop)
            world.network.warn("out of file descriptors")

    monkeypatch.setattr(sys, "stderr", None)
    trio.run(main)
    assert capsys.readouterr().out == ""
