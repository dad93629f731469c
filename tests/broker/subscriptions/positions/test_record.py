from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.subscriptions.positions.record import SubscriberRecord, decode_commit, encode_commit
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.log.dlsn import CommitPoint
from gnomon.log.entry import Offset

numbers = st.integers(0, 2**63 - 1)
offsets = numbers.map(Offset)
positions = st.builds(
    Position,
    st.builds(CommitPoint, numbers, numbers, numbers, numbers),
    st.lists(st.tuples(offsets, offsets), max_size=3).map(tuple),
)


@given(st.builds(SubscriberRecord, st.text(), positions, st.none() | st.integers(1, 9), st.integers(0, 5)))
def test_a_record_is_decoded_as_it_was_encoded(record: SubscriberRecord) -> None:
    assert SubscriberRecord.decode(record.encode()) == record


@given(positions)
def test_an_entry_of_a_segment_is_decoded_as_it_was_encoded(position: Position) -> None:
    assert decode_commit(encode_commit(position)) == position


def test_stored_fields_have_the_documented_names() -> None:
    position = Position(CommitPoint(1, 2, 3, 9))
    record = SubscriberRecord("billing", position, segment_id=4)
    expected = {"name": "billing", "segment_id": 4, "last_commit_dlsn": [1, 2, 3], "offset": 9}
    assert msgpack.unpackb(record.encode()) == expected
    assert msgpack.unpackb(encode_commit(position)) == {"commit_dlsn": [1, 2, 3], "offset": 9}


@pytest.mark.parametrize("value", [msgpack.packb([1]), msgpack.packb({"name": "billing"})])
def test_a_value_that_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="has the fields"):
        SubscriberRecord.decode(value)
    with pytest.raises(ValueError, match="has the fields"):
        decode_commit(value)
