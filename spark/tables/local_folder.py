"""Folders of the local machine, or of a file system that all machines mount, with files that outlive a power loss.

A file that is synced may still be lost with its name: each folder on the way to it is synced, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gnomon.spark.tables.table import BadTable


def local_folder(location: str) -> Path:
    """The folder of a path or a `file:` URI.

    Raises:
        BadTable: the location is elsewhere, such as in an object store.
    """
    if location.startswith("file:"):
        parsed = urlsplit(location)
        if parsed.netloc not in ("", "localhost"):
            raise BadTable(f"{location} is on the host {parsed.netloc!r}: write file:///folder with three slashes")
        return Path(unquote(parsed.path))
    if "://" in location:
        raise BadTable(
            f"{location} is no local folder: pipelines write to paths and file:// URIs, mounted ones included"
        )
    return Path(os.path.abspath(location))


def make_folder(folder: Path) -> None:
    """Makes a folder with its parents, each of which is synced once it has the new name."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    sync_folders(each.parent for each in reversed(missing))


def sync_folders(folders: Iterable[Path]) -> None:
    """Syncs the names in these folders."""
    for folder in dict.fromkeys(folders):
        sync(folder)


def sync(path: Path) -> None:
    """Syncs a file or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_newest(folder: Path, pattern: str, count: int) -> None:
    """Syncs the last `count` files of a folder, in the order of their names, and the names in the folder."""
    for each in sorted(folder.glob(pattern))[-count:]:
        sync(each)
    sync(folder)


def create_whole(path: Path, content: bytes) -> bool:
    """Creates a file with its whole content, unless it exists; returns whether it did.

    The file appears under its name only when the content is synced: a reader never sees a part of it.
    """
    opened, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, 0o644)  # not for its owner only, as temporary files are
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        sync(path.parent)
        return True
    finally:
        os.unlink(temporary)


def milliseconds_now(folder: Path) -> int:
    """The time of the file system of a folder: the clock that the times of its files are taken from."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime_ns // 1_000_000
