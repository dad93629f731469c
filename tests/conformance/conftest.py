"""Clients of other projects with a broker in a process of its own, or with `--cluster` with a cluster.

With `--shadows` the clients write to sources in a cluster and read their shadows, which are on other brokers.

The same tests run with all libraries from PyPI, through `families`. Clients that need more than PyPI are tested with
`--all-clients`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from gnomon.client.blocking import BlockingClient, connect_blocking
from gnomon.client.tables.blocking_table import BlockingTable
from gnomon.testing import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))  # for `families`: test folders are no packages

from cluster_broker import ClusterBroker
from decoded_topics import check_columns
from programs import go_program, node_program
from refused_batches import table_of_refusals
from tables import create_table
from toolchains import jars, tool

from families.aim import FAMILIES, SETTINGS, connected
from families.program import FRANZ_GO, JAVA, KAFKAJS, CommandedFamily
from families.shadowed import ShadowedFamily

if TYPE_CHECKING:
    from families.family import Admin, Family

Broker: TypeAlias = KafkaBroker | ClusterBroker

Client: TypeAlias = "Family | CommandedFamily"

OTHER_CLIENTS = ("test_other_clients.py", "test_other_conditional_writes.py", "test_other_tables.py")
OTHER_CLIENTS_OF_SHADOWS = "test_shadow_other_clients.py"
READING = ("test_records.py", "test_groups.py", "test_shadows.py", OTHER_CLIENTS_OF_SHADOWS)
"""The test files that run on shadows; of test_admin.py only the tests of groups run."""
ABOUT_GROUPS = "test_groups_"
ALL_CODECS = {"none", "gzip", "snappy", "lz4", "zstd"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.name in OTHER_CLIENTS and not config.getoption("--all-clients"):
        return True
    if collection_path.name == OTHER_CLIENTS_OF_SHADOWS:
        return True if not (config.getoption("--all-clients") and config.getoption("--shadows")) else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:  # kafka-python loads its schemas by a deprecated call
        item.add_marker(pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"))
    if config.getoption("--shadows"):
        writing = [item for item in here if item.path.name not in READING and not item.name.startswith(ABOUT_GROUPS)]
        config.hook.pytest_deselected(items=writing)
        items[:] = [item for item in items if item not in writing]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `client` runs with the clients of PyPI, and with `--all-clients` with those of other languages."""
    if "client" in metafunc.fixturenames:
        others = [JAVA, FRANZ_GO, KAFKAJS] if metafunc.config.getoption("--all-clients") else []
        metafunc.parametrize("client", [*FAMILIES, *others], indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := table_of_refusals(config):
        terminalreporter.section("refused batches")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that do not stop it; in the end what they have written is decoded by columns."""
    with started(request, tmp_path_factory) as broker:
        yield broker
        check_columns(broker.bootstrap_servers)


@pytest.fixture
def own_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one test to kill; in the end what it has written is decoded by columns."""
    with started(request, tmp_path_factory) as broker:
        yield broker
        check_columns(broker.bootstrap_servers)


def started(request: pytest.FixtureRequest, directories: pytest.TempPathFactory) -> Broker:
    """The broker or the cluster that the clients use."""
    if request.config.getoption("--cluster") or request.config.getoption("--shadows"):
        return ClusterBroker(directories.mktemp("cluster"), SETTINGS)
    return KafkaBroker(settings=SETTINGS)


@pytest.fixture(scope="session")
def java() -> list[str]:
    """The command that runs a program on Kafka's jars."""
    found = tool("java", "Kafka's Java client and console tools need a JVM, 17 or newer")
    folder = jars(Path(__file__).parent / "java", "Kafka's jars")
    quiet = folder / "log4j2.properties"
    quiet.write_text("rootLogger.level = off\n")
    return [found, "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", f"-Dlog4j2.configurationFile={quiet}"]


@pytest.fixture(params=FAMILIES)
def family_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def family(request: pytest.FixtureRequest, family_name: str, broker: Broker) -> Iterator[Family]:
    """A client library aimed at the shared broker."""
    yield from aimed(request, family_name, broker)


@pytest.fixture
def own_family(request: pytest.FixtureRequest, family_name: str, own_broker: Broker) -> Iterator[Family]:
    """A client library aimed at the test's own broker."""
    yield from aimed(request, family_name, own_broker)


def aimed(request: pytest.FixtureRequest, family_name: str, broker: Broker) -> Iterator[Family]:
    found = connected(family_name, broker)
    yield ShadowedFamily(found) if request.config.getoption("--shadows") else found
    found.close()


@pytest.fixture(scope="session")
def commanded(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Callable[[str], CommandedFamily]]:
    """Starts the program of a client on first use, and ends all of them."""
    started: dict[str, CommandedFamily] = {}

    def find(name: str) -> CommandedFamily:
        if name not in started:
            codecs = {"none", "gzip"} if name == KAFKAJS else ALL_CODECS
            if name == JAVA:
                command = [*request.getfixturevalue("java"), str(Path(__file__).parent / "java" / "Commands.java")]
            else:
                command = node_program("commands.js") if name == KAFKAJS else [go_program("./commands")]
            started[name] = CommandedFamily(name, codecs, [*command, broker.bootstrap_servers])
        return started[name]

    yield find
    for each in started.values():
        each.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    """A client aimed at the shared broker, with the calls for producers and readers."""
    if request.param not in FAMILIES:
        yield request.getfixturevalue("commanded")(request.param)
        return
    found = connected(request.param, broker)
    yield found
    found.close()


@pytest.fixture
def confluent(broker: Broker) -> Iterator[Family]:
    """librdkafka, aimed at the shared broker."""
    found = connected("confluent-kafka", broker)
    yield found
    found.close()


@pytest.fixture(scope="session")
def native(broker: Broker) -> Iterator[BlockingClient]:
    """A native client of the shared broker."""
    with connect_blocking(broker.native_address) as client:
        yield client


@pytest.fixture
def table(broker: Broker, native: BlockingClient, topic: str) -> BlockingTable:
    """An empty table on the shared broker."""
    create_table(broker.bootstrap_servers, topic)
    return native.table(topic)


@pytest.fixture
def admin(family: Family) -> Iterator[Admin]:
    found = family.admin()
    yield found
    found.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
