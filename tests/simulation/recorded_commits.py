"""What the scenarios of crash states share: ways to commit, and what each transaction of a recorded run holds."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from gnomon.runtime import commit, room
from gnomon.runtime.commit import open_lmdb
from gnomon.runtime.world import Durability
from gnomon.testing.crash_states import CrashState, crash_states, judge, print_verdicts
from gnomon.testing.write_log import Event, Grow, Write, apply, read_log

MAP_BYTES = 64 << 20
META_PAGES_BYTES = 2 * 4096

SYNCED, SYNCED_AFTERWARDS, WITHOUT_METASYNC = "synced", "synced-afterwards", "without-metasync"
"""As the product commits; and the two ways to commit faster which DESIGN §7 rules out."""

Content: TypeAlias = tuple[tuple[tuple[bytes, bytes], ...], ...]
"""The keys and values of every named database."""
Check: TypeAlias = Callable[[CrashState], None]


class BadState(Exception):
    """What a crash left is not what was promised."""


def commit_as(mode: str) -> None:
    """Has the environments of this process committed in another way, and grown in small steps."""
    # A file that has all its room from the start would never grow here.
    room.AHEAD_BYTES, room.AHEAD_BYTES_MAX, room.AHEAD_BYTES_MIN = 128 << 10, 256 << 10, 64 << 10
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


@contextmanager
def opened_image(
    image: bytes | bytearray, folder: Path, databases: Sequence[str]
) -> Iterator[tuple[Any, dict[str, Any], Path]]:
    """Opens a data file as production does, in a folder of its own that is removed afterwards."""
    folder.mkdir()
    try:
        (folder / "data.mdb").write_bytes(image)
        environment, handles = open_lmdb(
            folder, databases=databases, map_bytes=MAP_BYTES, durability=Durability.SYNCED
        )
        try:
            yield environment, handles, folder
        finally:
            environment.close()
    finally:
        shutil.rmtree(folder)


def read_content(environment: Any, handles: dict[str, Any]) -> tuple[int, Content]:
    """The last transaction, and everything that it left."""
    with environment.begin() as transaction:
        return transaction.id(), tuple(tuple(transaction.cursor(db=handle)) for handle in handles.values())


def contents_by_transaction(events: Sequence[Event], folder: Path, databases: Sequence[str]) -> dict[int, Content]:
    """What each transaction of a run left, as LMDB itself reads it when no write is missing."""
    image = bytearray()
    contents: dict[int, Content] = {}
    for event in events:
        apply(image, event)
        if isinstance(event, Write) and event.offset < META_PAGES_BYTES:
            with opened_image(image, folder / "replayed", databases) as (environment, handles, _):
                number, content = read_content(environment, handles)
                contents[number] = content
    return contents


def check_content(contents: dict[int, Content], found: tuple[int, Content]) -> None:
    """A group is kept whole or not at all: what is found is what one of the transactions left.

    Raises:
        BadState: it is not.
    """
    number, content = found
    if number not in contents:
        raise BadState(f"transaction {number} was never committed")
    if content != contents[number]:
        raise BadState(f"transaction {number} is not as it was committed")


def grew(events: Sequence[Event]) -> tuple[int, int]:
    """How often space was taken ahead, and how often a write went beyond it."""
    size, ahead, beyond = 0, 0, 0
    for event in events:
        if isinstance(event, Grow):
            ahead += 1
            size = max(size, event.size_bytes)
        elif isinstance(event, Write):
            beyond += event.offset + len(event.content) > size
            size = max(size, event.offset + len(event.content))
    return ahead, beyond


def main(record: Callable[[Path, int], None], checker: Callable[[list[Event], Path, Iterator[Path]], Check]) -> None:
    """`record FOLDER MODE SEED`, or `judge LOG FOLDER SEED PER_MOMENT SHARE SHARES`.

    Args:
        record: runs the workload in a folder.
        checker: makes the check of a recorded run; is given folders to use, one for each state.
    """
    if sys.argv[1] == "record":
        folder, mode, seed = sys.argv[2:]
        commit_as(mode)
        record(Path(folder), int(seed))
    else:
        log, folder = map(Path, sys.argv[2:4])
        seed_number, per_moment, share, shares = map(int, sys.argv[4:])
        events = read_log(log)
        folder.mkdir()
        folders = (folder / str(number) for number in count())
        check = checker(events, folder, folders)
        print_verdicts(judge(crash_states(events, seed_number, per_moment, share, shares), check))
