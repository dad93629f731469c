"""The pytest plugin: fixtures that start brokers and clusters. It imports next to nothing until a fixture is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gnomon.testing.kafka_broker import KafkaBroker
    from gnomon.testing.kafka_cluster import KafkaCluster


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One broker for the whole session: use separate topic and group names for each test, and do not stop it."""
    from gnomon.testing.kafka_broker import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def kafka_broker_factory() -> Iterator[Callable[..., KafkaBroker]]:
    """Starts brokers that end with the test: a function with the arguments of `KafkaBroker`."""
    from gnomon.testing.kafka_broker import KafkaBroker

    with ExitStack() as stack:

        def start(**arguments: Any) -> KafkaBroker:
            return stack.enter_context(KafkaBroker(**arguments))

        yield start


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """One cluster of two brokers and three bookies for the whole session: leave its members running."""
    from gnomon.testing.kafka_cluster import KafkaCluster

    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_factory() -> Iterator[Callable[..., KafkaCluster]]:
    """Starts clusters that end with the test: a function with the arguments of `KafkaCluster`."""
    from gnomon.testing.kafka_cluster import KafkaCluster

    with ExitStack() as stack:

        def start(**arguments: Any) -> KafkaCluster:
            return stack.enter_context(KafkaCluster(**arguments))

        yield start
