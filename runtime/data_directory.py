"""A data directory: held by one process at a time, made by one command, in a format that this gnomon reads.

`FORMAT` in it says so in one line, such as `1 bookie`: the format's number, and which command the directory is of.
A line without a command was written by the first `gnomon standalone`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from gnomon.runtime.world import Disk, WorldError

FORMAT: Final = "1"
FORMAT_FILE: Final = "FORMAT"


class DirectoryKind(Enum):
    """What a data directory is for: the command that makes it."""

    STANDALONE = "standalone"
    BOOKIE = "bookie"
    METADATA = "metadata"
    CLUSTER = "cluster up"
    """Holds the directories of the processes that it starts."""


class NewerFormat(WorldError):
    """The data directory was written by a gnomon that this one cannot follow."""


class OtherKind(WorldError):
    """The data directory is another command's."""


@contextmanager
def hold_directory(disk: Disk, directory: Path, kind: DirectoryKind) -> Iterator[None]:
    """Takes a data directory for this process while the block lasts, and marks it where it is new.

    Raises:
        DirectoryTaken: another process holds it.
        NewerFormat: it was written by a newer gnomon, or holds something else.
        OtherKind: it is another command's.
    """
    with disk.lock(directory):
        if not _is_marked(disk, directory, kind):
            disk.write_file(directory / FORMAT_FILE, f"{FORMAT} {kind.value}\n".encode())
        yield


def check_directory(disk: Disk, directory: Path, kind: DirectoryKind) -> None:
    """Raises what `hold_directory` would, and marks nothing."""
    with disk.lock(directory):
        _is_marked(disk, directory, kind)


def _is_marked(disk: Disk, directory: Path, kind: DirectoryKind) -> bool:
    found = disk.read_file(directory / FORMAT_FILE)
    if found is not None:
        check_format(directory, found, kind)
    return found is not None


def check_format(directory: Path, found: bytes, kind: DirectoryKind) -> None:
    """Accepts what `FORMAT` says.

    Raises:
        NewerFormat, OtherKind: see `hold_directory`.
    """
    number, command = format_and_command(found)
    if number != FORMAT:
        raise NewerFormat(
            f"data directory {directory} has format {number!r}, this gnomon reads {FORMAT}: "
            "upgrade gnomon or choose another --data-dir"
        )
    if command != kind.value:
        raise OtherKind(
            f"data directory {directory} is one of `gnomon {command}`, not of `gnomon {kind.value}`: "
            "give each process a --data-dir of its own"
        )


def format_and_command(found: bytes) -> tuple[str, str]:
    """What `FORMAT` says: the format's number and the command, whatever they are."""
    number, _, command = found.decode(errors="replace").strip().partition(" ")
    return number, command or DirectoryKind.STANDALONE.value
