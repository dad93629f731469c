"""A data directory: locked by one process at a time, owned by one command, in a format that this gnomon reads.

Its file `FORMAT` is one line, such as `4 bookie`: the number of the format, and the command that owns the directory.
A line without a command was written by an early version of `gnomon standalone`.

Since format 4 the records of a bookie's store and of the metadata have checksums; a directory of format 3 is taken and
marked. Since format 3 the header of a partition's entry has a version (`log/entry.py`); formats 1 and 2 are refused.
docs/formats.md describes each stored format.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from gnomon.runtime.world import Disk, WorldError

FORMAT: Final = "4"
CONVERTED: Final = ("3",)
"""Older formats that the stores convert when they are opened, or read as they are."""
PRIVATE_UMASK = 0o077
"""For processes with a data directory: its files and folders are for their owner only."""
FORMAT_FILE: Final = "FORMAT"


class DirectoryKind(Enum):
    """The purpose of a data directory: the command that creates it."""

    STANDALONE = "standalone"
    BOOKIE = "bookie"
    METADATA = "metadata"
    BROKER = "broker"
    CLUSTER = "cluster up"
    """Contains the directories of the processes that the command starts."""


class OtherFormat(WorldError):
    """The data directory was written by a gnomon of another format."""


class OtherKind(WorldError):
    """The data directory belongs to another command."""


@contextmanager
def hold_directory(disk: Disk, directory: Path, kind: DirectoryKind) -> Iterator[None]:
    """Locks a data directory for this process within the block, and writes `FORMAT` into a new one.

    Raises:
        DirectoryTaken: another process holds it.
        OtherFormat: it was written by a newer or an older gnomon, or holds something else.
        OtherKind: it belongs to another command.
    """
    with disk.lock(directory):
        if not _is_marked(disk, directory, kind):
            disk.write_file(directory / FORMAT_FILE, f"{FORMAT} {kind.value}\n".encode())
        yield


def check_directory(disk: Disk, directory: Path, kind: DirectoryKind) -> None:
    """Raises the errors of `hold_directory`, and writes nothing."""
    with disk.lock(directory):
        _is_marked(disk, directory, kind)


def _is_marked(disk: Disk, directory: Path, kind: DirectoryKind) -> bool:
    found = disk.read_file(directory / FORMAT_FILE)
    if found is not None:
        check_format(directory, found, kind)
    return found is not None and format_and_command(found)[0] == FORMAT


def check_format(directory: Path, found: bytes, kind: DirectoryKind) -> None:
    """Checks the content of `FORMAT`.

    Raises:
        OtherFormat, OtherKind: see `hold_directory`.
    """
    number, command = format_and_command(found)
    if number not in (FORMAT, *CONVERTED):
        raise OtherFormat(
            f"data directory {directory} has format {number!r}, this gnomon reads {FORMAT}: "
            f"{what_reads(number)} or choose another --data-dir"
        )
    if command != kind.value:
        raise OtherKind(
            f"data directory {directory} is one of `gnomon {command}`, not of `gnomon {kind.value}`: "
            "give each process a --data-dir of its own"
        )


def what_reads(number: str) -> str:
    """Advice for a directory whose format is not this gnomon's."""
    older = number.isdecimal() and int(number) < int(FORMAT)
    return "use the older gnomon that wrote it" if older else "upgrade gnomon"


def format_and_command(found: bytes) -> tuple[str, str]:
    """The number of the format and the command in `FORMAT`, unchecked."""
    number, _, command = found.decode(errors="replace").strip().partition(" ")
    return number, command or DirectoryKind.STANDALONE.value
