"""librdkafka with features that are not built: the new consumer group protocol and share groups end with an error."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from gnomon.testing import KafkaBroker

from families.confluent import QUIET

ENDS_SECONDS = 20


def _fatal_error(consumer: Any) -> KafkaError:
    """The error with which polling ends."""
    end = time.monotonic() + ENDS_SECONDS
    while time.monotonic() < end:
        try:
            came = consumer.poll(timeout=0.2)
        except KafkaException as error:
            return error.args[0]
        for message in came if isinstance(came, list) else [came]:
            if message is not None and message.error() is not None:
                return message.error()
    pytest.fail(f"nothing was told in {ENDS_SECONDS} s")


def test_a_consumer_of_the_new_protocol_ends_with_a_fatal_error(broker: KafkaBroker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "group.protocol": "consumer"}
    consumer = Consumer(settings, logger=QUIET)
    consumer.subscribe([topic])
    error = _fatal_error(consumer)
    consumer.close()
    assert error.code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in error.str()
    assert "version not supported" in error.str()


def test_the_brokers_log_has_the_advice_that_the_client_does_not_show() -> None:
    with KafkaBroker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "modern", "group.protocol": "consumer"}
        consumer = Consumer(settings, logger=QUIET)
        consumer.subscribe(["t"])
        assert "classic" not in _fatal_error(consumer).str()
        consumer.close()
        (line,) = [line for line in broker.log().splitlines() if "not_built" in line]
    assert "set group.protocol=classic" in line


@pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="confluent-kafka has share consumers since 2.16"
)
def test_a_share_consumer_ends_with_a_fatal_error(broker: KafkaBroker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
    consumer = confluent_kafka.ShareConsumer(settings, logger=QUIET)
    consumer.subscribe([topic])
    error = _fatal_error(consumer)
    consumer.close()
    assert error.fatal()
    assert error.code() == KafkaError.UNSUPPORTED_VERSION
    assert "ShareGroupHeartbeat" in error.str()
