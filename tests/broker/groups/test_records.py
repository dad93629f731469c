from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.broker.groups.records import GroupRecord, OffsetRecord, StoredOffset, decode_record
from gnomon.wire.kafka.messages.offsets_topic import GroupMetadataValue, MemberMetadata
from gnomon.wire.kafka.schema import MalformedMessage

names = st.text(max_size=20)
int64s = st.integers(0, 2**63 - 1)


@st.composite
def stored_offsets(draw):
    expire_ms = draw(st.none() | int64s)
    # Kafka's record of an offset with an expiry of its own has no leader epoch.
    leader_epoch = draw(st.integers(-1, 2**31 - 1)) if expire_ms is None else -1
    return StoredOffset(draw(int64s), leader_epoch, draw(names), draw(int64s), expire_ms)


@given(names, names, st.integers(0, 2**31 - 1), st.none() | stored_offsets())
def test_an_offset_record_is_decoded_as_it_was_encoded(group, topic, partition, stored):
    record = OffsetRecord(group, topic, partition, stored)
    assert decode_record(*record.encoded()) == record


@given(
    names, names, st.none() | names, st.lists(st.tuples(names, st.none() | names, st.binary(max_size=9)), max_size=3)
)
def test_a_group_record_is_decoded_as_it_was_encoded(group, protocol_type, protocol, members):
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=3,
        protocol=protocol,
        members=[
            MemberMetadata(member_id=name, group_instance_id=instance, session_timeout=1, assignment=assignment)
            for name, instance, assignment in members
        ],
    )
    for record in (GroupRecord(group, value), GroupRecord(group, None)):
        assert decode_record(*record.encoded()) == record


def test_an_offset_record_has_kafkas_bytes():
    key, value = OffsetRecord("g", "t", 5, StoredOffset(7, 2, "m", 9)).encoded()
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000005")
    assert value == bytes.fromhex("0003 0000000000000007 00000002 0001 6d 0000000000000009")


def test_records_of_other_kinds_are_skipped():
    assert decode_record(b"\x00\x0fwhatever", b"x") is None


def test_a_damaged_record_is_an_error():
    key, value = OffsetRecord("g", "t", 5, StoredOffset(7, 2, "m", 9)).encoded()
    with pytest.raises(MalformedMessage):
        decode_record(key, value[:-1])
