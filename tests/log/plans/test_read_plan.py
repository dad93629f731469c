"""The plain data of a read plan (numbers: invariants of `read_plan`)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import DigestType, Fragment, LedgerRecord, LedgerState, Quorum
from gnomon.log.entry import Offset
from gnomon.log.plans.read_plan import (
    NUMBER_MAX,
    InvalidPlan,
    PlannedBookie,
    PlannedPartition,
    PlannedSegment,
    ReadPlan,
    decode_plan,
    encode_plan,
)

NUMBERS = st.integers(0, NUMBER_MAX)
NAMES = st.text("abc-1", min_size=1, max_size=10)


@st.composite
def records(draw: st.DrawFn) -> LedgerRecord:
    ensemble = draw(st.integers(1, 3))
    bookies = st.lists(NAMES, min_size=ensemble, max_size=ensemble).map(tuple)
    fragments = st.builds(Fragment, NUMBERS, NUMBERS, bookies)
    return LedgerRecord(
        Quorum(ensemble, draw(st.integers(1, ensemble)), 1),
        tuple(draw(st.lists(fragments, min_size=1, max_size=3))),
        draw(NUMBERS.map(SessionId)),
        draw(st.sampled_from(LedgerState)),
        draw(NUMBERS.map(EntryId)),
        draw(st.integers(-1, NUMBER_MAX).map(EntryId)),
        draw(NUMBERS),
        draw(st.sampled_from(DigestType)),
        draw(st.binary(max_size=4)),
        draw(st.dictionaries(NAMES, NUMBERS, max_size=2)),
    )


@st.composite
def partitions(draw: st.DrawFn) -> PlannedPartition:
    bounds = sorted(draw(st.lists(NUMBERS, min_size=2, max_size=5, unique=True)))
    segments = []
    for base, end in pairwise(bounds):
        first, last = sorted((draw(NUMBERS), draw(NUMBERS)))
        numbers = (EntryId(first), EntryId(last), Offset(end), draw(NUMBERS))
        segments.append(PlannedSegment(Offset(base), LedgerId(draw(NUMBERS)), draw(records()), *numbers))
    return PlannedPartition(Offset(bounds[0]), Offset(bounds[-1]), tuple(segments))


BOOKIES = st.builds(PlannedBookie, NAMES.map(BookieId), NAMES, st.integers(0, 65_535), NUMBERS)
PLANS = st.builds(
    ReadPlan,
    st.uuids(),
    NAMES,
    st.dictionaries(NUMBERS, partitions(), max_size=3),
    st.lists(BOOKIES, max_size=3).map(tuple),
)
ONE_RECORD = LedgerRecord(Quorum(2, 2, 1), (Fragment(EntryId(0), SessionId(1), (BookieId("a"), BookieId("b"))),))


def valid() -> list[Any]:
    """The plain data of a plan of one partition, with two segments and one bookie."""
    record = ONE_RECORD.encode()
    segments = [[0, 7, record, 0, 4, 10, 500], [10, 8, record, 0, 2, 15, 300]]
    return [1, bytes(16), "cluster", [[3, 2, 15, segments]], [["a", "host", 4001, 9]]]


@given(PLANS)
def test_a_plan_survives_the_way_through_msgpack(plan: ReadPlan) -> None:  # 3
    assert decode_plan(msgpack.unpackb(msgpack.packb(encode_plan(plan)))) == plan


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_refused_with_a_sentence_that_names_both(version: int) -> None:  # 3
    with pytest.raises(InvalidPlan, match=f"has version {version}, this gnomon reads version 1: run the same version"):
        decode_plan([version, "whatever a newer gnomon says"])


def places(data: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The path of each element in nested lists."""
    found = []
    for at, each in enumerate(data if isinstance(data, list) else ()):
        found += [(*path, at), *places(each, (*path, at))]
    return found


def changed(path: tuple[int, ...], change: Any) -> list[Any]:
    """A valid plan whose element at `path` is `change`; ... leaves the element out."""
    data = valid()
    inner: Any = data
    for at in path[:-1]:
        inner = inner[at]
    if change is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = change
    return data


LISTS = {(3,), (3, 0), (3, 0, 3), (3, 0, 3, 0), (3, 0, 3, 1), (4,), (4, 0)}
OPTIONAL = {(3, 0), (3, 0, 3, 0), (3, 0, 3, 1), (4, 0)}
"""Elements of lists of any length."""


@pytest.mark.parametrize("path", places(valid()), ids=str)
@pytest.mark.parametrize("change", [..., None, True, 1.0, {}, "text", b"bytes", -1, 1 << 63], ids=repr)
def test_a_field_that_is_missing_or_of_another_type_or_out_of_bounds_is_refused(  # 3
    path: tuple[int, ...], change: Any
) -> None:
    before: Any = valid()
    for at in path:
        before = before[at]
    fits = (change is ... and path in OPTIONAL) or (type(change) is str and type(before) is str)
    if fits:
        decode_plan(changed(path, change))
    else:
        with pytest.raises(InvalidPlan):
            decode_plan(changed(path, change))


@pytest.mark.parametrize("path", sorted(LISTS - {(3,), (3, 0, 3), (4,)}), ids=str)
def test_a_field_too_many_is_refused(path: tuple[int, ...]) -> None:  # 3
    data = valid()
    inner: Any = data
    for at in path:
        inner = inner[at]
    inner.append(1)
    with pytest.raises(InvalidPlan):
        decode_plan(data)
    with pytest.raises(InvalidPlan):
        decode_plan([*valid(), 1])


SENSELESS: dict[str, tuple[tuple[int, ...], Any, str]] = {
    "start": ((3, 0, 1), 16, "after its high watermark"),
    "run": ((3, 0, 3, 0, 3), 5, "ends before it begins"),
    "offsets": ((3, 0, 3, 0, 5), 20, "not in the order"),
    "port": ((4, 0, 2), 65_536, "the highest is 65535"),
    "topic": ((1,), bytes(15), "16 bytes"),
    "record": ((3, 0, 3, 0, 2), msgpack.packb([1, "open"]), "cannot be read"),
    "ensemble": (
        (3, 0, 3, 0, 2),
        LedgerRecord(Quorum(3, 2, 1), ONE_RECORD.fragments).encode(),
        "more or fewer bookies",
    ),
    "quorum": ((3, 0, 3, 0, 2), LedgerRecord(Quorum(1, 2, 1), ONE_RECORD.fragments).encode(), "cannot be read"),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_fields_that_contradict_each_other_are_refused(name: str) -> None:  # 2, 3
    path, change, text = SENSELESS[name]
    with pytest.raises(InvalidPlan, match=text):
        decode_plan(changed(path, change))


def test_a_partition_that_is_named_twice_is_refused() -> None:  # 3
    data = valid()
    data[3].append(data[3][0])
    with pytest.raises(InvalidPlan, match="names a partition twice"):
        decode_plan(data)
