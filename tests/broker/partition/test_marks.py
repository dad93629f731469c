"""The terms in the headers of records (numbers: invariants of `marks`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.partition.conditions.marks import (
    NO_MARKS,
    RECORDS_AT_ONCE_MAX,
    RECORDS_MAX,
    SEARCHED_BYTES_MAX,
    BatchMarks,
    ExpectedOffset,
    marks_at_once,
    marks_of,
)
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX, TakesLong
from gnomon.log.sn import SN_MAX
from gnomon.log.term_headers import EXPECTED_OFFSET, FENCING_TOKEN, TRANSACTION_ID
from gnomon.wire.kafka.batch import BatchRejected, parse_batch
from gnomon.wire.kafka.compression import Codec, UnpackedTooLarge
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.records import Header, Record, build_batch, framed

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(*records: tuple[Header, ...], codec: int = Codec.NONE, value: bytes = b"value") -> memoryview:
    made = [Record(number, 0, None, value, headers) for number, headers in enumerate(records)]
    return memoryview(build_batch(made, base_timestamp=0, compression=codec))


def found(batch: memoryview) -> BatchMarks:
    marks = marks_at_once(batch, parse_batch(batch))
    assert marks == marks_of(batch, parse_batch(batch))
    return marks


@pytest.mark.parametrize("codec", CODECS)
def test_any_record_may_have_terms_in_any_codec(codec: int) -> None:  # 2
    batch = batch_of(
        (("trace", b"1"),),
        ((TRANSACTION_ID, b"5"),),
        ((EXPECTED_OFFSET, b"19"), (FENCING_TOKEN, b"writer-7")),
        ((TRANSACTION_ID, b"5"),),
        ((TRANSACTION_ID, b"7"), (EXPECTED_OFFSET, b"21")),
        codec=codec,
    )
    assert found(batch) == BatchMarks((ExpectedOffset(2, 19), ExpectedOffset(4, 21)), 5, 7, b"writer-7")


@pytest.mark.parametrize("codec", CODECS)
def test_a_name_in_a_key_or_a_value_is_no_header(codec: int) -> None:  # 1
    name = EXPECTED_OFFSET.encode()
    record = Record(0, 0, name, name, (("other", name), (name.decode() + "s", b"1"), ("a" + name.decode(), b"1")))
    assert found(memoryview(build_batch([record], base_timestamp=0, compression=codec))) == NO_MARKS


def test_a_batch_without_the_names_is_not_parsed() -> None:  # 1
    garbage = framed(b"no records", records_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    assert found(memoryview(garbage)) is NO_MARKS


SENSELESS: list[tuple[tuple[Header, ...], str]] = [
    (((EXPECTED_OFFSET, b""),), r"is b'': a decimal number from 0 to"),
    (((EXPECTED_OFFSET, b"-1"),), "is b'-1': a decimal number"),
    (((EXPECTED_OFFSET, b"17.0"),), "a decimal number"),
    (((EXPECTED_OFFSET, b" 17"),), "a decimal number"),
    (((EXPECTED_OFFSET, b"1" * 400),), "a decimal number"),
    (((EXPECTED_OFFSET, str(SN_MAX + 1).encode()),), f"a decimal number from 0 to {SN_MAX}"),
    (((EXPECTED_OFFSET, "\u0661\u0662".encode()),), "a decimal number"),
    (((EXPECTED_OFFSET, None),), "is null"),
    (((EXPECTED_OFFSET, b"1"), (EXPECTED_OFFSET, b"1")), "is given twice"),
    (((TRANSACTION_ID, b"x"),), "a decimal number"),
    (((TRANSACTION_ID, None),), "is null"),
    (((TRANSACTION_ID, b"1"), (TRANSACTION_ID, b"1")), "is given twice"),
    (((FENCING_TOKEN, b""),), "has 0 bytes: 1 to 36 are allowed"),
    (((FENCING_TOKEN, b"x" * 37),), "has 37 bytes"),
    (((FENCING_TOKEN, None),), "is null"),
]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("headers", "text"), SENSELESS)
def test_an_invalid_header_refuses_the_batch_and_names_the_record(
    headers: tuple[Header, ...], text: str, codec: int
) -> None:  # 2
    with pytest.raises(BatchRejected, match=text) as refused:
        found(batch_of((), headers, codec=codec))
    assert refused.value.error_code == ErrorCode.INVALID_RECORD
    assert f"the header {headers[0][0]} of record 1 of the batch" in refused.value.text


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((TRANSACTION_ID, b"7"), (TRANSACTION_ID, b"6"), "is 6 after 7 in the batch"),
        ((FENCING_TOKEN, b"a"), (FENCING_TOKEN, b"b"), "is not that of an earlier record"),
    ],
)
def test_records_of_a_batch_do_not_contradict_each_other(first: Header, second: Header, text: str) -> None:
    with pytest.raises(BatchRejected, match=text):
        found(batch_of((first,), (second,)))


def test_a_batch_of_too_many_records_is_refused_whatever_its_headers_are() -> None:
    for headers in ((), ((EXPECTED_OFFSET, b"1"),)):
        batch = batch_of(*[headers] * (RECORDS_MAX + 1), codec=Codec.ZSTD, value=b"")
        with pytest.raises(BatchRejected, match=f"has {RECORDS_MAX + 1} records"):
            marks_of(batch, parse_batch(batch))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_that_takes_long_is_left_to_a_thread(codec: int) -> None:  # 3
    mark = ((TRANSACTION_ID, b"1"),)
    large = b"x" * (AT_ONCE_BYTES_MAX + 1)
    for batch in (batch_of(mark, codec=codec, value=large), batch_of(*[mark] * (RECORDS_AT_ONCE_MAX + 1), codec=codec)):
        with pytest.raises(TakesLong):
            marks_at_once(batch, parse_batch(batch))
        assert marks_of(batch, parse_batch(batch)).last_transaction_id == 1


def test_a_large_batch_without_the_names_needs_no_thread_up_to_a_size() -> None:  # 3
    batch = batch_of((), value=b"x" * (1 << 20))
    assert marks_at_once(batch, parse_batch(batch)) is NO_MARKS
    batch = batch_of((), value=b"x" * SEARCHED_BYTES_MAX)
    with pytest.raises(TakesLong):
        marks_at_once(batch, parse_batch(batch))


def test_no_more_is_unpacked_than_is_allowed() -> None:
    batch = batch_of((), codec=Codec.ZSTD, value=bytes(1 << 20))
    with pytest.raises(UnpackedTooLarge):
        marks_of(batch, parse_batch(batch), 1 << 19)
    with pytest.raises(TakesLong):
        marks_at_once(batch, parse_batch(batch))


@given(st.binary(max_size=60), st.sampled_from(CODECS))
def test_any_bytes_after_a_name_are_answered(noise: bytes, codec: int) -> None:
    data = EXPECTED_OFFSET.encode() + noise
    batch = framed(data, records_count=3, last_offset_delta=2, base_timestamp=0, max_timestamp=0, compression=codec)
    with pytest.raises(BatchRejected, match="cannot be searched for terms"):
        found(memoryview(batch))
