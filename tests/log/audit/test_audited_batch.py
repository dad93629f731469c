"""The record batches of an audit (numbers: invariants of `audited_batch`)."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from made_entries import batch, entry

from gnomon.log.audit.audited_batch import batch_problem, count_records
from gnomon.log.entry import EntryHeader, unpack_header
from gnomon.wire.kafka.batch import CRC_FROM, HEADER, HEADER_BYTES, BatchHeader
from gnomon.wire.kafka.records import Record, build_batch


def header(count: int = 2, **fields: int) -> EntryHeader:
    payload = entry(0, 0, count, **fields).payload
    assert payload is not None
    return unpack_header(payload)


def changed(body: bytes, **fields: int) -> memoryview:
    """The batch with other header fields, and the checksum of these."""
    head = HEADER.pack(*BatchHeader._make(HEADER.unpack_from(body))._replace(**fields))
    whole = head + body[HEADER_BYTES:]
    return memoryview(whole[: CRC_FROM - 4] + struct.pack(">I", crc32c(whole[CRC_FROM:])) + whole[CRC_FROM:])


@pytest.mark.parametrize("compression", range(5))
def test_a_sound_batch_of_each_codec_has_no_problem(compression: int) -> None:
    assert batch_problem(memoryview(batch(0, 5, compression=compression)), header(5)) is None


@given(st.integers(0, len(batch(0)) * 8 - 1))
def test_every_flipped_bit_is_found(bit: int) -> None:  # 1, 2
    body = bytearray(batch(0))
    body[bit // 8] ^= 1 << bit % 8
    assert batch_problem(memoryview(body), header()) is not None


def test_bytes_after_a_batch_are_found() -> None:  # 1
    problem = batch_problem(memoryview(batch(0) + b"x"), header())
    assert problem is not None
    assert "bytes, its entry has" in problem


def test_a_batch_with_other_offsets_or_another_epoch_than_its_entry_is_found() -> None:  # 2
    assert "covers offsets from 0 up to 2" in (batch_problem(memoryview(batch(0)), header(3)) or "")
    assert "has epoch 1, its entry 2" in (batch_problem(memoryview(batch(0)), header(epoch=2)) or "")


def test_more_records_than_offsets_are_found_and_fewer_are_not() -> None:  # 3, 4
    assert "declares 3 records" in (batch_problem(changed(batch(0), records_count=3), header()) or "")
    sparse = build_batch([Record(0, 0, None, b"a"), Record(4, 0, None, b"b")], base_timestamp=0, leader_epoch=1)
    assert batch_problem(memoryview(sparse), header(5)) is None


@pytest.mark.parametrize("compression", [0, 4])
def test_a_batch_that_holds_fewer_records_than_it_declares_is_found(compression: int) -> None:  # 4
    body = changed(batch(0, 5, compression=compression), records_count=4)
    assert batch_problem(body, header(5)) == "the record batch declares 4 records and holds 5"


def test_records_that_do_not_decompress_are_found() -> None:  # 4
    body = batch(0, 5, compression=4)
    broken = changed(body[:-4] + b"\0\0\0\0")
    assert "do not decompress" in (batch_problem(broken, header(5)) or "")


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_records_are_counted_by_their_lengths(values: list[bytes]) -> None:  # 4
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    data = build_batch(records, base_timestamp=0)[HEADER_BYTES:]
    assert count_records(data) == len(values)
    with pytest.raises(IndexError):
        count_records(data[:-1])


def test_a_negative_length_ends_the_count() -> None:  # 4
    with pytest.raises(IndexError):
        count_records(b"\x01")
