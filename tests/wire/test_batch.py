"""The batch header against kafka-python's and aiokafka's builders; numbers are the invariants of batch.py."""

from __future__ import annotations

import struct
import zlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from gnomon.wire.kafka import batch as batch_module
from gnomon.wire.kafka.batch import (
    HEADER_BYTES,
    BatchRejected,
    MalformedBatch,
    check_produced,
    parse_batch,
    patched_prefix,
    with_log_append_time,
)
from gnomon.wire.kafka.records import Record, build_batch

LIMIT = 1_048_588


def produced(
    count: int = 3,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for index in range(count):
        builder.append(index, timestamp=1_000 + index, key=b"k", value=b"v" * index, headers=[])
    return bytes(builder.build())


def with_fields(raw: bytes, **fields: int) -> bytes:
    """A copy of the batch with changed header fields and a correct checksum."""
    changed = bytearray(raw)
    places = {
        "base_offset": (">q", 0),
        "length": (">i", 8),
        "magic": (">b", 16),
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "producer_id": (">q", 43),
        "base_sequence": (">i", 53),
        "records_count": (">i", 57),
    }
    for name, value in fields.items():
        layout, position = places[name]
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def rejection(raw: bytes, limit: int = LIMIT) -> int:
    with pytest.raises(BatchRejected) as caught:
        check_produced(memoryview(raw), limit)
    assert caught.value.text
    return caught.value.error_code


def bitwise_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_batch_of_kafka_python_is_read_field_by_field() -> None:
    raw = produced(4, producer_id=77, producer_epoch=3, base_sequence=12, transactional=True)
    header = parse_batch(memoryview(raw))
    oracle = DefaultRecordBatch(raw)
    assert header.base_offset == oracle.base_offset == 0
    assert header.size_bytes == len(raw)
    assert (header.magic, header.crc, header.attributes) == (2, oracle.crc, oracle.attributes)
    assert (header.last_offset_delta, header.records_count, header.next_offset) == (3, 4, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_003)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert header.last_sequence == 15
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.compression == 0


def test_a_batch_of_aiokafka_is_accepted() -> None:
    builder = AiokafkaBuilder(2, 0, 0, -1, -1, -1, 1 << 16)
    builder.append(0, timestamp=5, key=b"key", value=b"value", headers=[])
    raw = bytes(builder.build())
    assert check_produced(memoryview(raw), LIMIT) == parse_batch(memoryview(raw))


def test_three_ways_to_compute_the_checksum_agree() -> None:
    raw = produced(5)
    oracle = DefaultRecordBatch(raw)
    assert oracle.validate_crc()
    assert parse_batch(memoryview(raw)).crc == crc32c(raw[21:]) == bitwise_crc32c(raw[21:])
    assert bitwise_crc32c(b"123456789") == 0xE3069283 != zlib.crc32(b"123456789")


def test_a_batch_is_read_at_its_position_among_others() -> None:
    first, second = produced(1), produced(2)
    view = memoryview(first + second)
    assert parse_batch(view).size_bytes == len(first)
    assert parse_batch(view, len(first)).records_count == 2


@given(st.integers(0, 200))
def test_a_truncated_batch_is_malformed(cut: int) -> None:
    raw = produced(3)
    short = raw[: max(0, len(raw) - 1 - cut)]
    with pytest.raises(MalformedBatch):
        parse_batch(memoryview(short))
    assert rejection(short) in (2, 87)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 48, 2**31 - 1])
def test_a_nonsense_length_is_malformed(length: int) -> None:
    raw = with_fields(produced(1), length=length)
    with pytest.raises(MalformedBatch, match="declares"):
        parse_batch(memoryview(raw))
    assert rejection(raw) == 2


@given(st.binary(max_size=200))
def test_random_bytes_give_declared_exceptions_only(raw: bytes) -> None:
    with pytest.raises(MalformedBatch):
        parse_batch(memoryview(raw[:16] + b"\x07" + raw[17:]))
    rejection(raw)


@given(st.data())
def test_any_flipped_bit_under_the_checksum_is_found(data: st.DataObject) -> None:
    raw = bytearray(produced(3))
    position = data.draw(st.integers(17, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    assert rejection(bytes(raw)) == 2


def test_each_rule_of_produce_has_its_error_code() -> None:
    good = produced(3)
    assert check_produced(memoryview(good), len(good)).records_count == 3
    assert rejection(b"") == 87
    assert rejection(good[:10]) == 2
    assert rejection(with_fields(good, magic=1)) == 43
    assert rejection(with_fields(good, magic=0)) == 43
    assert rejection(good, len(good) - 1) == 10
    assert rejection(good + good) == 87
    assert rejection(good + b"\0") == 87
    assert rejection(with_fields(good, base_offset=1)) == 87
    assert rejection(with_fields(good, records_count=4)) == 87
    assert rejection(with_fields(good, records_count=0, last_offset_delta=-1)) == 87
    assert rejection(with_fields(good, records_count=-2, last_offset_delta=-3)) == 87
    assert rejection(with_fields(good, records_count=2**31 - 1, last_offset_delta=2**31 - 2)) == 87
    assert rejection(with_fields(good, attributes=1, records_count=1_000_001, last_offset_delta=1_000_000)) == 87
    assert rejection(with_fields(good, attributes=5)) == 76
    assert rejection(with_fields(good, attributes=0x08)) == 32
    assert rejection(with_fields(good, attributes=0x20)) == 87
    assert rejection(with_fields(good, producer_id=9)) == 87
    assert check_produced(memoryview(with_fields(good, producer_id=9, base_sequence=0)), LIMIT).base_sequence == 0


def test_the_smallest_possible_records_are_accepted() -> None:
    count = 100
    raw = build_batch([Record(value=None, offset_delta=delta) for delta in range(count)], base_timestamp=1)
    assert len(raw) < HEADER_BYTES + 8 * count
    assert check_produced(memoryview(raw), LIMIT).records_count == count


@pytest.mark.parametrize(("base", "last"), [(0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1), (-1, -1)])
def test_the_sequence_wraps_to_zero(base: int, last: int) -> None:
    raw = with_fields(produced(3), producer_id=1, base_sequence=base)
    assert parse_batch(memoryview(raw)).last_sequence == last


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_patching_offset_and_epoch_keeps_the_checksum_right(offset: int, epoch: int) -> None:
    raw = produced(3)
    header = parse_batch(memoryview(raw))
    stored = patched_prefix(header, offset, epoch) + raw[16:]
    assert len(stored) == len(raw)
    again = parse_batch(memoryview(stored))
    assert again == header._replace(base_offset=offset, partition_leader_epoch=epoch)
    assert DefaultRecordBatch(stored).validate_crc()


def test_log_append_time_changes_the_bit_the_max_timestamp_and_the_checksum_only() -> None:
    raw = produced(3)
    stamped = with_log_append_time(memoryview(raw), 9_999)
    before, after = parse_batch(memoryview(raw)), parse_batch(memoryview(stamped))
    assert after == before._replace(attributes=8, max_timestamp=9_999, crc=after.crc)
    assert stamped[HEADER_BYTES:] == raw[HEADER_BYTES:]
    oracle = DefaultRecordBatch(stamped)
    assert oracle.validate_crc()
    assert [record.timestamp for record in oracle] == [9_999] * 3
    assert after.is_log_append_time


def test_the_prefix_has_16_bytes_and_the_header_has_61() -> None:
    assert batch_module.PREFIX_BYTES == 16
    assert HEADER_BYTES == 61
