"""Makes a sound store of the readable records of a damaged one.

1. The new store takes the place of the damaged one in one step. Until then the damaged store is unchanged, and after
   that it is kept beside the new one.
2. The new store may lack records, and may have older versions of records. So it is an older copy of the store: its
   owner omits the record by which it would take the store for the newest one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import lmdb

from gnomon.runtime.disk.commit import open_lmdb, sync_directory
from gnomon.runtime.disk.pages import readable_records
from gnomon.runtime.world import Durability, WorldError

BATCH_BYTES = 4 << 20
KEPT = "damaged.mdb"
"""The name of the damaged file, beside the new one."""


def salvage(path: Path, *, databases: Sequence[str], omit: Collection[bytes]) -> bool:
    """Replaces the store in the folder `path`, which no process may have open.

    Args:
        databases: the names of its databases.
        omit: keys of records that the new store does not get.

    Returns:
        Whether it was replaced; if not, nothing can be read of one of its databases, or the disk failed.
    """
    file, making = path / "data.mdb", path / "salvaging"
    shutil.rmtree(making, ignore_errors=True)
    try:
        making.mkdir()
        descriptor = os.open(file, os.O_RDONLY)
        try:
            records = readable_records(lambda at, count: os.pread(descriptor, count, at))
            found = _write(making, databases, records, omit, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        if not found:
            return False
        with suppress(FileNotFoundError):
            (path / KEPT).unlink()
        os.link(file, path / KEPT)
        os.replace(making / "data.mdb", file)
        sync_directory(path)
    except (WorldError, lmdb.Error, OSError):
        return False
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return True


def _write(
    path: Path,
    databases: Sequence[str],
    records: Iterator[tuple[bytes, bytes, bytes]],
    omit: Collection[bytes],
    size_bytes: int,
) -> bool:
    """Writes a store; returns whether each database has a record."""
    environment, opened = open_lmdb(
        path, databases=databases, map_bytes=2 * size_bytes + (64 << 20), durability=Durability.SYNCED
    )
    with environment:
        handles = {name.encode(): handle for name, handle in opened.items()}
        found: set[bytes] = set()
        while True:
            batch_bytes = 0
            with environment.begin(write=True) as transaction:
                for name, key, value in records:
                    if name in handles and key not in omit:
                        found.add(name)
                        transaction.put(key, value, db=handles[name])
                    batch_bytes += len(key) + len(value)
                    if batch_bytes > BATCH_BYTES:
                        break
                else:
                    break
        return len(found) == len(handles)
