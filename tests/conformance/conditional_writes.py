"""Topics that honour the headers of conditional writes."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

EXPECTED = "gnomon.expected.offset"
CONFIGS = {"gnomon.conditional.write": "true"}
MESSAGE = "CAS_WRITE_EXCEPTION 525 expected=9 current=1"
SECONDS = 20


def create_conditional_topic(servers: str, topic: str) -> None:
    """Creates a topic of one partition that honours the headers."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, -1, config=CONFIGS)])[topic].result(SECONDS)
