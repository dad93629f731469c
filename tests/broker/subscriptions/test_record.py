from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.partition.entry import Offset
from gnomon.broker.subscriptions.dlsn import Dlsn
from gnomon.broker.subscriptions.record import SubscriberRecord, decode_commit, encode_commit
from gnomon.broker.subscriptions.store import Position

numbers = st.integers(0, 2**63 - 1)
offsets = numbers.map(Offset)
positions = st.builds(
    Position, st.builds(Dlsn, numbers, numbers, numbers), st.lists(st.tuples(offsets, offsets), max_size=3).map(tuple)
)


@given(st.builds(SubscriberRecord, st.text(), positions, st.none() | st.integers(1, 9), st.integers(0, 5)))
def test_a_record_comes_back_as_it_was_stored(record: SubscriberRecord) -> None:
    assert SubscriberRecord.decode(record.encode()) == record


@given(positions)
def test_an_entry_of_a_segment_comes_back_as_it_was_stored(position: Position) -> None:
    assert decode_commit(encode_commit(position)) == position


def test_what_is_stored_has_the_names_that_are_promised() -> None:
    position = Position(Dlsn(1, 2, 3))
    record = SubscriberRecord("billing", position, segment_id=4)
    expected = {"name": "billing", "segment_id": 4, "last_commit_dlsn": [1, 2, 3]}
    assert msgpack.unpackb(record.encode()) == expected
    assert msgpack.unpackb(encode_commit(position)) == {"commit_dlsn": [1, 2, 3]}


@pytest.mark.parametrize("value", [msgpack.packb([1]), msgpack.packb({"name": "billing"})])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="has the fields"):
        SubscriberRecord.decode(value)
    with pytest.raises(ValueError, match="has the fields"):
        decode_commit(value)
