from __future__ import annotations

import pytest

from gnomon.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_consumer_protocol,
)
from gnomon.wire.kafka.schema import MalformedMessage, encode_prefixed

_SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["t"], owned_partitions=[TopicPartition(topic="t", partitions=[0, 2])], generation_id=4, rack_id="r"
)


def test_a_subscription_is_read_in_its_version() -> None:
    assert decode_consumer_protocol(ConsumerProtocolSubscription, encode_prefixed(_SUBSCRIPTION, 3)) == _SUBSCRIPTION
    oldest = decode_consumer_protocol(ConsumerProtocolSubscription, encode_prefixed(_SUBSCRIPTION, 0))
    assert oldest == ConsumerProtocolSubscription(topics=["t"])


def test_a_version_to_come_is_read_as_the_newest_known() -> None:
    newest = encode_prefixed(_SUBSCRIPTION, 3)
    to_come = b"\0\x09" + newest[2:] + b"more"
    assert decode_consumer_protocol(ConsumerProtocolSubscription, to_come) == _SUBSCRIPTION


def test_an_assignment_keeps_its_user_data() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t")], user_data=b"")
    assert decode_consumer_protocol(ConsumerProtocolAssignment, encode_prefixed(assignment, 1)) == assignment


@pytest.mark.parametrize("broken", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\1\x7f\xff\xff\xff"])
def test_what_is_no_subscription_is_malformed(broken: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_consumer_protocol(ConsumerProtocolSubscription, broken)
