from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest

from gnomon.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from gnomon.wire.kafka.messages.fetch import FetchRequest, FetchTopic
from gnomon.wire.kafka.messages.group import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)
from gnomon.wire.kafka.messages.header import RequestHeader
from gnomon.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gnomon.wire.kafka.schema import (
    NO_UUID,
    Buffer,
    InexpressibleMessage,
    MalformedMessage,
    ProtocolMessage,
    Struct,
    array,
    boolean,
    check_end,
    decode,
    decode_prefixed,
    encode,
    encode_prefixed,
    float64,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    octets,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)

COUNT_MAX = 2**31 - 1


class Inner(Struct):
    number: int = int8()
    hint: str | None = string.nullable(since=2, tag=0)


class Everything(ProtocolMessage, versions=(0, 3), flexible=2):
    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    port: int = uint16()
    middle: int = int32()
    unsigned: int = uint32()
    large: int = int64()
    share: float = float64()
    unique: UUID = uuid()
    text: str = string()
    perhaps: str | None = string.nullable(nullable_since=1, default="")
    raw: bytes = octets()
    batch: Buffer | None = records.nullable()
    inner: Inner = struct(Inner)
    inners: list[Inner] = array(Inner)
    words: list[str] | None = nullable_array(string, nullable_since=1)
    numbers: list[int] = array(int32)
    ids: list[UUID] = array(uuid)
    late: int = int32(since=3, default=-1)
    vital: int = int32(since=3, essential=True)
    tagged: list[int] = array(int32, since=2, tag=5)
    boxed: Inner = struct(Inner, since=2, tag=1)


def _everything() -> Everything:
    return Everything(
        flag=True, tiny=-1, small=-2, port=65_535, middle=-3, unsigned=2**32 - 1, large=-4, share=0.5,
        unique=UUID(int=9), text="häß", perhaps="x", raw=b"\0\1", batch=b"records",
        inner=Inner(number=1), inners=[Inner(number=2)],
        words=["a", ""], numbers=[1, -1], ids=[NO_UUID, UUID(int=1)],
    )  # fmt: skip


def test_the_wire_form_of_every_kind_is_kafkas() -> None:
    expected = (
        "01 ff fffe ffff fffffffd ffffffff fffffffffffffffc 3fe0000000000000 00000000000000000000000000000009"
        "0005 68c3a4c39f 0001 78 00000002 0001 00000007 7265636f726473 01 00000001 02 00000002 0001 61 0000"
        "00000002 00000001 ffffffff 00000002" + "00" * 16 + "00" * 15 + "01"
    )
    assert encode(_everything(), 0) == bytes.fromhex(expected)
    flexible = (
        "01 ff fffe ffff fffffffd ffffffff fffffffffffffffc 3fe0000000000000 00000000000000000000000000000009"
        "06 68c3a4c39f 02 78 03 0001 08 7265636f726473 01 00 02 02 00 03 02 61 01"
        "03 00000001 ffffffff 03" + "00" * 16 + "00" * 15 + "01" + "02 01 06 03 01 00 02 02 68 05 05 02 00000007"
    )
    message = _everything()
    message.tagged, message.boxed = [7], Inner(number=3, hint="h")
    assert encode(message, 2) == bytes.fromhex(flexible)
    assert decode(Everything, 2, bytes.fromhex(flexible)) == (message, len(bytes.fromhex(flexible)))


def test_messages_are_equal_by_class_and_fields_and_own_their_defaults() -> None:
    one, other = Everything(), Everything()
    assert one == other
    one.numbers.append(1)
    one.inner.number = 3
    assert one != other
    assert (other.numbers, other.inner.number) == ([], 0)
    assert Inner() != Everything()
    assert repr(Inner(number=2)) == "Inner(number=2, hint=None)"
    with pytest.raises(TypeError):
        Inner(nummer=2)


def test_fields_a_version_lacks_are_left_out_and_default_when_decoded() -> None:
    message = _everything()
    message.late = 12
    decoded, _ = decode(Everything, 2, encode(message, 2))
    assert decoded.late == -1
    decoded, _ = decode(Everything, 3, encode(message, 3))
    assert decoded.late == 12


def test_an_essential_field_that_the_version_lacks_must_hold_its_default() -> None:
    message = _everything()
    message.vital = 1
    with pytest.raises(InexpressibleMessage, match=r"^Everything v2: vital: this version has no field for it"):
        encode(message, 2)
    with pytest.raises(InexpressibleMessage, match="coordinator_keys"):
        encode(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 3)
    with pytest.raises(InexpressibleMessage, match="members"):
        encode(LeaveGroupResponse(members=[MemberResponse(member_id="m", error_code=25)]), 2)


