"""Other people's clients against a broker in a process of its own.

The libraries from PyPI are asked the same questions through `families`. Clients that need more than PyPI are asked
theirs when pytest gets `--all-clients`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gnomon.testing import KafkaBroker

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `families`: test folders are no packages

from families.aim import FAMILIES, SETTINGS, connected  # noqa: E402 - found through the line above

if TYPE_CHECKING:
    from families.family import Admin, Family

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
def broker() -> Iterator[KafkaBroker]:
    """One broker for all tests that do not stop it."""
    with KafkaBroker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    """A broker for one test to kill."""
    with KafkaBroker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(params=FAMILIES)
def family_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def family(family_name: str, broker: KafkaBroker) -> Iterator[Family]:
    """A client library aimed at the shared broker."""
    found = connected(family_name, broker)
    yield found
    found.close()


@pytest.fixture
def own_family(family_name: str, own_broker: KafkaBroker) -> Iterator[Family]:
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
