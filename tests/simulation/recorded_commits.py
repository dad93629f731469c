"""The shared part of the scenarios of crash states: ways to commit, and the content of each recorded transaction."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from gnomon.bookie.storage import removal
from gnomon.runtime.disk import commit, room
from gnomon.runtime.disk.commit import open_lmdb
from gnomon.runtime.world import Durability
from gnomon.testing.simulation.disk.crash_states import CrashState, crash_states, judge, print_verdicts
from gnomon.testing.simulation.disk.write_log import Event, Grow, Replace, Write, apply, read_log

MAP_BYTES = 64 << 20
META_PAGES_BYTES = 2 * 4096

SYNCED, SYNCED_AFTERWARDS, WITHOUT_METASYNC = "synced", "synced-afterwards", "without-metasync"
"""Ways to commit: as the product; unsynced with a sync afterwards; acknowledged before the meta page is synced."""
WITHOUT_PROMISES = "without-promises"
"""A way to commit in which fences are kept in memory only."""

Content: TypeAlias = tuple[tuple[tuple[bytes, bytes], ...], ...]
"""The keys and values of every named database."""
Check: TypeAlias = Callable[[CrashState], None]


class BadState(Exception):
    """The state after a crash breaks a promise of the store."""


def commit_as(mode: str) -> None:
    """Makes the environments of this process commit in this way."""
    opened, committed = lmdb.open, commit.commit_group
    if mode == WITHOUT_METASYNC:
        lmdb.open = functools.partial(opened, metasync=False)
    elif mode == SYNCED_AFTERWARDS:
        lmdb.open = lambda *arguments, **options: opened(*arguments, **{**options, "sync": False})

        def commit_group(environment: Any, *arguments: Any) -> list[Any]:
            results = committed(environment, *arguments)
            environment.sync(True)
            return results

        commit.commit_group = commit_group
    elif mode == WITHOUT_PROMISES:
        removal.save_promise = lambda *_arguments: None


def image_folder(image: bytes | bytearray, parent: Path) -> Path:
    """Writes the image as the only file of a folder in `parent`, or no file if it is empty; returns the folder."""
    folder = parent / "image"
    data = folder / "data.mdb"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path != data or not image:
            path.unlink()
    if image:
        # Overwrites the old file: freeing its memory and allocating new memory costs more than writing.
        with open(data, "r+b" if data.exists() else "wb") as file:
            file.write(image)
            file.truncate()
    return folder


@contextmanager
def opened(folder: Path, databases: Sequence[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Opens a folder's environment as production does."""
    environment, handles = open_lmdb(folder, databases=databases, map_bytes=MAP_BYTES, durability=Durability.SYNCED)
    try:
        yield environment, handles
    finally:
        environment.close()


def read_content(environment: Any, handles: dict[str, Any]) -> tuple[int, Content]:
    """The number of the last transaction, and the whole content."""
    with environment.begin() as transaction:
        return transaction.id(), tuple(tuple(transaction.cursor(db=handle)) for handle in handles.values())


def contents_by_transaction(events: Sequence[Event], folder: Path, databases: Sequence[str]) -> dict[int, Content]:
    """The content after each transaction of a run, as LMDB reads it when no write is missing."""
    image = bytearray()
    contents: dict[int, Content] = {}
    for event in events:
        apply(image, event)
        if isinstance(event, Replace) or (isinstance(event, Write) and event.offset < META_PAGES_BYTES):
            with opened(image_folder(image, folder), databases) as (environment, handles):
                number, content = read_content(environment, handles)
                contents[number] = content
    return contents


def check_content(contents: dict[int, Content], found: tuple[int, Content]) -> None:
    """Checks that a group is stored whole or not at all: the content equals that after one of the transactions.

    Raises:
        BadState: it equals none.
    """
    number, content = found
    if number not in contents:
        raise BadState(f"transaction {number} was never committed")
    if content != contents[number]:
        raise BadState(f"transaction {number} is not as it was committed")


def grew(events: Sequence[Event]) -> tuple[int, int]:
    """The number of times that space was allocated ahead, and that a write exceeded it."""
    size, ahead, beyond = 0, 0, 0
    for event in events:
        if isinstance(event, Grow):
            ahead += 1
            size = max(size, event.size_bytes)
        elif isinstance(event, Write):
            beyond += event.offset + len(event.content) > size
            size = max(size, event.offset + len(event.content))
    return ahead, beyond


def main(record: Callable[[Path, int], None], checker: Callable[[list[Event], Path], Check]) -> None:
    """Runs a command line: `record FOLDER MODE SEED`, or `judge LOG SEED PER_MOMENT BEGIN END SHARE SHARES`.

    Args:
        record: runs the workload in a folder.
        checker: makes the check of a recorded run; it may write files into a folder.
    """
    # A file with all its space from the start would never grow in the record, and be large in each judgement.
    room.AHEAD_BYTES, room.AHEAD_BYTES_MAX, room.AHEAD_BYTES_MIN = 128 << 10, 256 << 10, 64 << 10
    if sys.argv[1] == "record":
        folder, mode, seed_text = sys.argv[2:]
        commit_as(mode)
        record(Path(folder), int(seed_text))
        return
    events = read_log(Path(sys.argv[2]))
    seed, per_moment, begin, end, share, shares = map(int, sys.argv[3:])
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        check = checker(events, Path(folder))
        print_verdicts(judge(crash_states(events, seed, per_moment, share, shares, begin, end), check))


def in_memory() -> str | None:
    """A folder in which a sync costs nothing; None if there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
