from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.metadata.client import (
    Compare,
    Delete,
    DeletePrefix,
    Event,
    Get,
    HistoryCompacted,
    KeyField,
    KeyValue,
    MetadataFull,
    MetadataUnavailable,
    Put,
    RangeResult,
    Revision,
    TxnOutcome,
    WatchBatch,
)
from gnomon.metadata.messages import (
    ERRORS,
    MalformedMessage,
    decode_batch,
    decode_compare,
    decode_item,
    decode_operations,
    decode_range,
    decode_txn_result,
    encode_batch,
    encode_compare,
    encode_item,
    encode_operations,
    encode_range,
    encode_txn_result,
)

KEYS = st.text()
NUMBERS = st.integers(0, 2**63 - 1)
LEASES = st.none() | NUMBERS
ITEMS = st.builds(KeyValue, KEYS, st.binary(), NUMBERS, NUMBERS, NUMBERS, LEASES)
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, st.binary(), LEASES), *(st.builds(kind, KEYS) for kind in (Delete, DeletePrefix, Get))
)
NUMERIC = st.sampled_from([field for field in KeyField if field is not KeyField.VALUE])
COMPARES = st.builds(Compare, KEYS, NUMERIC, NUMBERS) | st.builds(Compare, KEYS, st.just(KeyField.VALUE), st.binary())
RESULTS = st.lists(st.none() | NUMBERS | ITEMS, max_size=4).map(tuple)
EVENTS = st.lists(st.builds(Event, KEYS, st.none() | ITEMS), max_size=4).map(tuple)
FORMS: list[tuple[Callable[[Any], Any], Callable[[Any], Any], st.SearchStrategy[Any]]] = [
    (encode_item, decode_item, st.none() | ITEMS),
    (encode_compare, decode_compare, st.lists(COMPARES, max_size=4)),
    (encode_operations, decode_operations, st.lists(OPERATIONS, max_size=4)),
    (encode_txn_result, decode_txn_result, st.builds(TxnOutcome, st.booleans(), NUMBERS, RESULTS)),
    (encode_range, decode_range, st.builds(RangeResult, NUMBERS, st.lists(ITEMS, max_size=4).map(tuple))),
    (encode_batch, decode_batch, st.builds(WatchBatch, NUMBERS, EVENTS)),
]
SHAPES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 3)
    | st.binary(max_size=2)
    | st.sampled_from(["put", "get", "value", "a"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=1), inner, max_size=2),
    max_leaves=12,
)


@given(st.sampled_from(FORMS).flatmap(lambda form: st.tuples(st.just(form), form[2])))
def test_every_value_survives_a_round_trip_over_msgpack(case: Any) -> None:
    (encode, decode, _), value = case
    assert decode(msgpack.unpackb(msgpack.packb(encode(value)))) == value


@given(st.sampled_from([form[1] for form in FORMS]), SHAPES)
def test_decoding_any_shape_raises_no_error_except_malformed_message(decode: Callable[[Any], Any], form: Any) -> None:
    try:
        decode(form)
    except MalformedMessage:
        pass


@pytest.mark.parametrize(
    "error", [HistoryCompacted(Revision(3), Revision(9)), MetadataFull("no room"), MetadataUnavailable("closed")]
)
def test_errors_survive_a_round_trip(error: Exception) -> None:
    again = ERRORS.decode(*ERRORS.encode(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
