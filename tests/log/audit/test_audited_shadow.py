"""The record of a shadow in an audit (numbers: invariants of `audited_shadow`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from gnomon.bookie.ids import EntryId
from gnomon.log.audit.audited_shadow import cursor_problem, shadow_problems
from gnomon.log.dlsn import Dlsn
from gnomon.log.entry import Offset
from gnomon.log.topic import SourceRef, Topic

SOURCE = Topic("orders", uuid.UUID(int=1), 3, {})
SHADOW = Topic("mirror", uuid.UUID(int=2), 0, {}, source=SourceRef("orders", SOURCE.id, 1))
SEGMENTS = (Offset(0), Offset(50), Offset(90))


def problems(
    shadow: Topic = SHADOW, source: Topic | None = SOURCE, others: Iterable[Topic] = (), written: Sequence[int] = ()
) -> list[str]:
    return list(shadow_problems(shadow, source, others, written))


def other(place: int, source: uuid.UUID = SOURCE.id) -> Topic:
    return Topic("other", uuid.UUID(int=3), 0, {}, source=SourceRef("orders", source, place))


def test_a_sound_shadow_has_no_problems() -> None:
    assert problems(others=[SHADOW, other(2), other(1, uuid.UUID(int=9))]) == []


def test_a_shadow_without_its_source_is_found() -> None:  # 1
    assert problems(source=None) == ["it is a shadow of topic 'orders', which does not exist"]
    later = Topic("orders", uuid.UUID(int=7), 3, {})
    assert problems(source=later) == ["it is a shadow of an earlier topic 'orders', which was deleted"]


def test_a_shadow_of_a_shadow_is_found() -> None:  # 2
    cast = SOURCE.with_source(SourceRef("root", uuid.UUID(int=8), 1), 3)
    assert problems(source=cast) == ["its source 'orders' is itself a shadow, of topic 'root'"]


def test_a_place_that_another_shadow_has_is_found() -> None:  # 2
    assert problems(others=[other(1)]) == ["topic 'other' has the same place 1 among the shadows of 'orders'"]
    first = SHADOW.with_source(SourceRef("orders", SOURCE.id, 0), 0)
    assert problems(first) == ["it has place 0 among the shadows of 'orders': the first place is 1"]


def test_a_shadow_with_ledgers_is_found() -> None:  # 3
    assert problems(written=[0, 2]) == ["it is a shadow, and has ledgers of its own in partitions 0, 2"]


def test_a_cursor_up_to_the_end_of_the_source_is_no_problem() -> None:  # 4
    assert cursor_problem(Dlsn(90, 8, 0), SEGMENTS, EntryId(7)) is None
    assert cursor_problem(Dlsn(50, 999, 0), SEGMENTS, EntryId(7)) is None
    assert cursor_problem(Dlsn(90, 999, 0), SEGMENTS, None) is None  # the end is not known
    assert cursor_problem(Dlsn(20, 0, 0), SEGMENTS[1:], EntryId(7)) is None  # retention has dropped the segment


def test_a_cursor_beyond_the_source_is_found() -> None:  # 4
    assert (
        cursor_problem(Dlsn(90, 9, 0), SEGMENTS, EntryId(7))
        == "its cursor is at entry 9, and its source ends at entry 7"
    )
    assert cursor_problem(Dlsn(91, 0, 0), SEGMENTS, None) is not None
    assert (
        cursor_problem(Dlsn(60, 0, 0), SEGMENTS, None) == "its cursor is in segment 60, which its source does not have"
    )
    assert cursor_problem(Dlsn(0, 0, 0), (), None) is not None
