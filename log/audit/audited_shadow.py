"""Checks the metadata record of a shadow against those of its source. Pure.

1. The source exists and has the id that the shadow names: a topic that was created later under that name is another.
2. The source is no shadow itself, and no other shadow of it has the same place.
3. A shadow has no ledgers: its records are those of its source.
4. The stored cursor of its replicator, up to which the shadow has acknowledged entries, is not beyond the last entry
   that a bookie has of its source: a shadow shows nothing that its source does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gnomon.bookie.ids import EntryId
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import Offset
from gnomon.log.topic import Topic


def shadow_problems(
    shadow: Topic, source: Topic | None, others: Iterable[Topic], written: Sequence[int]
) -> Iterator[str]:
    """The rules that a shadow breaks.

    Args:
        source: the topic that now has the name of its source; None if there is none.
        others: the other topics that are shadows, of any source.
        written: the numbers of the shadow's partitions that have ledgers.
    """
    assert shadow.source is not None, f"topic {shadow.name!r} is no shadow"
    name = shadow.source.name
    if source is None:
        yield f"it is a shadow of topic {name!r}, which does not exist"
    elif source.id != shadow.source.id:
        yield f"it is a shadow of an earlier topic {name!r}, which was deleted"
    elif source.source is not None:
        yield f"its source {name!r} is itself a shadow, of topic {source.source.name!r}"
    if shadow.source.place < 1:
        yield f"it has place {shadow.source.place} among the shadows of {name!r}: the first place is 1"
    for other in others:
        if other.source is not None and other.source[1:] == shadow.source[1:] and other.id != shadow.id:
            yield f"topic {other.name!r} has the same place {shadow.source.place} among the shadows of {name!r}"
    if written:
        yield f"it is a shadow, and has ledgers of its own in partitions {', '.join(map(str, written))}"


def cursor_problem(cursor: Dlsn, segments: Sequence[Offset], stored: EntryId | None) -> str | None:
    """The contradiction between a shadow's cursor and its source; None for none.

    Args:
        segments: the base offsets of the source's segments now, which were read after the cursor.
        stored: the last entry that any bookie has of the last segment; None if that is not known.
    """
    if not segments:
        return f"its cursor is in segment {cursor.segment}, and its source has no segments"
    if cursor.segment > segments[-1]:
        return f"its cursor is in segment {cursor.segment}, after the last one of its source, {segments[-1]}"
    if cursor.segment > segments[0] and cursor.segment not in segments:
        return f"its cursor is in segment {cursor.segment}, which its source does not have"
    if cursor.segment == segments[-1] and stored is not None and cursor.entry > stored + 1:
        return f"its cursor is at entry {cursor.entry}, and its source ends at entry {stored}"
    return None
