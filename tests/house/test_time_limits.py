"""Each test has a time limit, in every target."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from time_limits import SECONDS, SECONDS_OF_A_UNIT, seconds_max

TESTS = Path(__file__).parents[1]
MAKEFILE = (TESTS.parent / "Makefile").read_text(encoding="utf-8")


def test_every_test_has_a_time_limit(request: pytest.FixtureRequest) -> None:
    limits = [item.get_closest_marker("timeout") for item in request.session.items]
    assert limits
    assert all(limit is not None and limit.args[0] > 0 for limit in limits)


def test_a_test_that_hangs_fails_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 0.2\n")
    (tmp_path / "test_it.py").write_text(
        "import time\n\ndef test_that_hangs(): time.sleep(60)\n\ndef test_other(): pass\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", tmp_path)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"FAILED test_it.py::test_that_hangs.*Timeout", done.stdout)


def test_a_test_that_is_asked_for_more_work_has_a_longer_limit() -> None:
    assert seconds_max("broker", {"SEEDS": "1000"}, 300) == 300
    assert seconds_max("simulation", {}, 300) == 300
    assert seconds_max("simulation", {"SEEDS": ""}, 300) == 300
    assert seconds_max("simulation", {"SEEDS": "1000"}, 300) == 30_300
    assert seconds_max("chaos", {"MINUTES": "0.5"}, 300) == 360


def test_folders_and_variables_of_time_limits_exist() -> None:
    assert {folder for folder in (*SECONDS, *SECONDS_OF_A_UNIT) if not (TESTS / folder).is_dir()} == set()
    assert {variable for variable, _ in SECONDS_OF_A_UNIT.values() if f"{variable}=" not in MAKEFILE} == set()


def test_no_target_of_the_makefile_removes_the_limit() -> None:
    assert "--timeout" not in MAKEFILE
    assert "no:timeout" not in MAKEFILE