def test_null_is_refused_if_the_version_does_not_allow_it() -> None:
    message = _everything()
    message.perhaps = None
    with pytest.raises(InexpressibleMessage, match=r"^Everything v0: perhaps: null"):
        encode(message, 0)
    assert decode(Everything, 1, encode(message, 1))[0].perhaps is None
    with pytest.raises(MalformedMessage, match=r"^MetadataRequest v0: topics at byte 4: null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff")[0].topics is None
    with pytest.raises(InexpressibleMessage, match=r"^MetadataRequest v0: topics: null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(InexpressibleMessage, match="protocol_name"):
        encode(JoinGroupResponse(protocol_name=None), 6)
    with pytest.raises(MalformedMessage, match="group_id at byte 1: null"):
        decode(HeartbeatRequest, 4, bytes(20))


def test_values_outside_their_type_are_refused_with_their_field() -> None:
    with pytest.raises(InexpressibleMessage, match=r"^HeartbeatRequest v1: generation_id: "):
        encode(HeartbeatRequest(generation_id=2**31), 1)
    with pytest.raises(InexpressibleMessage, match=r"^HeartbeatRequest v1: group_id: a string of 32768 bytes"):
        encode(HeartbeatRequest(group_id="x" * 32_768), 1)
    with pytest.raises(InexpressibleMessage, match=r"^JoinGroupRequest v1: protocols.name: "):
        encode(JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="\ud800")]), 1)
    with pytest.raises(InexpressibleMessage, match=r"^MetadataResponse v1: brokers.node_id: "):
        encode(MetadataResponse(brokers=[None]), 1)


def test_a_version_that_the_class_does_not_have_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has versions 0 to 4, not 5"):
        encode(HeartbeatRequest(), 5)
    with pytest.raises(ValueError, match="FetchRequest has versions 4 to 18, not 3"):
        decode(FetchRequest, 3, b"")


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, COUNT_MAX.to_bytes(4, "big")),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
        (MetadataResponse, 0, COUNT_MAX.to_bytes(4, "big")),
        (SyncGroupResponse, 0, b"\0\0" + COUNT_MAX.to_bytes(4, "big")),
        (SyncGroupResponse, 4, b"\0\0\0\0\0\0\xff\xff\xff\xff\x0f"),
        (JoinGroupRequest, 0, b"\x7f\xff"),
        (Everything, 0, bytes(46 + 4 + 8 + 1 + 4 + 4) + COUNT_MAX.to_bytes(4, "big")),
        (HeartbeatResponse, 4, b"\0\0\0\0\0\0\xff\xff\xff\xff\x0f"),
        (HeartbeatResponse, 4, b"\0\0\0\0\0\0\x01\x63\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_count_far_beyond_the_bytes_is_malformed_and_allocates_little(
    cls: type[ProtocolMessage], version: int, data: bytes
) -> None:
    encode(cls(), version)  # compiles the codec
    padded = data + bytes(12)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(cls, version, padded)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x80\0", b"\xff\xff\xff\xff\xff\xff\xff\xff"])
def test_negative_lengths_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="group_id at byte"):
        decode(HeartbeatRequest, 0, data + bytes(40))


def test_a_varint_of_more_than_five_bytes_or_32_bits_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="group_id at byte 0: varint of more than 32 bits"):
        decode(HeartbeatRequest, 4, b"\xff\xff\xff\xff\x10" + bytes(20))
    with pytest.raises(MalformedMessage, match="group_id at byte 0: varint of more than five bytes"):
        decode(HeartbeatRequest, 4, b"\x80\x80\x80\x80\x80\x01" + bytes(20))


def test_text_that_is_no_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match=r"^HeartbeatRequest v0: group_id at byte 0: .*utf-8"):
        decode(HeartbeatRequest, 0, b"\0\2\xc3\x28" + bytes(20))


def test_a_tagged_field_must_fill_the_size_of_its_tag_and_stay_inside() -> None:
    plain = encode(_everything(), 2)[:-1]
    decode(Everything, 2, plain + b"\1\1\2\5\0")
    for tagged in (b"\1\1\3\5\0\0", b"\1\1\1\5\0", b"\1\5\5\3\0\0\0\1\0\0\0\2"):
        with pytest.raises(MalformedMessage, match=r"tagged fields\.(boxed|tagged)"):
            decode(Everything, 2, plain + tagged)


def test_a_tagged_field_is_written_only_when_it_is_not_its_default() -> None:
    assert encode(FetchRequest(), 12) == encode(FetchRequest(cluster_id=None), 12)
    named = encode(FetchRequest(cluster_id="c"), 12)
    assert named.endswith(b"\1\0\2\2c")
    assert decode(FetchRequest, 12, named)[0].cluster_id == "c"


