"""The slots of a batch's records, computed slice by slice; numbers cite the invariants of `record_slots`."""

from __future__ import annotations

import pytest

from gnomon.broker.subscriptions import record_slots
from gnomon.broker.subscriptions.key_slots import KEY_BYTES_MAX, slot_of
from gnomon.broker.subscriptions.record_slots import RecordSlots
from gnomon.log.entry import Offset
from gnomon.wire.kafka.batch import HEADER_BYTES
from gnomon.wire.kafka.records import Record, build_batch

BASE = 1000
COUNT = 50
KEYS = [None if number % 7 == 0 else b"key %d" % (number % 5) for number in range(COUNT)]
DATA = build_batch([Record(number, 0, key, b"value") for number, key in enumerate(KEYS)], base_timestamp=0)[
    HEADER_BYTES:
]
SLOTS = [slot_of(key, BASE + number) for number, key in enumerate(KEYS)]


def slots() -> RecordSlots:
    return RecordSlots(Offset(BASE), Offset(BASE + COUNT))


@pytest.mark.parametrize("slice_records", [1, 3, 7, COUNT])
def test_all_slices_together_cover_the_batch(slice_records: int) -> None:
    batch, found = slots(), list[int]()
    for first in range(BASE, BASE + COUNT, slice_records):
        found += batch.look(DATA, first, min(slice_records, BASE + COUNT - first))
    assert found == SLOTS


def test_a_look_at_the_middle_of_a_batch_takes_several_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:  # 2
    monkeypatch.setattr(record_slots, "WALKED_AT_ONCE", 10)
    batch = slots()
    assert [batch.look(DATA, BASE + 35, 5) for _ in range(4)] == [(), (), (), SLOTS[35:40]]


def test_several_readers_can_look_at_different_places_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_slots, "WALKED_AT_ONCE", 4)
    batch = slots()
    places = {0: list[int](), 20: list[int](), 33: list[int]()}
    while any(start + len(found) < COUNT for start, found in places.items()):
        for start, found in places.items():
            at = start + len(found)
            if at < COUNT:
                found += batch.look(DATA, BASE + at, min(3, COUNT - at))
    assert all(found == SLOTS[start:] for start, found in places.items())


def test_all_records_from_an_unreadable_one_on_have_one_slot() -> None:  # 1
    cut = DATA[: len(DATA) * 2 // 3]
    batch = slots()
    found = [*batch.look(cut, BASE, 25), *batch.look(cut, BASE + 25, 25)]
    readable = next(at for at in range(COUNT) if found[at:] == [slot_of(None, BASE)] * (COUNT - at))
    assert COUNT / 2 < readable < COUNT * 3 / 4
    assert found[:readable] == SLOTS[:readable]
    assert slots().look(cut, BASE + 45, 5) == found[45:]
    assert slots().look(b"", BASE, COUNT) == [slot_of(None, BASE)] * COUNT


def test_a_record_after_an_unreadable_one_is_not_walked_to() -> None:
    batch = slots()
    batch.look(b"", BASE, 1)
    assert batch.look(b"", BASE + 45, 5) == [slot_of(None, BASE)] * 5


def test_the_slot_of_a_long_key_depends_on_its_beginning_only() -> None:
    long = b"k" * KEY_BYTES_MAX
    data = build_batch([Record(number, 0, long + b"%d" % number) for number in range(3)], base_timestamp=0)
    assert RecordSlots(Offset(0), Offset(3)).look(data[HEADER_BYTES:], 0, 3) == [slot_of(long, 0)] * 3
