from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from gnomon.runtime.disk.data_directory import FORMAT, DirectoryKind, OtherFormat, OtherKind, hold_directory
from gnomon.runtime.trio_world import open_trio_world
from gnomon.runtime.world import DirectoryTaken, Disk
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate

BOOKIE, METADATA = DirectoryKind.BOOKIE, DirectoryKind.METADATA


def on_disk(use: Callable[[Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_trio_world() as world:
            await use(world.disk)

    trio.run(main)


def test_a_new_directory_is_marked_and_only_its_command_opens_it_again(tmp_path: Path) -> None:
    async def use(disk: Disk) -> None:
        for kind in DirectoryKind:
            for _ in range(2):
                with hold_directory(disk, tmp_path / kind.value, kind):
                    assert (tmp_path / kind.value / "FORMAT").read_text() == f"{FORMAT} {kind.value}\n"
        for kind in DirectoryKind:
            for other in set(DirectoryKind) - {kind}:
                text = f"is one of `gnomon {kind.value}`, not of `gnomon {other.value}`: give each process"
                with pytest.raises(OtherKind, match=text), hold_directory(disk, tmp_path / kind.value, other):
                    pytest.fail("another command's directory was taken")

    on_disk(use)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ("1 bookie\n", "has format '1', this gnomon reads 4: use the older gnomon that wrote it"),
        ("1\n", "has format '1', this gnomon reads 4: use the older gnomon that wrote it"),
        ("2 bookie\n", "has format '2', this gnomon reads 4: use the older gnomon that wrote it"),
        ("5 bookie\n", "upgrade gnomon"),
        ("5\n", "upgrade gnomon"),
        ("\n", "upgrade gnomon"),
        ("something else", "upgrade gnomon"),
    ],
)
def test_a_format_of_another_version_is_refused_and_not_changed(tmp_path: Path, found: str, remedy: str) -> None:
    (tmp_path / "FORMAT").write_text(found)

    async def use(disk: Disk) -> None:
        with pytest.raises(OtherFormat, match=remedy), hold_directory(disk, tmp_path, BOOKIE):
            pytest.fail("an unknown format was taken")

    on_disk(use)
    assert (tmp_path / "FORMAT").read_text() == found


def test_a_directory_of_a_format_that_is_converted_is_marked_with_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("3 bookie\n")

    async def use(disk: Disk) -> None:
        with pytest.raises(OtherKind), hold_directory(disk, tmp_path, DirectoryKind.METADATA):
            pytest.fail("the directory of another command was taken")
        with hold_directory(disk, tmp_path, BOOKIE):
            assert (tmp_path / "FORMAT").read_text() == "4 bookie\n"

    on_disk(use)


def test_a_directory_in_use_is_refused_and_not_marked(tmp_path: Path) -> None:
    async def use(disk: Disk) -> None:
        with disk.lock(tmp_path), pytest.raises(DirectoryTaken), hold_directory(disk, tmp_path, BOOKIE):
            pytest.fail("a directory in use was taken")
        assert not (tmp_path / "FORMAT").exists()

    on_disk(use)


def test_the_mark_survives_a_power_loss() -> None:
    async def scenario(simulation: Simulation) -> None:
        machine = simulation.machine("machine")
        done = trio.Event()

        async def mark(world: SimulatedWorld) -> None:
            with hold_directory(world.disk, Path("/data"), BOOKIE):
                done.set()
                await trio.sleep_forever()

        async def look(world: SimulatedWorld) -> None:
            with pytest.raises(OtherKind), hold_directory(world.disk, Path("/data"), METADATA):
                pytest.fail("a bookie's directory was taken")
            done.set()

        for node in (mark, look):
            machine.start(node)
            await done.wait()
            machine.power_off()
            done = trio.Event()

    simulate(1, scenario)
