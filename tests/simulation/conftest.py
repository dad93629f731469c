from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

# The scenarios and planted bugs in this folder are modules of their own, since other processes import them too.
sys.path.insert(0, str(Path(__file__).parent))

from planted import hunt
from planted.planted_bug import PlantedBug, Scenario


@pytest.fixture
def find_all(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> hunt.FindAll:
    """`hunt.find_all`, whose table is printed at once; only with `--planted`."""
    if not request.config.getoption("--planted"):
        pytest.skip("asked for with --planted: it takes minutes")

    def find(bugs: Iterable[tuple[PlantedBug, Scenario]]) -> None:
        with capsys.disabled():
            hunt.find_all(bugs)

    return find
