"""The changes that a batch makes to a table; numbers cite the invariants of `changes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.log.tables.changes import (
    NO_TTL,
    RECORDS_MAX,
    TTL,
    TTL_MS_MAX,
    KeyChange,
    KeyPlacement,
    TableChanges,
    changes_of,
    produced_changes,
)
from gnomon.log.tables.key_entry import KEY_BYTES_MAX
from gnomon.log.tables.operation_id import EXPIRED, OPERATION, OWN_SEQUENCE, OperationId
from gnomon.wire.kafka.batch import BatchRejected, parse_batch
from gnomon.wire.kafka.compression import Codec, UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.partitioner import partition_of
from gnomon.wire.kafka.records import Record, build_batch

AT = 1_700_000_000_000
ID = OperationId(b"w" * 16, 7, 3, succeeded=False)


def batch(*records: Record, **fields: Any) -> memoryview:
    numbered = [record._replace(offset_delta=delta) for delta, record in enumerate(records)]
    return memoryview(build_batch(numbered, **{"base_timestamp": AT, **fields}))


def produced(view: memoryview, placement: KeyPlacement | None = None) -> TableChanges:
    return produced_changes(view, parse_batch(view), 1 << 20, placement)


def refusal(*records: Record, placement: KeyPlacement | None = None, **fields: Any) -> str:
    with pytest.raises(BatchRejected) as caught:
        produced(batch(*records, **fields), placement)
    assert caught.value.error_code == ErrorCode.INVALID_RECORD
    return caught.value.text


@pytest.mark.parametrize("codec", list(Codec))
def test_each_record_is_a_put_or_a_deletion_in_every_codec(codec: Codec) -> None:  # 1
    view = batch(
        Record(key=b"a", value=b"1"), Record(key=b"", value=b"", timestamp_delta=5), Record(key=b"a"), compression=codec
    )
    assert produced(view).changes == [
        KeyChange(b"a", b"1", NO_TTL, AT, is_expiry=False),
        KeyChange(b"", b"", NO_TTL, AT + 5, is_expiry=False),
        KeyChange(b"a", None, NO_TTL, AT, is_expiry=False),
    ]


def test_a_record_without_a_key_refuses_its_batch() -> None:  # 2
    assert "record 1 has no key" in refusal(Record(key=b"a", value=b"1"), Record(value=b"2"))


def test_a_key_of_500_bytes_is_taken_and_one_of_501_refuses_its_batch() -> None:  # 2
    assert len(produced(batch(Record(key=b"k" * KEY_BYTES_MAX, value=b"1"))).changes) == 1
    assert "has 501 bytes: 500 are allowed" in refusal(Record(key=b"k" * 501, value=b"1"))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.integers(1, 9), st.integers(0, 8))
def test_a_batch_is_taken_in_the_partition_of_all_its_keys_only(keys: list[bytes], count: int, index: int) -> None:  # 3
    view = batch(*(Record(key=key, value=b"") for key in keys))
    wrong = [key for key in keys if partition_of(key, count) != index % count]
    if not wrong:
        assert len(produced(view, KeyPlacement(index % count, count)).changes) == len(keys)
        return
    with pytest.raises(BatchRejected) as caught:
        produced(view, KeyPlacement(index % count, count))
    assert f"the key of record {keys.index(wrong[0])} belongs in partition {partition_of(wrong[0], count)}" in str(
        caught.value
    )
    assert "partitioner=murmur2_random" in str(caught.value)


def test_a_time_to_live_is_a_decimal_number_of_milliseconds() -> None:  # 2
    (change,) = produced(batch(Record(key=b"a", value=b"1", headers=((TTL, b"2500"), ("other", None))))).changes
    assert change.ttl_ms == 2500


@pytest.mark.parametrize(
    "given_ttls", [[b"0"], [b""], [b"-1"], [b"1.5"], [None], [b"1", b"1"], [b"%d" % (TTL_MS_MAX + 1)], [b"9" * 30]]
)
def test_any_other_time_to_live_refuses_its_batch(given_ttls: Sequence[bytes | None]) -> None:  # 2
    text = refusal(Record(key=b"a", value=b"1", headers=tuple((TTL, value) for value in given_ttls)))
    assert f"from 1 to {TTL_MS_MAX} is expected" in text


def test_a_time_to_live_needs_a_time_to_count_from() -> None:  # 4
    text = refusal(Record(key=b"a", value=b"1", headers=((TTL, b"5"),)), base_timestamp=-1)
    assert "no time to count it from" in text


def test_a_batch_of_more_than_10000_records_is_refused() -> None:
    record = Record(key=b"a", value=b"")
    assert len(produced(batch(*[record] * RECORDS_MAX)).changes) == RECORDS_MAX
    assert "10001 records: a table takes 10000" in refusal(*[record] * (RECORDS_MAX + 1))


def test_records_that_cannot_be_read_refuse_their_batch() -> None:
    view = bytearray(batch(Record(key=b"a", value=b"1")))
    view[61] = 0x7E
    with pytest.raises(BatchRejected, match="the records cannot be read"):
        produced(memoryview(bytes(view)))
    packed = bytearray(batch(Record(key=b"a", value=b"1" * 100), compression=Codec.GZIP))
    packed[61:70] = bytes(9)
    with pytest.raises(BatchRejected, match="the records do not decompress"):
        produced(memoryview(bytes(packed)))


def test_more_bytes_than_allowed_are_not_decompressed() -> None:
    view = batch(Record(key=b"a", value=bytes(1 << 16)), compression=Codec.ZSTD)
    with pytest.raises(UnpackedTooLarge):
        produced_changes(view, parse_batch(view), 1 << 10, None)


def test_the_marks_of_the_leader_count_in_its_own_batches_only() -> None:
    marked = Record(key=b"a", headers=((OPERATION, ID.encode()), (EXPIRED, b"")))
    view = batch(marked, base_sequence=OWN_SEQUENCE)
    found = changes_of(view, parse_batch(view), 1 << 20)
    assert found.operation == ID
    assert found.changes[0].is_expiry
    found = produced(batch(marked))
    assert found.operation is None
    assert not found.changes[0].is_expiry


def test_a_producer_cannot_send_a_batch_of_the_leader() -> None:
    assert "producers without sequences send -1" in refusal(Record(key=b"a", value=b"1"), base_sequence=OWN_SEQUENCE)


@pytest.mark.parametrize("value", [None, b"", b"x" * 32, b"x" * 34])
def test_an_id_in_another_form_is_refused(value: bytes | None) -> None:
    view = batch(Record(key=b"a", headers=((OPERATION, value),)), base_sequence=OWN_SEQUENCE)
    with pytest.raises(BatchRejected, match=r"the header gnomon\.operation has 33 bytes"):
        changes_of(view, parse_batch(view), 1 << 20)
