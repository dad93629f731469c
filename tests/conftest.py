"""Settings of all tests: pytest's options of this project, and Hypothesis without time limits.

A busy machine must not fail a test, so neither an example nor the drawing of its data has a time limit.
A process that a shell starts in the background ignores SIGINT, and so would the processes that the tests start.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the test folders, which are no packages

from time_limits import seconds_max

TESTS = Path(__file__).parent
settings.register_profile("gnomon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gnomon")
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives each test its time limit, and puts slow tests first: otherwise the other processors would wait for them."""
    default_seconds = float(config.getini("timeout"))
    for item in items:
        seconds = seconds_max(item.path.relative_to(TESTS).parts[0], os.environ, default_seconds)
        item.add_marker(pytest.mark.timeout(seconds))
    items.sort(key=lambda item: item.path.parent.name not in ("simulation", "chaos", "cli"))


def pytest_collection_finish() -> None:
    """Spares the garbage collector most of its work, an eighth of the tests' processor time.

    Its full passes would look at all imported modules and collected tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than xdist's own number for `-n auto`: each waits for other processes a third of its time."""
    return (yield) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wheel", action="store_true", help="also build the wheel and try it in a fresh environment")
    parser.addoption(
        "--all-clients", action="store_true", help="also ask Java, kcat, franz-go and kafkajs, where they are present"
    )
    parser.addoption("--cluster", action="store_true", help="aim the clients at a cluster instead of one broker")
    parser.addoption(
        "--shadows", action="store_true", help="aim the clients' reading at shadows in a cluster, of what they write"
    )
    parser.addoption(
        "--planted", action="store_true", help="also look for every planted bug, and print how many seeds each took"
    )
    parser.addoption("--spark", action="store_true", help="also run Spark, which needs Java 17 and gnomon[spark]")
    parser.addoption("--kills", type=int, default=3, help="how often the broker under load is killed (SIGKILL)")
