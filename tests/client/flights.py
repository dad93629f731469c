"""Records about flights, and the times that a real broker takes to store and deliver them."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from gnomon.testing.kafka_broker import KafkaBroker

FLUSH_SECONDS = 0.05
FLUSHED_SECONDS = 20 * FLUSH_SECONDS
"""After this time the broker has stored all acknowledgements, also on a busy machine."""
NOTHING_SECONDS = 0.2
"""Without a message for this time, a test assumes that none comes."""


def produce(broker: KafkaBroker, values: range, topic: str = "flights") -> None:
    """Produces batches of ten records (the last may have fewer), with five keys and one millisecond between records."""
    # the producer sends only when it is flushed, however slowly this program runs
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000})
    producer.list_topics(topic)  # a producer that does not know the topic sends the first records one by one
    now_ms = int(time.time() * 1000)
    for value in values:
        producer.produce(topic, key=str(value % 5), value=str(value), timestamp=now_ms + value)
        if value % 10 == 9:
            producer.flush()
    producer.flush()
