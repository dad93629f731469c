"""The persisted form of the metadata."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.metadata import records
from gnomon.metadata.client import Event, KeyValue, LeaseId, Revision, WatchBatch

U63 = st.integers(0, 2**63 - 1)
LEASES = st.none() | U63.map(LeaseId)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KEY_VALUES = st.builds(KeyValue, NAMES, st.binary(), U63.map(Revision), U63.map(Revision), U63, LEASES)
EVENTS = KEY_VALUES.map(lambda item: Event(item.key, item)) | NAMES.map(lambda key: Event(key, None))


@given(KEY_VALUES)
def test_a_key_value_decodes_to_what_was_encoded(item: KeyValue) -> None:
    key, data = records.encode_key_value(item)
    assert records.decode_key_value(memoryview(key), memoryview(data)) == item


@given(U63.map(Revision), st.lists(EVENTS, max_size=5).map(tuple))
def test_a_batch_decodes_to_what_was_encoded(revision: Revision, events: tuple[Event, ...]) -> None:
    batch = WatchBatch(revision, events)
    assert records.decode_batch(records.batch_key(revision), records.encode_batch(batch)) == batch


@given(st.binary(max_size=12), st.binary(max_size=24))
def test_bytes_that_are_no_record_raise_unreadable_record_and_nothing_else(key: bytes, data: bytes) -> None:
    for decode in (records.decode_key_value, records.decode_batch):
        with contextlib.suppress(records.UnreadableRecord):
            assert isinstance(decode(key, data), (KeyValue, WatchBatch))


@given(st.recursive(st.none() | st.integers(0, 9) | st.binary(max_size=3), lambda inner: st.lists(inner, max_size=5)))
def test_well_formed_msgpack_of_the_wrong_shape_is_unreadable_or_a_record(value: object) -> None:
    try:
        decoded = records.decode_key_value(b"k", msgpack.packb(value))
    except records.UnreadableRecord:
        return
    assert isinstance(decoded.value, bytes)


@pytest.mark.parametrize(
    ("key", "value"), [(b"store", [1, 2]), (b"store", 7), (b"lease/x", 1.0), (b"lease/" + bytes(8), b"soon")]
)
def test_damaged_numbers_of_the_store_are_named_in_the_error(key: bytes, value: object) -> None:
    with pytest.raises(records.UnreadableRecord, match=key.decode()[:5]):
        records.snapshot([], [], [(key, msgpack.packb(value))])


def test_a_newer_format_is_refused_with_the_reason() -> None:
    records.check_format(msgpack.packb(records.FORMAT))
    with pytest.raises(records.NewerFormat, match="a newer gnomon wrote it"):
        records.check_format(msgpack.packb(records.FORMAT + 1))
