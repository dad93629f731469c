"""The present files of a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path, PurePath
from typing import Final

from gnomon.spark.pipelines.files.next_files import SourceFile
from gnomon.spark.pipelines.settings.section import BadPipeline

_HIDDEN: Final = (".", "_")
"""Names of files that are not whole yet, or are not data, begin with one of these."""


def listed(pattern: str, folder: Path) -> Iterator[SourceFile]:
    """The files of a pattern, in any order, without hidden ones and those in hidden folders that wildcards find.

    Args:
        folder: relative patterns begin there, and their files have relative names.

    Raises:
        BadPipeline: the folder before the first wildcard does not exist: it may be misspelled, or not mounted.
    """
    parents = _fixed_parts(pattern)
    fixed, begin = len(parents), folder.joinpath(*parents)
    if not begin.is_dir():
        raise BadPipeline(f"source.files = {pattern!r:.300}: {begin} is no folder")
    for name in iglob(pattern, root_dir=folder, recursive=True):
        parts = PurePath(name).parts
        if any(part.startswith(_HIDDEN) for part in (*parts[fixed:-1], parts[-1])):
            continue
        found = _seen(name, folder)
        if found is not None:
            yield found


def changed_of(files: Iterable[SourceFile], folder: Path) -> SourceFile | None:
    """The first of these files that is not as it was; None if all are."""
    return next((each for each in files if _seen(each.name, folder) != each), None)


def _seen(name: str, folder: Path) -> SourceFile | None:
    """A file as it is; None if there is none of this name."""
    path = folder / name
    try:
        if not path.is_file():
            return None
        state = path.stat()
    except FileNotFoundError:  # removed after the listing
        return None
    return SourceFile(name, state.st_size, state.st_mtime_ns)


def _fixed_parts(pattern: str) -> list[str]:
    """The folders before the first wildcard."""
    found: list[str] = []
    for part in PurePath(pattern).parts[:-1]:
        if has_magic(part):
            break
        found.append(part)
    return found
