"""The choice of the files of a batch. Pure.

1. A file that is in a batch is in no later one, whatever happens to it.
2. A batch has the first ones of the files that wait: by their names, or by their times and then their names.
3. A file that appears late, with a place before files that were read, waits like any other: no file is left out.
4. Files that are late, and files that have changed since they were read, are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

FileOrder: TypeAlias = tuple[int, str]
"""The place of a file in the order of a pipeline."""


class SourceFile(NamedTuple):
    """A file as a listing shows it."""

    name: str
    """Its path, as the pattern finds it."""
    bytes: int
    modified_ns: int
    """The time of its last change, in nanoseconds since 1970."""


class ChosenFiles(NamedTuple):
    """The files of the next batch."""

    files: tuple[SourceFile, ...]
    """In their order; none if no file waits."""
    waiting: int
    """The files that wait, those of the batch among them."""
    waiting_bytes: int
    late: tuple[str, ...]
    """Files of the batch before which others were read that are after them in the order."""
    changed: tuple[str, ...]
    """Files that were read, and have another size or time now."""


def chosen(
    found: Iterable[SourceFile], read: Mapping[str, SourceFile], files_max: int, *, by_time: bool
) -> ChosenFiles:
    """The files of the next batch.

    Args:
        found: the present files.
        read: the files of all batches so far, by their names and as they were.
        files_max: the most files of a batch.
        by_time: the order, see invariant 2.
    """
    present = list(found)
    waiting = sorted((each for each in present if each.name not in read), key=lambda each: place_of(each, by_time))
    files = tuple(waiting[:files_max])
    last = max((place_of(each, by_time) for each in read.values()), default=None)
    return ChosenFiles(
        files,
        len(waiting),
        sum(each.bytes for each in waiting),
        tuple(each.name for each in files if last is not None and place_of(each, by_time) < last),
        tuple(sorted(each.name for each in present if read.get(each.name, each) != each)),
    )


def place_of(file: SourceFile, by_time: bool) -> FileOrder:
    """The place of a file in the order."""
    return (file.modified_ns if by_time else 0, file.name)
