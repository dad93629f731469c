"""The client libraries, and the way to aim one at a broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gnomon.testing import KafkaBroker

if TYPE_CHECKING:
    from families.family import Family

FAMILIES = {
    "confluent-kafka": ("families.confluent", "ConfluentKafka"),
    "kafka-python": ("families.python", "KafkaPython"),
    "aiokafka": ("families.asyncio_", "AioKafka"),
}
SETTINGS = {
    "num.partitions": 2,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 4,
}


def connected(name: str, broker: KafkaBroker) -> Family:
    module, kind = FAMILIES[name]
    family: Family = getattr(import_module(module), kind)(broker.bootstrap_servers)
    return family