def test_the_client_id_of_a_flexible_header_keeps_its_old_length_prefix() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=5, client_id="me")
    assert encode(header, 2) == bytes.fromhex("0012 0003 00000005 0002 6d65 00")
    assert encode(header, 1) == bytes.fromhex("0012 0003 00000005 0002 6d65")


def test_records_are_views_of_the_buffer_and_other_bytes_are_copies() -> None:
    batch = PartitionProduceData(index=0, records=b"batch")
    buffer = bytearray(encode(ProduceRequest(topic_data=[TopicProduceData(partition_data=[batch])]), 9))
    found = decode(ProduceRequest, 9, buffer)[0].topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    assert found == b"batch"
    buffer[buffer.index(b"batch")] = ord("c")
    assert found == b"catch"
    assert isinstance(decode(SyncGroupResponse, 0, bytes(6))[0].assignment, bytes)


def test_bytes_after_the_end_are_malformed() -> None:
    encoded = encode(HeartbeatRequest(group_id="g"), 4)
    message, end = decode(HeartbeatRequest, 4, encoded)
    check_end(message, encoded, end)
    with pytest.raises(MalformedMessage, match="HeartbeatRequest: 2 bytes follow its end"):
        check_end(message, encoded + b"ab", end)


def test_a_prefixed_message_carries_its_version_and_fills_its_buffer() -> None:
    stored = encode_prefixed(Inbox(number=3), 1)
    assert stored == bytes.fromhex("0001 00000003")
    assert decode_prefixed(Inbox, stored) == (Inbox(number=3), 1)
    for broken in (
        b"",
        b"\0",
        bytes.fromhex("0002 00000003"),
        bytes.fromhex("ffff 00000003"),
        stored + b"\0",
        stored[:-1],
    ):
        with pytest.raises(MalformedMessage):
            decode_prefixed(Inbox, broken)


class Inbox(ProtocolMessage, versions=(0, 1)):
    number: int = int32()


def test_a_decoded_topic_by_id_has_no_name_and_one_by_name_has_no_id() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", topic_id=UUID(int=5))])
    by_name = decode(FetchRequest, 12, encode(request, 12))[0].topics[0]
    by_id = decode(FetchRequest, 13, encode(request, 13))[0].topics[0]
    assert (by_name.topic, by_name.topic_id) == ("t", NO_UUID)
    assert (by_id.topic, by_id.topic_id) == ("", UUID(int=5))


def test_metadata_for_all_topics_and_for_no_topics_differ() -> None:
    assert decode(MetadataRequest, 12, encode(MetadataRequest(topics=None), 12))[0].topics is None
    assert decode(MetadataRequest, 12, encode(MetadataRequest(topics=[]), 12))[0].topics == []
    one = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert decode(MetadataRequest, 12, encode(one, 12))[0] == one


@pytest.mark.parametrize("length", [32_768, 40_000])
def test_a_compact_text_longer_than_kafka_allows_is_malformed(length: int) -> None:
    name = bytes(((length + 1) & 0x7F | 0x80, (length + 1) >> 7 & 0x7F | 0x80, (length + 1) >> 14)) + b"g" * length
    with pytest.raises(MalformedMessage, match=f"{length} bytes, Kafka allows 32767"):
        decode(HeartbeatRequest, 4, name + b"\0\0\0\0\2m\0\0")


class Nested(Struct):
    numbers: list[int] = array(int32)
    names: list[str] = array(string)


class Outer(ProtocolMessage, versions=(0, 1), flexible=1):
    inners: list[Nested] = array(Nested)


@pytest.mark.parametrize("version", [0, 1])
def test_the_elements_of_all_arrays_of_a_message_count_toward_its_bound(version: int) -> None:
    """2."""
    message = Outer(inners=[Nested(numbers=[1, 2], names=["a"]), Nested(numbers=[], names=["b", "c", "d"])])
    encoded = encode(message, version)
    assert decode(Outer, version, encoded, elements_max=8)[0] == message
    with pytest.raises(MalformedMessage, match="more than 7 elements"):
        decode(Outer, version, encoded, elements_max=7)
    assert decode(Outer, version, encoded)[0] == message, "the bound of one message is none of the next"


def test_an_element_beyond_the_bound_is_not_made_and_neither_is_one_before_it_in_its_array() -> None:
    """2."""
    encoded = (1_000_000).to_bytes(4, "big") + bytes(8_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="more than 1000 elements"):
            decode(Outer, 0, encoded, elements_max=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_unknown_tagged_fields_are_elements() -> None:
    """2."""
    tags = b"\xe8\x07" + b"\x05\x00" * 1000
    assert decode(Outer, 1, b"\x01" + tags, elements_max=1000)[0] == Outer()
    with pytest.raises(MalformedMessage, match=r"tagged fields.*more than 999 elements"):
        decode(Outer, 1, b"\x01" + tags, elements_max=999)
