"""Spark itself, with `--spark` (`make test-spark`): a JVM of 200 MB and some 15 s for its first query.

The same tests run with gnomon's format and with Spark's own Kafka connector, whose jars come through Maven, on one
broker and on a cluster. Tests that need no JVM are in tests/spark. One session serves all tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from cluster_broker import ClusterBroker
from toolchains import jars, tool

from gnomon.testing import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests: test folders are no packages

from numbered_topic import NumberedTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Broker: TypeAlias = KafkaBroker | ClusterBroker


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name.startswith("test_") and not config.getoption("--spark") else None


@pytest.fixture(scope="session")
def connector() -> str:
    """The jars of Spark's connector, separated by commas."""
    folder = jars(Path(__file__).parent / "connector", "the jars of Spark's Kafka connector")
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session of two local threads that knows both formats; gnomon's alone where the connector cannot be fetched."""
    tool("java", "Spark needs Java 17")
    pytest.importorskip("pyspark", reason="pip install 'gnomon[spark]'")
    from local_session import local_session

    try:
        found = request.getfixturevalue("connector")
    except pytest.skip.Exception:
        found = ""  # the tests of the connector ask for it, too, and say why they are skipped
    with local_session(found) as session:
        yield session


@pytest.fixture(scope="session", params=["standalone", "cluster"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker, or two with three bookies."""
    with KafkaBroker() if request.param == "standalone" else ClusterBroker(tmp_path_factory.mktemp("c"), {}) as running:
        yield running


@pytest.fixture(params=["gnomon", "kafka"])
def source(request: pytest.FixtureRequest) -> str:
    """The name of a format that reads topics."""
    if request.param == "kafka":
        request.getfixturevalue("connector")
    name: str = request.param
    return name


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> NumberedTopic:
    """A topic of this test, without records."""
    return NumberedTopic(broker.bootstrap_servers, named_by(request))


@pytest.fixture(scope="session")
def orders(broker: Broker) -> NumberedTopic:
    """A topic of three partitions with 3,000 records."""
    made = NumberedTopic(broker.bootstrap_servers, "orders", 3)
    made.produce(3_000)
    return made


def named_by(request: pytest.FixtureRequest) -> str:
    name = f"{request.node.path.stem}-{request.node.name}"
    return "".join(letter if letter.isalnum() else "-" for letter in name)
