from __future__ import annotations

import pytest

from gnomon.wire.kafka.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from gnomon.wire.kafka.schema import MalformedMessage, ProtocolMessage, decode_prefixed, encode_prefixed

_OFFSET = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
_GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="a",
    current_state_timestamp=5,
    members=[MemberMetadata(member_id="a", client_id="c", client_host="/h", rebalance_timeout=6, session_timeout=4)],
)


@pytest.mark.parametrize(
    ("message", "version", "stored"),
    [
        (OffsetCommitKey(group="g", topic="t", partition=1), 1, "0001 0001 67 0001 74 00000001"),
        (GroupMetadataKey(group="g"), 2, "0002 0001 67"),
        (_OFFSET, 3, "0003 0000000000000007 00000002 0001 6d 0000000000000009"),
        (_OFFSET, 4, "0004 0000000000000007 00000002 02 6d 0000000000000009 00"),
        (
            _GROUP,
            3,
            "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0001 61 0000000000000005 00000001"
            "0001 61 ffff 0001 63 0002 2f68 00000006 00000004 00000000 00000000",
        ),
    ],
)
def test_records_have_kafkas_bytes(message: ProtocolMessage, version: int, stored: str) -> None:
    assert encode_prefixed(message, version) == bytes.fromhex(stored)
    assert decode_prefixed(type(message), bytes.fromhex(stored)) == (message, version)


def test_the_version_of_a_key_determines_its_kind() -> None:
    offset, group = OffsetCommitKey(group="g", topic="t", partition=1), GroupMetadataKey(group="g")
    assert decode_key(encode_prefixed(offset, 0)) == offset
    assert decode_key(encode_prefixed(offset, 1)) == offset
    assert decode_key(encode_prefixed(group, 2)) == group
    assert decode_key(bytes.fromhex("0003 0001 67")) is None
    assert decode_key(bytes.fromhex("ffff")) is None


@pytest.mark.parametrize("broken", ["", "00", "0001", "0001 0001 67 0001 74 000000", "0002 0001 67 00"])
def test_a_damaged_key_is_malformed(broken: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_key(bytes.fromhex(broken))
