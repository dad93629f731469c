from __future__ import annotations

import pytest

from gnomon.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    subscribed_topics,
)
from gnomon.wire.kafka.schema import MalformedMessage, encode_prefixed

_SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["t", "u"],
    user_data=b"any",
    owned_partitions=[TopicPartition(topic="t", partitions=[0, 2])],
    generation_id=4,
    rack_id="r",
)


@pytest.mark.parametrize("version", range(4))
def test_the_topics_of_a_subscription_are_read_in_every_version(version: int) -> None:
    assert subscribed_topics(encode_prefixed(_SUBSCRIPTION, version)) == ["t", "u"]


def test_a_future_version_is_read_up_to_the_known_fields() -> None:
    to_come = b"\0\x09" + encode_prefixed(_SUBSCRIPTION, 3)[2:] + b"more"
    assert subscribed_topics(to_come) == ["t", "u"]


@pytest.mark.parametrize("version", [-1, 1, 2, 3, 9])
def test_a_subscription_that_ends_after_user_data_is_read_in_any_version(version: int) -> None:
    short = version.to_bytes(2, "big", signed=True) + encode_prefixed(_SUBSCRIPTION, 0)[2:]
    assert subscribed_topics(short) == ["t", "u"]


@pytest.mark.parametrize("broken", [b"", b"\0", b"\0\0\0\0\0\0", b"\0\0\0\0\0\1", b"\0\1\x7f\xff\xff\xff"])
def test_bytes_that_end_before_user_data_are_malformed(broken: bytes) -> None:
    with pytest.raises(MalformedMessage):
        subscribed_topics(broken)
