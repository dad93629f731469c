"""Other people's clients against a broker in a process of its own, or with `--cluster` against a cluster.

The libraries from PyPI are asked the same questions through `families`. Clients that need more than PyPI are asked
theirs when pytest gets `--all-clients`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from gnomon.testing import KafkaBroker

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `families`: test folders are no packages

from cluster_broker import ClusterBroker  # noqa: E402 - found through the line above
from toolchains import java  # noqa: E402 - found through the line above

from families.aim import FAMILIES, SETTINGS, connected  # noqa: E402 - found through the line above

if TYPE_CHECKING:
    from families.family import Admin, Family

Broker: TypeAlias = KafkaBroker | ClusterBroker

__all__ = ["java"]
OTHER_CLIENTS = "test_other_clients.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.name == OTHER_CLIENTS and not config.getoption("--all-clients"):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:  # kafka-python loads its schemas by a call that Python gave up
            item.add_marker(pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that do not stop it."""
    with started(request, tmp_path_factory) as broker:
        yield broker


@pytest.fixture
def own_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one test to kill."""
    with started(request, tmp_path_factory) as broker:
        yield broker


def started(request: pytest.FixtureRequest, directories: pytest.TempPathFactory) -> Broker:
    """What the clients are asked their questions against."""
    if request.config.getoption("--cluster"):
        return ClusterBroker(directories.mktemp("cluster"), SETTINGS)
    return KafkaBroker(settings=SETTINGS)


@pytest.fixture(params=FAMILIES)
def family_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def family(family_name: str, broker: Broker) -> Iterator[Family]:
    """A client library aimed at the shared broker."""
    found = connected(family_name, broker)
    yield found
    found.close()


@pytest.fixture
def own_family(family_name: str, own_broker: Broker) -> Iterator[Family]:
    """A client library aimed at the test's own broker."""
    found = connected(family_name, own_broker)
    yield found
    found.close()


@pytest.fixture
def admin(family: Family) -> Iterator[Admin]:
    found = family.admin()
    yield found
    found.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
