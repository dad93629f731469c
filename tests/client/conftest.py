"""A broker process that the tests of a module share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from gnomon.testing.kafka_broker import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))  # for `flights`: test folders are no packages

from flights import FLUSH_SECONDS


@pytest.fixture(scope="module")
def running() -> Iterator[KafkaBroker]:
    settings = {"subscriptions.flush_seconds": str(FLUSH_SECONDS), "auto.create.topics.enable": True}
    with KafkaBroker(settings=settings) as broker:
        yield broker


@pytest.fixture
def broker(running: KafkaBroker) -> Iterator[KafkaBroker]:
    """A broker without topics."""
    yield running
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    admin.delete_topics(["flights"])["flights"].result()
